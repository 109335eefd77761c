"""Series as Prometheus would have stored them: a value, a gap or a staleness marker for each scrape."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

STALE, GAP = "stale", "_"


class Recording:
    """The series of one target; those that no rule uses are dropped."""

    def __init__(self, labels: Mapping[str, str], wanted: Collection[str]) -> None:
        self.labels = dict(labels)
        self._wanted = wanted
        self._values: dict[str, list[str]] = {}
        self._known: dict[str, list[str] | None] = {}
        self._present: set[str] = set()
        self._written: dict[str, tuple[int, str]] = {}
        self.scrapes = 0

    def take(self, text: bytes | None) -> None:
        """Record a scrape: the text that was served, or None for a scrape that failed."""
        present = set() if text is None else set(self._take_lines(text.decode()))
        present.update(self._take_one("up", "0" if text is None else "1"))
        for series in self._present - present:
            self._append(self._values[series], STALE)
        self._present = present
        self.scrapes += 1

    def leave_out(self) -> None:
        """Record that nobody scraped: a gap without a staleness marker, as while Prometheus itself is away."""
        self.scrapes += 1

    def series(self, labels: Mapping[str, str] | None = None, apart: int = 1) -> Iterator[tuple[str, str]]:
        """Yield each series, with the target's or other ``labels``, and its values in promtool's notation.

        Args:
            labels: those of the target by default.
            apart: how many of promtool's intervals there are from one scrape to the next.
        """
        for series, values in self._values.items():
            words = self._notation(series, values) if apart == 1 else spread(values, apart)
            yield _with_labels(series, labels or self.labels), words

    def _notation(self, series: str, values: list[str]) -> str:
        known = self._written.get(series)
        if known is None or known[0] != len(values):
            known = self._written[series] = len(values), notation(values)
        return known[1]

    def _take_lines(self, text: str) -> Iterator[str]:
        known = self._known
        for line in text.splitlines():
            if line[0] == "#":
                continue
            series, _, value = line.rpartition(" ")
            if series not in known:
                known[series] = self._new(series)
            values = known[series]
            if values is not None:
                self._append(values, value)
                yield series

    def _take_one(self, series: str, value: str) -> Iterator[str]:
        self._append(self._values.setdefault(series, []), value)
        yield series

    def _new(self, series: str) -> list[str] | None:
        if series.partition("{")[0] not in self._wanted:
            return None
        return self._values.setdefault(series, [])

    def _append(self, values: list[str], value: str) -> None:
        values.extend([GAP] * (self.scrapes - len(values)))
        values.append(value)


def notation(values: list[str]) -> str:
    """Return values as promtool reads them, runs of equal ones together.

    >>> notation(["1", "1", "1", "_", "stale", "2.5"])
    '1x2 _ stale 2.5'
    """
    words: list[str] = []
    run = 0
    for index, value in enumerate(values):
        run += 1
        if index + 1 < len(values) and values[index + 1] == value:
            continue
        words.append(_run(value, run))
        run = 0
    return " ".join(words)


def spread(values: list[str], apart: int) -> str:
    """Return values that are further apart than promtool's interval, with gaps between them.

    >>> spread(["1", "2", "stale"], 3)
    '1 _x2 2 _x2 stale _x2'
    """
    return " ".join(f"{_run(value, 1)} {_run(GAP, apart - 1)}" for value in values)


class BatchRecording:
    """The series of ``/batches``, each sample at its own time, to the second."""

    def __init__(self, labels: Mapping[str, str], wanted: Collection[str]) -> None:
        self.labels = dict(labels)
        self._wanted = wanted
        self._values: dict[str, dict[int, str]] = {}

    def take(self, text: bytes | None) -> None:
        """Record a scrape; what was recorded before is served again and changes nothing."""
        for line in (text or b"").decode().splitlines():
            if line[0] == "#":
                continue
            series, value, seconds = line.rsplit(" ", 2)
            if series.partition("{")[0] in self._wanted and float(seconds) >= 0:
                self._values.setdefault(series, {})[math.ceil(float(seconds))] = value

    def series(self) -> Iterator[tuple[str, str]]:
        """Yield each series with its values in promtool's notation, at an interval of one second."""
        for series, values in self._values.items():
            whole = [values.get(second, GAP) for second in range(max(values) + 1)]
            yield _with_labels(series, self.labels), notation(whole)


def _run(value: str, times: int) -> str:
    if value == STALE:
        return " ".join([STALE] * times)
    if value == GAP:
        return GAP if times == 1 else f"{GAP}x{times}"
    return plain(value) if times == 1 else f"{plain(value)}x{times - 1}"


def plain(value: str) -> str:
    """Return a number without an exponent, which promtool's notation doesn't have."""
    return f"{float(value):f}" if "e" in value else value


def _with_labels(series: str, labels: Mapping[str, str]) -> str:
    name, _, own = series.partition("{")
    target = ",".join(f'{label}="{value}"' for label, value in labels.items())
    own = own.removesuffix("}")
    return f"{name}{{{own}{',' if own else ''}{target}}}"
