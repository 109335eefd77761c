from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from alerting_fakes import START, alert, training_incident

from pyrometer_alerting.channel.card import MOST_WORDS, card_of, headline, words
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model import harm
from pyrometer_alerting.model.incident import Cause, Cost, Diagnosis, Incident, Shape

BRAKE = Cause(
    "dgx-011",
    "power brake",
    since=START - 20,
    labels={"node": "dgx-011"},
    confidence="high",
    family="throttle",
    brief="all 8 GPUs held at 1320 MHz (the others 1939); the other ranks wait for it",
    runbook="GpuThrottledPowerBrake",
)
LEAD = Cause(
    "gpu-007 rank 3", "the other ranks wait for it", against=("ranks 0-7 wait 32.7 % of the step as well",),
    labels={"node": "gpu-007"}, confidence="low", family="rank",
)  # fmt: skip


def found(*causes: Cause, **more: Any) -> Diagnosis:
    return Diagnosis(START + 6, causes or (BRAKE,), **{"onset": START - 20, "slower": 0.27, "slowest": 0.31, **more})


def slow(*causes: Cause, **more: Any) -> Incident:
    return training_incident(diagnosis=found(*causes, **more))


def test_the_card_says_what_who_how_sure_and_what_to_do_now() -> None:
    card = card_of(slow(cost=Cost(1.4, 64, 0.45, START)), "slurm")
    assert card.header == "\U0001f534 llama-70b 27 % slower: dgx-011, power brake (certain)"
    assert card.body == (
        "All 8 GPUs held at 1320 MHz (the others 1939) since "
        f"<!date^{int(START - 20)}^{{date_short_pretty}} {{time_secs}} ({{ago}})|2026-11-21 22:26:20 UTC>; "
        "the other ranks wait for it. 1.4 GPU-hours lost."
    )
    assert card.now == (
        "`scontrol update NodeName=dgx-011 State=DRAIN Reason=power_brake`, restart the run without it after the next "
        "checkpoint; then its power supplies."
    )
    assert words("\n".join(card.lines)) <= MOST_WORDS


MEDIUM = replace(BRAKE, confidence="medium")
AWAITED = replace(LEAD, confidence="high", against=(), brief="ranks 0-7 wait least: 4.4 % of the step")
EVERYWHERE = Cause("no single part", "data loading", confidence="medium", family="data", runbook="Data loading")
HELD = training_incident().members[0]
HELD = replace(HELD, annotations={**HELD.annotations, "summary": "MFU of run llama-70b fell by 1 %"})


@pytest.mark.parametrize(
    ("incident", "header"),
    [
        (slow(MEDIUM), "\U0001f534 llama-70b 27 % slower: dgx-011, power brake (likely)"),
        (slow(AWAITED), "\U0001f534 llama-70b 27 % slower: gpu-007 rank 3 (certain), cause not proven"),
        (slow(EVERYWHERE), "\U0001f534 llama-70b 27 % slower: data loading (likely)"),
        (slow(Cause("unknown", ""), seen=(LEAD,)), "\U0001f534 llama-70b 27 % slower: cause not proven"),
        (training_incident(), "\U0001f534 llama-70b 27 % slower: looking for the cause"),
        (slow(slower=0.42), "\U0001f534 llama-70b 42 % slower: dgx-011, power brake (certain)"),
        (slow(slower=-0.001), "\U0001f7e0 llama-70b is back to its speed: dgx-011, power brake (certain)"),
        (slow(slower=0.01, slowest=0.01), "\U0001f534 llama-70b 27 % slower: dgx-011, power brake (certain)"),
        (slow(slower=0.01), "\U0001f7e0 llama-70b is back to its speed: dgx-011, power brake (certain)"),
        (
            replace(training_incident(), members=(HELD,)),
            "\U0001f534 llama-70b is back to its speed: looking for the cause",
        ),
        (
            replace(slow(), resolved_at=START + 300),
            "\u2705 Resolved: llama-70b was 31 % slower: dgx-011, power brake (certain)",
        ),
    ],
    ids=[
        "likely",
        "certain who, not why",
        "no single part",
        "unknown",
        "not looked yet",
        "worse",
        "over its best",
        "no batch has shown it yet",
        "recovered",
        "held",
        "over",
    ],
)
def test_the_header_is_of_now(incident: Incident, header: str) -> None:
    assert headline(incident) == header


def test_an_unknown_cause_names_the_best_lead_and_what_would_prove_it() -> None:
    body = card_of(slow(Cause("unknown", ""), seen=(LEAD,)), "slurm").body
    lead = "Best lead: gpu-007 rank 3, the other ranks wait for it; a fault of its GPU, host or port would prove it."
    assert lead in body


