"""The demo's verdict: it must not pass when the channel is silent, wrong or noisy."""

from __future__ import annotations

from typing import Any

import pytest

from pyrometer_simulator.demo import verdict
from pyrometer_simulator.demo.verdict import Finding, Report

GOOD = {
    "batches_stored": 239.0,
    "batches_missing": 0.0,
    "steps_taken": 240.0,
    "out_of_order_samples": 0.0,
    "thermal_slowdown_200ms_seconds": 0.2,
    "link_down_events": 3.0,
}


def _message(alertname: str, text: str, *blocks: str) -> dict[str, Any]:
    shown = [{"type": "section", "text": {"type": "mrkdwn", "text": block}} for block in blocks]
    return {"alertnames": set(alertname.split()), "text": text, "blocks": shown}


HANG = _message("NcclHang", "hang")
EXPECTED = [_message("NicLinkFlapping", "flap"), _message("GpuThrottledThermal TrainMfuDropped", "heat and drop"), HANG]


def _finding(alertname: str = "GpuThrottledThermal") -> Finding:
    return Finding(alertname, "gpu-003 GPU 5", "heat", fault_at=0.0)


def _report(finding: Finding, **measured: float | None) -> Report:
    return Report(findings=[finding], measured={**GOOD, **measured})


def _seen() -> Finding:
    finding = _finding()
    finding.named_at, finding.resolved_at, finding.named_when_resolved = 5.0, 90.0, True
    return finding


def test_a_message_that_names_the_culprit_and_is_resolved_counts() -> None:
    finding = _finding()
    verdict.look_for(finding, [_message("GpuThrottledThermal", "hot", "gpu-003 GPU 5 is slowed down by heat")])
    assert finding.named_at is not None
    assert finding.resolved_at is None
    verdict.look_for(finding, [_message("GpuThrottledThermal", "✅ Resolved: gpu-003 GPU 5 is slowed down by heat")])
    assert finding.resolved_at is not None
    assert finding.named_when_resolved is True


def test_a_message_of_another_alert_does_not_count() -> None:
    finding = _finding()
    verdict.look_for(finding, [_message("NicLinkFlapping", "gpu-003 GPU 5")])
    assert finding.named_at is None


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("r 39 % slower: gpu-003 GPU 5, hardware thermal throttling (certain)", True),
        ("r 39 % slower: gpu-006 mlx5_3/1, link flapping (certain)", False),
        ("gpu-003 GPU 5 is slowed down by heat: run r is on it", False),
    ],
)
def test_an_mfu_drop_names_its_culprit_in_its_header(header: str, *, named: bool) -> None:
    message = _message("TrainMfuDropped", header, "Else gpu-003 GPU 5, hot.")
    assert verdict.names(message, _finding("TrainMfuDropped")) is named


def test_nothing_wrong_is_no_problem() -> None:
    assert verdict.problems_of(_report(_seen()), EXPECTED, flaps=3) == []


@pytest.mark.parametrize(
    ("alertnames", "said"),
    [
        (["NicLinkFlapping", "GpuThrottledThermal", "TrainMfuDropped"], "4 messages for 3 faults"),
        (["NicLinkFlapping", "TrainMfuDropped"], "the hot GPU and the MFU drop that it caused are not one message"),
        (["NicLinkFlapping TrainMfuDropped", "GpuThrottledThermal"], "the link flap and the MFU drop are one message"),
    ],
)
def test_cause_and_effect_must_be_one_message_and_strangers_two(alertnames: list[str], said: str) -> None:
    messages = [HANG, *(_message(name, "x") for name in alertnames)]
    assert said in verdict.problems_of(_report(_seen()), messages, flaps=3)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({"batches_stored": 200.0}, "200.0 batches stored"),
        ({"batches_stored": 235.0}, "235.0 batches stored"),
        ({"batches_stored": None}, "None batches stored"),
        ({"batches_missing": 1.0}, "1.0 batches of a minute are missing"),
        ({"batches_missing": None}, "None batches of a minute are missing"),
        ({"batches_stored": 200.0, "out_of_order_samples": 78.0}, "200.0 batches stored"),
        ({"out_of_order_samples": None}, "is unknown"),
        ({"thermal_slowdown_200ms_seconds": 0.0}, "shows as 0.0 s"),
        ({"link_down_events": 2.0}, "show as 2.0"),
    ],
)
def test_a_number_that_is_off_is_a_problem(measured: dict[str, float | None], said: str) -> None:
    problems = verdict.problems_of(_report(_seen(), **measured), EXPECTED, flaps=3)
    assert len(problems) == 1
    assert said in problems[0]


