"""Did the channel say what happened? Each fault against the message it should have caused, and the numbers."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from pyrometer_simulator.demo.observe import Prometheus, shown_text
from pyrometer_simulator.demo.scenario import EXPECTED, FLAPPING_DEVICE, FLAPPING_NODE, PULSE_GPU, PULSE_NODE


@dataclass
class Finding:
    """One expected incident: when the channel first showed it with its culprit, and when it was resolved."""

    alertname: str
    culprit: str
    fault: str
    fault_at: float
    named_at: float | None = None
    resolved_at: float | None = None
    named_when_resolved: bool | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds from the fault to the message that names the culprit."""
        return None if self.named_at is None else self.named_at - self.fault_at


@dataclass
class Report:
    """The result of the scenario; ``problems`` is empty if all of it was right."""

    findings: list[Finding] = field(default_factory=list)
    measured: dict[str, float | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it for a file: findings with their seconds, measured values, problems."""
        found = [asdict(finding) | {"seconds": finding.seconds} for finding in self.findings]
        return {"findings": found, "measured": self.measured, "problems": self.problems}


def look_for(finding: Finding, messages: list[dict[str, Any]]) -> None:
    """Update a finding from the channel's messages as they arrive."""
    for message in messages:
        if finding.alertname not in message["alertnames"]:
            continue
        if finding.named_at is None and names(message, finding):
            finding.named_at = time.time()
        if finding.named_at is not None and finding.resolved_at is None and "resolved" in message["text"].lower():
            finding.resolved_at = time.time()
            finding.named_when_resolved = names(message, finding)


def names(message: dict[str, Any], finding: Finding) -> bool:
    """Return whether a message names the culprit: for an MFU drop in its header, else anywhere."""
    if finding.alertname == "TrainMfuDropped":
        return finding.culprit in _first_line(message) and "slower" in _first_line(message)
    return finding.culprit in shown_text(message)


def unexpected(messages: list[dict[str, Any]]) -> list[str]:
    """Return the first lines of messages that no fault of the scenario explains."""
    known = {expected.alertname for expected in EXPECTED}
    return [_first_line(message) for message in messages if not known & message["alertnames"]]


def apart(messages: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the grouping: cause and effect must share a message, unrelated faults must not."""
    faults = {expected.fault for expected in EXPECTED}
    found = [f"{len(messages)} messages for {len(faults)} faults"] if len(messages) != len(faults) else []
    if any({"NicLinkFlapping", "TrainMfuDropped"} <= message["alertnames"] for message in messages):
        found.append("the link flap and the MFU drop are one message")
    if not any({"GpuThrottledThermal", "TrainMfuDropped"} <= message["alertnames"] for message in messages):
        found.append("the hot GPU and the MFU drop that it caused are not one message")
    return found


def about_incidents(messages: list[dict[str, Any]], incidents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages, each with the alerts of the incident that its metadata names; no digest."""
    alertnames = {
        incident["id"]: {alert["labels"]["alertname"] for alert in incident["alerts"]} for incident in incidents
    }
    return [
        message | {"alertnames": alertnames.get(_incident_id(message), set())}
        for message in messages
        if not _incident_id(message).startswith("digest-")
    ]


def headline(finding: Finding, messages: list[dict[str, Any]]) -> str:
    """Return the first line of the message about a finding."""
    return next((_first_line(message) for message in messages if finding.alertname in message["alertnames"]), "")


def expected_findings(fault: str, at: float) -> list[Finding]:
    """Return a finding for each incident that a fault at the time ``at`` must cause."""
    return [
        Finding(expected.alertname, expected.culprit, fault, at) for expected in EXPECTED if expected.fault == fault
    ]


def batches_measured(prometheus: Prometheus, run: str, at: float) -> dict[str, float | None]:
    """Count batches and steps in the minute before ``at``, and samples refused as out of order since the start.

    Missing batches are gaps in the numbers of the steps that are stored, which no delay of a scrape can make.
    Steps and batches are counted exactly, between the first and the last scrape of that minute; `increase`, which is
    beside them, extrapolates from these scrapes to the ends of the minute and can be off by a step for it.
    """
    batches = f'pyrometer_train_batch_mfu_ratio{{run="{run}"}}[1m]'
    steps = f'pyrometer_train_steps_total{{run="{run}",rank="0"}}[1m]'
    scrapes = prometheus.samples(steps, at)
    stored = taken = None
    if len(scrapes) > 1:
        (first, before), (last, after) = scrapes[0], scrapes[-1]
        taken = after - before
        stored = float(sum(first < when <= last for when, _ in prometheus.samples(batches, at)))
    numbers = {int(value) for _, value in prometheus.samples(f'pyrometer_train_batch_step{{run="{run}"}}[1m]', at)}
    return {
        "batches_stored": stored,
        "batches_missing": float(max(numbers) - min(numbers) + 1 - len(numbers)) if numbers else None,
        "steps_taken": taken,
        "batches_count_over_time_1m": prometheus.value(f"count_over_time({batches})", at),
        "steps_increase_1m": prometheus.value(f"increase({steps})", at),
        "out_of_order_samples": prometheus.value("prometheus_target_scrapes_sample_out_of_order_total"),
        "duplicate_samples": prometheus.value("prometheus_target_scrapes_sample_duplicate_timestamp_total"),
    }


def short_events_measured(prometheus: Prometheus) -> dict[str, float | None]:
    """Return what the counters show afterwards of the 200 ms thermal slowdown and of the one-second link flaps."""
    pulse = f'node="{PULSE_NODE}",gpu="{PULSE_GPU}",reason="hw_thermal"'
    link = f'node="{FLAPPING_NODE}",device="{FLAPPING_DEVICE}"'
    return {
        "thermal_slowdown_200ms_seconds": prometheus.value(f"pyrometer_gpu_clock_event_seconds_total{{{pulse}}}"),
        "link_down_events": prometheus.value(f"pyrometer_nic_link_down_events_total{{{link}}}"),
    }


def problems_of(report: Report, messages: list[dict[str, Any]], flaps: int) -> list[str]:
    """Return one line for everything that wasn't as it should be."""
    found = [f"{f.alertname}: no message named {f.culprit}" for f in report.findings if f.named_at is None]
    found += [f"{f.alertname} was not resolved" for f in report.findings if f.named_at and f.resolved_at is None]
    found += [f"{f.alertname}: resolved without {f.culprit}" for f in report.findings if f.named_when_resolved is False]
    found += apart(messages)
    found += [f"a message that nothing explains: {text}" for text in unexpected(messages)]
    stored, taken = report.measured.get("batches_stored"), report.measured.get("steps_taken")
    # A scrape that a busy machine answers late counts steps that end after its time: 2 %, half a second's at 4 steps/s.
    if stored is None or taken is None or abs(stored - taken) > max(1, 0.02 * taken):
        found.append(f"{stored} batches stored in a minute in which {taken} steps were taken")
    if report.measured.get("batches_missing") != 0:
        found.append(f"{report.measured.get('batches_missing')} batches of a minute are missing")
    # A number of them is no problem: where a client closes its connection after an answer, the exporter can't know
    # whether it was taken, and sends it again. Go does so on a busy machine, when a request's write is reported late.
    if report.measured.get("out_of_order_samples") is None:
        found.append("whether samples were refused as out of order is unknown")
    pulse = report.measured.get("thermal_slowdown_200ms_seconds")
    if pulse is None or not 0.15 <= pulse <= 0.3:
        found.append(f"a thermal slowdown of 0.2 s shows as {pulse} s in the counter")
    if report.measured.get("link_down_events") != flaps:
        found.append(f"{flaps} link flaps show as {report.measured.get('link_down_events')} in the counter")
    return found


def _first_line(message: dict[str, Any]) -> str:
    return next(iter(str(message["text"]).splitlines()), "")


def _incident_id(message: dict[str, Any]) -> str:
    return str(_payload(message).get("incident_id", ""))


def _payload(message: dict[str, Any]) -> dict[str, Any]:
    return (message.get("metadata") or {}).get("event_payload") or {}
