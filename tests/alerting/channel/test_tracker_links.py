"""Links to the run's pages in trackers, in the message; from Prometheus, which has them from the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyrometer_alerting.diagnosis.investigation import run_links
from pyrometer_alerting.model.incident import Diagnosis, Incident
from pyrometer_alerting.model.links import tracker_links
from pyrometer_kit.prometheus import PrometheusError, Series

INCIDENT = Incident("i", "k", "c", "TrainMfuDropped", "llama", "critical", "train", 0.0, 0.0)


class Answers:
    """A Prometheus with these series."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self.asked: list[str] = []
        self._found = [Series(each, ((1.0, 1.0),)) for each in labels]

    def instant(self, query: str, _at: float) -> list[Series]:
        self.asked.append(query)
        return self._found


class Down:
    """A Prometheus that doesn't answer."""

    def instant(self, _query: str, _at: float) -> list[Series]:
        raise PrometheusError("no answer")


def with_links(*links: tuple[str, str]) -> Incident:
    return replace(INCIDENT, diagnosis=Diagnosis(1.0, run_links=links))


def test_the_message_names_the_tracker() -> None:
    found = tracker_links(with_links(("wandb", "https://wandb.ai/a/b"), ("notes", "http://wiki/x")))
    assert found == [("W&amp;B", "https://wandb.ai/a/b"), ("notes", "http://wiki/x")]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://a/|b>", "", "https://a/" + "x" * 2000])
def test_what_is_no_web_address_is_left_out(url: str) -> None:
    assert tracker_links(with_links(("wandb", url))) == []


def test_without_a_diagnosis_there_are_none() -> None:
    assert tracker_links(INCIDENT) == []


def test_the_latest_attempts_pages_count() -> None:
    prometheus = Answers(
        {"attempt": "10", "name": "wandb", "url": "https://new"},
        {"attempt": "9", "name": "wandb", "url": "https://old"},
    )
    assert run_links(prometheus, "c", 'ru"n', 5.0) == (("wandb", "https://new"),)  # type: ignore[arg-type]
    assert 'run="ru\\"n"' in prometheus.asked[0]


def test_a_prometheus_that_is_down_costs_the_links_only() -> None:
    assert run_links(Down(), "c", "r", 5.0) == ()  # type: ignore[arg-type]


def test_they_survive_the_store() -> None:
    from pyrometer_alerting.model.incident import from_json, to_json

    incident = with_links(("wandb", "https://wandb.ai/a/b"))
    assert from_json(to_json(incident)) == incident