def test_an_answer_that_was_sent_twice_is_no_problem_while_every_batch_is_there() -> None:
    assert verdict.problems_of(_report(_seen(), out_of_order_samples=78.0), EXPECTED, flaps=3) == []


def test_silence_is_a_problem() -> None:
    assert verdict.problems_of(_report(_finding()), EXPECTED, flaps=3) == [
        "GpuThrottledThermal: no message named gpu-003 GPU 5"
    ]


def test_an_incident_that_stays_open_or_forgets_its_culprit_is_a_problem() -> None:
    finding = _seen()
    finding.resolved_at = None
    assert "was not resolved" in verdict.problems_of(_report(finding), EXPECTED, flaps=3)[0]
    finding = _seen()
    finding.named_when_resolved = False
    assert "resolved without gpu-003 GPU 5" in verdict.problems_of(_report(finding), EXPECTED, flaps=3)[0]


def test_a_message_that_nothing_explains_is_a_problem() -> None:
    noise = _message("NodeExporterDown", "No data from gpu-001\nmore")
    assert verdict.problems_of(_report(_seen()), [*EXPECTED, noise], flaps=3) == [
        "4 messages for 3 faults",
        "a message that nothing explains: No data from gpu-001",
    ]


def test_messages_get_their_alert_from_the_incident_they_carry() -> None:
    message = {"text": "x", "metadata": {"event_payload": {"incident_id": "i1"}}}
    flap = {"labels": {"alertname": "NicLinkFlapping"}}
    found = verdict.about_incidents([message, {"text": "y"}], [{"id": "i1", "alerts": [flap]}])
    assert [each["alertnames"] for each in found] == [{"NicLinkFlapping"}, set()]


def test_a_digest_that_is_due_meanwhile_is_no_problem() -> None:
    payload = {"op_id": "1", "incident_id": "digest-daily-1795424400"}
    assert verdict.about_incidents([{"text": "Daily digest", "metadata": {"event_payload": payload}}], []) == []


def test_a_message_of_no_known_incident_is_the_scenarios() -> None:
    assert verdict.unexpected(verdict.about_incidents([{"text": "?"}], [])) == ["?"]


class _Answers:
    """Prometheus as far as the verdict asks it: scrapes of the step counter, and batches."""

    def __init__(self, scrapes: list[tuple[float, float]], batches: list[float]) -> None:
        self.scrapes = scrapes
        # Four steps a second: each has its number.
        self.batches = [(when, round(4 * when)) for when in batches]

    def value(self, query: str, at: float | None = None) -> float | None:
        return 0.0

    def samples(self, selector: str, at: float) -> list[tuple[float, float]]:
        return self.batches if "batch" in selector else self.scrapes


def test_batches_are_counted_between_the_scrapes_that_counted_the_steps() -> None:
    steps = [40.1 + 0.25 * number for number in range(240)]
    prometheus: Any = _Answers([(44.0, 16.0), (99.0, 236.0)], steps)
    measured = verdict.batches_measured(prometheus, "r", 100)
    assert (measured["batches_stored"], measured["steps_taken"], measured["batches_missing"]) == (220, 220, 0)


def test_a_lost_batch_shows() -> None:
    prometheus: Any = _Answers([(44.0, 16.0), (46.0, 24.0)], [44.25, 44.5, 45.0, 45.25, 45.5, 45.75, 46.0])
    measured = verdict.batches_measured(prometheus, "r", 100)
    assert (measured["batches_stored"], measured["batches_missing"]) == (7, 1)


def test_a_silent_prometheus_is_unknown_and_not_zero() -> None:
    measured = verdict.batches_measured(_Answers([], []), "r", 100)  # type: ignore[arg-type]
    assert measured["batches_stored"] is None
    assert measured["steps_taken"] is None
    assert measured["batches_missing"] is None
