"""Shared by the cluster exporter's collectors are tested with: a clock, a Prometheus, and what a scrape found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_kit.prometheus import Series


class ManualClock:
    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Scraped:
    """One scrape: values by family name and labels, downs by part."""

    def __init__(self, found: list[Sample | Down]) -> None:
        self.samples = [item for item in found if isinstance(item, Sample)]
        self.values = {(item.family.name, *item.labels): item.value for item in self.samples}
        self.downs = {item.part: item.reason for item in found if isinstance(item, Down)}
        self.details = {item.part: item.detail for item in found if isinstance(item, Down)}


class CannedPrometheus:
    """Answers by the first text that the query contains; what nothing is said of is empty."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Series]] = {}
        self.error: PartError | None = None
        self.asked: list[str] = []

    def instant(self, query: str, at: float) -> list[Series]:
        self.asked.append(query)
        if self.error is not None:
            raise self.error
        return next((series for text, series in self.answers.items() if text in query), [])

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        return self.instant(query, end)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def prometheus() -> CannedPrometheus:
    return CannedPrometheus()


@pytest.fixture
def scraped() -> Callable[[list[Sample | Down]], Scraped]:
    return Scraped