def test_who_is_waited_for_is_certain_and_why_is_not_proven() -> None:
    card = card_of(slow(AWAITED), "slurm")
    assert card.body.startswith("The other ranks wait for it, ranks 0-7 wait least: 4.4 % of the step since ")


def test_the_second_cause_is_named_where_the_first_is_not_certain() -> None:
    assert "Else gpu-007 rank 3, " in card_of(slow(MEDIUM, LEAD), "slurm").body
    assert "Else" not in card_of(slow(BRAKE, LEAD), "slurm").body


def test_a_dead_run_says_whether_it_died_before_and_how_old_its_checkpoint_is() -> None:
    died = alert(
        "TrainRunDied", labels={"run": "r", "component": "train", "node": "n1", "rank": "3"},
        annotations={"summary": "Run r died: rank 3 on n1 first"},
    )  # fmt: skip
    unknown = found(Cause("unknown", ""), slower=None, restart="first death, attempt 0, last checkpoint 0.7 h before")
    card = card_of(training_incident(alertname="TrainRunDied", members=(died,), run="r", diagnosis=unknown), "slurm")
    assert card.header == "\U0001f534 Run r died: rank 3 on n1 first"
    assert "First death, attempt 0, last checkpoint 0.7 h before." in card.body


def test_a_run_that_was_slow_and_died_is_dead_on_its_card() -> None:
    labels = {"run": "llama-70b", "component": "train", "node": "n1", "rank": "1"}
    died = alert("TrainRunDied", labels=labels, annotations={"summary": "Run llama-70b died: rank 1 on n1 first"})
    incident = slow(Cause("unknown", ""))
    card = card_of(replace(incident, members=(*incident.members, died)), "slurm")
    assert card.header == "\U0001f534 Run llama-70b died: rank 1 on n1 first"
    assert card.now.startswith("Read the last lines of the first rank's log")


def lost(use: str, **more: Any) -> Incident:
    gpu = alert(
        "GpuLost", labels={"node": "gpu-042", "gpu": "3", "component": "gpu"}, annotations={"summary": "GPU lost"}
    )
    opened = fold(None, [gpu], 0, START)
    assert opened is not None
    return replace(opened.incident, use=use, **more)


@pytest.mark.parametrize(
    ("use", "header"),
    [
        (harm.IDLE, "\U0001f7e0 GPU lost: gpu-042 GPU 3, no run is on it"),
        (harm.UNREPORTED, "\U0001f7e0 GPU lost: gpu-042 GPU 3, no reporting run known"),
        ("run llama-70b", "\U0001f534 GPU lost: gpu-042 GPU 3, run llama-70b is on it"),
        (harm.PROCESS, "\U0001f534 GPU lost: gpu-042 GPU 3, a process is on it"),
        ("", "\U0001f534 GPU lost: gpu-042 GPU 3"),
    ],
)
def test_the_colour_follows_the_harm(use: str, header: str) -> None:
    assert headline(lost(use)) == header


def test_a_joined_incident_is_as_severe_as_the_runs_own_trouble() -> None:
    straggler = alert("TrainStraggler", labels={"run": "r", "component": "train", "severity": "warning"})
    hot = alert("GpuThrottledThermal", fingerprint="f2", labels={"node": "n", "gpu": "0", "component": "gpu"})
    joined = training_incident(alertname="TrainStraggler", members=(straggler, hot), severity="critical")
    assert harm.urgency(joined) == "warning"
    assert harm.urgency(training_incident()) == "critical"
    over = replace(training_incident().members[0], firing=False, ends_at=START + 60, fingerprint="f3")
    assert harm.urgency(replace(joined, members=(*joined.members, over))) == "critical", "it was so in this incident"


@pytest.mark.parametrize(
    ("slower", "hours", "kind", "urgency"),
    [
        (0.08, 0.02, "step_down", "warning"),
        (0.08, 3.0, "step_down", "critical"),
        (0.27, 0.02, "step_down", "critical"),
        (0.0, 0.02, "stopped", "critical"),
    ],
)
def test_what_is_minor_and_cheap_wakes_nobody(slower: float, hours: float, kind: str, urgency: str) -> None:
    diagnosis = found(slower=slower, cost=Cost(hours, 8, 0.4, START), shape=Shape(kind, 1.0, "x"))
    assert harm.urgency(training_incident(diagnosis=diagnosis)) == urgency
