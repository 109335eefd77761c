"""What is shown of the ports: samples are made anew only of what is new.

A port's samples come in parts: one for each group of counters, one for its link.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from pyrometer_exporters.framework.metrics import Sample

S = TypeVar("S")


class Part(NamedTuple, Generic[S]):
    """``state`` is what the samples were made from."""

    state: S
    samples: list[Sample]


# What the samples of a part are, of its state; given also its part of the scrape before, if there is one.
Make = Callable[[S, "Part[S] | None"], list[Sample]]


class Parts:
    """The parts of a port or a device, by kind, made anew only where their state is another one."""

    def __init__(self, before: Mapping[Hashable, Part[Any]]) -> None:
        self._before = before
        self.by_kind: dict[Hashable, Part[Any]] = {}

    def add(self, kind: Hashable, state: S, make: Make[S]) -> None:
        """A part: what ``make`` gives, or gave when ``state`` was the same or an equal tuple."""
        part = self._before.get(kind)
        if part is None or not (part.state is state or part.state == state):
            part = Part(state, make(state, part))
        self.by_kind[kind] = part


class _Shown:
    """A port or a device as it was shown; one object for as long as its state is the same."""

    __slots__ = ("era", "parts", "state")

    def __init__(self, era: object, state: object, parts: Mapping[Hashable, Part[Any]]) -> None:
        self.era, self.state, self.parts = era, state, parts


class Shown:
    """What the scrape before showed, and this one."""

    def __init__(self) -> None:
        self._before: dict[Hashable, _Shown] = {}
        self._now: dict[Hashable, _Shown] = {}

    def begin(self) -> None:
        """A scrape begins: what the one before did not show is forgotten."""
        self._before, self._now = self._now, {}

    def show(self, of: Hashable, era: object, state: object, add: Callable[[Parts], None]) -> None:
        """A port or a device: the parts that ``add`` adds, or added when ``era`` and ``state`` were equal.

        Of another era all parts are made anew.
        """
        shown = self._before.get(of)
        if shown is not None and shown.era != era:
            shown = None
        if shown is None or shown.state != state:
            parts = Parts({} if shown is None else shown.parts)
            add(parts)
            shown = _Shown(era, state, parts.by_kind)
        self._now[of] = shown

    def samples(self) -> Iterator[Sample]:
        """All that was shown in this scrape, parts of one kind together."""
        kinds: dict[Hashable, list[list[Sample]]] = {}
        for shown in self._now.values():
            for kind, part in shown.parts.items():
                kinds.setdefault(kind, []).append(part.samples)
        for parts in kinds.values():
            yield from chain.from_iterable(parts)
