"""Serve new counters at 0 first: `increase()` ignores the first value of a series, and would miss the first event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyrometer_exporters.framework.metrics import Family, Sample


class CounterInit:
    """Serves each counter once at 0 before its first count, except those known from before a restart."""

    def __init__(self, known: Iterable[tuple[str, tuple[str, ...]]] = ()) -> None:
        self._served = set(known)

    def served(
        self, samples: Iterable[Sample], zeros: Iterable[tuple[Family, tuple[str, ...]]] = ()
    ) -> Iterator[Sample]:
        """Return the samples, those of new counters at 0, and a 0 for each of ``zeros`` that has no sample."""
        now = set()
        for sample in samples:
            key = (sample.family.name, sample.labels)
            now.add(key)
            fresh = sample.family.type == "counter" and key not in self._served
            yield sample.family.sample(0, *sample.labels) if fresh else sample
        for family, labels in zeros:
            key = (family.name, labels)
            if key not in now:
                now.add(key)
                yield family.sample(0, *labels)
        self._served |= now
