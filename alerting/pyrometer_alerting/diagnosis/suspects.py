"""Suspects: causes while their scores are weighed, and the suspects that hosts and ranks point to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from pyrometer_alerting.diagnosis.host_evidence import WINDOW, HostEvidence, RankEvidence
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Cause, Shape, part_of
from pyrometer_alerting.model.text import duration, percent

LATE_SECONDS = 15.0  # three scrapes of 5 s: a cause that began later than that did not start the drop
QUIET_SECONDS = 3.0
EARLY_SECONDS = 300.0
STOPPED_SECONDS = 45.0  # three scrapes of 15 s without another increment


@dataclass
class Suspect:
    """A possible cause; `kind` is its family: throttle, link, xid, pcie, clock, rank, gc, data, checkpoint or host."""

    labels: dict[str, str]
    cause: str
    score: float
    onset: float
    evidence: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    last: float | None = None  # when it was last seen
    pause: float = STOPPED_SECONDS
    kind: str = ""

    def doubt(self, factor: float, reason: str) -> None:
        """Lower its score and record the reason."""
        self.score *= factor
        self.against.append(reason)

    def confirm(self, factor: float, reason: str) -> None:
        """Raise its score and record the reason."""
        self.score *= factor
        self.evidence.append(reason)

    def to_cause(self) -> Cause:
        """Return the cause as it is shown; without labels it names no single part."""
        return Cause(
            part=part_of(self.labels) or NO_SINGLE_PART,
            cause=self.cause,
            evidence=tuple(self.evidence),
            against=tuple(self.against),
            since=self.onset,
            score=round(self.score, 1),
            labels=self.labels or None,
        )


def weigh_time(suspect: Suspect, onset: float, now: float) -> None:
    """Weigh its time: a cause starts with or shortly before its effect, and continues with it."""
    if math.isnan(suspect.onset):
        return
    lag = suspect.onset - onset
    if lag > LATE_SECONDS:
        suspect.doubt(0.35, f"began {duration(lag)} after the drop")
    elif suspect.last is not None and onset - suspect.last > LATE_SECONDS:
        suspect.doubt(0.25, f"ended {duration(onset - suspect.last)} before the drop")
    elif suspect.last is not None and onset - suspect.last > QUIET_SECONDS:
        suspect.doubt(0.95, f"not seen again since {duration(onset - suspect.last)} before the drop")
    elif lag < -EARLY_SECONDS:
        suspect.doubt(0.6, f"began {duration(-lag)} before the drop")
    else:
        suspect.score *= 1.2
    if suspect.last is not None and now - suspect.last > suspect.pause:
        suspect.doubt(0.4, f"stopped {duration(now - suspect.last)} ago")


# Which families of trouble produce such a curve, and which do not (the table of causes in Imbue's 70B report; MegaScale
# for garbage collection; SmolLM3 for storage). Families in neither table are left unchanged.
_SPEAKS_FOR: dict[str, frozenset[str]] = {
    "tenth_from_start": frozenset({"link", "pcie"}),
    "third_from_start": frozenset({"pcie", "link"}),
    "low_from_start": frozenset({"link", "pcie", "clock", "throttle", "host", "rank"}),
    "regular_stalls": frozenset({"checkpoint"}),
    "rare_stalls": frozenset({"host", "data", "link"}),
    "stall_burst": frozenset({"link"}),
    "gradual_decline": frozenset({"gc"}),
    "frequent_dips": frozenset({"throttle", "link"}),
    "noisy": frozenset({"link", "gc"}),
    "step_down": frozenset({"throttle", "clock", "pcie", "link", "rank", "host"}),
    "spell": frozenset({"throttle", "clock", "link", "rank", "host", "data"}),
    "stopped": frozenset({"xid", "link"}),
}
_SPEAKS_AGAINST: dict[str, frozenset[str]] = {
    "tenth_from_start": frozenset({"throttle", "gc", "data", "checkpoint"}),
    "third_from_start": frozenset({"throttle", "gc", "checkpoint"}),
    "low_from_start": frozenset({"gc", "checkpoint"}),
    "regular_stalls": frozenset({"throttle", "clock", "pcie"}),
    "rare_stalls": frozenset({"clock", "pcie", "gc"}),
    "stall_burst": frozenset({"gc", "clock", "pcie"}),
    "gradual_decline": frozenset({"checkpoint", "pcie"}),
    "frequent_dips": frozenset({"checkpoint", "pcie"}),
    "noisy": frozenset({"clock", "pcie", "checkpoint"}),
    "step_down": frozenset({"gc", "checkpoint"}),
    "spell": frozenset({"gc"}),
    "stopped": frozenset({"throttle", "gc", "clock"}),
}


def weigh_shape(suspect: Suspect, shape: Shape | None) -> None:
    """Weigh it by whether such a trouble produces the curve, as far as the curve's kind is certain."""
    if shape is None or shape.kind in ("unknown", "steady", "daily_wave"):
        return
    kind = shape.kind.replace("_", " ")
    if suspect.kind in _SPEAKS_FOR.get(shape.kind, frozenset()):
        suspect.score *= 1 + 0.15 * shape.confidence
    elif suspect.kind in _SPEAKS_AGAINST.get(shape.kind, frozenset()):
        # By a quarter at most: measurements on a part count more than the shape of a curve.
        suspect.doubt(1 - 0.25 * shape.confidence, f"the MFU curve ({kind}) is not what this causes")


UNKNOWN_TIME = float("nan")
# A rank stands out when its waiting share is this much below the median of its stage, and 4 robust sigmas below. 0.05:
# MegaScale's slow hosts were 10 % slower in their forward pass, about half of that in the step.
LESS_WAIT = 0.05
FATAL_XIDS = frozenset({"48", "62", "64", "74", "79", "95", "119", "120"})  # NVIDIA's catalogue: reset or replace
MOST_HOSTS = 5  # of one kind; more have a common cause

_EVENTS = {
    "oom_kill": (70.0, "the kernel killed a process for memory"),
    "machine_check": (75.0, "machine check (CPU or memory hardware)"),
    "pcie_aer": (60.0, "PCIe errors"),
    "sxid": (85.0, "NVSwitch error (SXid)"),
    "nvme": (50.0, "NVMe errors"),
    "soft_lockup": (70.0, "CPU soft lockup"),
}
_PARTS = {
    "data": (60.0, "data loading", "data"),
    "gc": (55.0, "garbage collection", "gc"),
    "checkpoint": (50.0, "saving a checkpoint", "checkpoint"),
    "eval": (45.0, "evaluation", "checkpoint"),
}


def suspects_from_hosts(evidence: HostEvidence, gpus: pd.DataFrame) -> list[Suspect]:
    """Return suspects among the run's GPUs, ports and hosts."""
    places = set(zip(gpus.get("node", []), gpus.get("gpu", []), strict=True))
    return [
        *_xids(evidence, places),
        *_pcie(evidence, places),
        *_rates(evidence),
        *_events(evidence),
        *_pressure(evidence),
    ]


def _xids(evidence: HostEvidence, places: set[tuple[str, str]]) -> list[Suspect]:
    suspects = []
    for row in _rows(evidence.xids):
        if (row["node"], row["gpu"]) not in places:
            continue
        fatal = row["xid"] in FATAL_XIDS
        note, base = f"{float(row['count']):.0f} times in the last minutes", 110.0 if fatal else 60.0
        suspect = _suspect(row, ("node", "gpu"), f"Xid {row['xid']}", base, evidence=note, kind="xid")
        if not fatal:
            suspect.against.append("not one of the Xids that take a GPU out of service")
        suspects.append(suspect)
    return suspects


def _pcie(evidence: HostEvidence, places: set[tuple[str, str]]) -> list[Suspect]:
    return [
        _suspect(
            row,
            ("node", "gpu"),
            "PCIe link narrower than it can be",
            65.0,
            evidence=f"{float(row['lanes']):.0f} lanes",
            kind="pcie",
        )
        for row in _rows(evidence.pcie)
        if (row["node"], row["gpu"]) in places
    ]


def _rates(evidence: HostEvidence) -> list[Suspect]:
    return [
        _suspect(
            row,
            ("node", "device", "port"),
            "link below its rate",
            65.0,
            evidence=f"runs at {percent(float(row['ratio']))} of its rate",
            kind="link",
        )
        for row in _rows(evidence.rates)[:MOST_HOSTS]
    ]


def _events(evidence: HostEvidence) -> list[Suspect]:
    suspects = []
    for row in _rows(evidence.events)[:MOST_HOSTS]:
        base, cause = _EVENTS.get(row["kind"], (40.0, f"kernel: {row['kind']}"))
        note = f"{float(row['count']):.0f} times in the kernel log in the last minutes"
        suspects.append(_suspect(row, ("node",), cause, base, evidence=note, kind="host"))
    return suspects


def _pressure(evidence: HostEvidence) -> list[Suspect]:
    ordered = (
        evidence.pressure.sort_values("now", ascending=False) if not evidence.pressure.empty else evidence.pressure
    )
    suspects = []
    for row in _rows(ordered)[:MOST_HOSTS]:
        now, usual = float(row["now"]), float(row["usual"])
        before = float(row["before"])
        note = f"its tasks wait for {row['resource']} {percent(now)} of the time, {percent(usual)} on the median node"
        note += "" if math.isnan(before) else f", {percent(before)} before the drop"
        score = 40.0 + 40.0 * min(now, 1.0)
        suspects.append(_suspect(row, ("node",), f"{row['resource']} pressure", score, evidence=note, kind="host"))
    return suspects


def suspects_from_ranks(evidence: RankEvidence) -> list[Suspect]:
    """Return suspects among the ranks: the one the others wait for, and parts of the step that have grown."""
    return [*_slow_rank(evidence.waits), *_grown_parts(evidence.parts, evidence.waits)]


def least_waiting(waits: pd.DataFrame) -> tuple[dict[str, str], float, float] | None:
    """Return the rank that the others wait for, if one stands out.

    As (node, gpu and rank; its waiting share; its stage's median).
    """
    if len(waits) < 4:
        return None
    stages = waits.groupby("stage")["wait"]
    median = stages.transform("median")
    spread = 1.4826 * (waits["wait"] - median).abs().groupby(waits["stage"]).transform("median")
    lead = median - waits["wait"]
    place = int(lead.to_numpy().argmax())
    if lead.iloc[place] < max(LESS_WAIT, 4 * float(spread.iloc[place])):
        return None
    row = waits.iloc[place]
    return {key: str(row[key]) for key in ("node", "gpu", "rank")}, float(row["wait"]), float(median.iloc[place])


def _slow_rank(waits: pd.DataFrame) -> list[Suspect]:
    slowest = least_waiting(waits)
    if slowest is None:
        return []
    labels, wait, median = slowest
    note = f"rank {labels.pop('rank')} waits least: {percent(wait)} of its step, {percent(median)} the median rank"
    labels = {name: value for name, value in labels.items() if value}
    return [Suspect(labels, "the other ranks wait for it", 55.0, UNKNOWN_TIME, [note], kind="rank")]


def _grown_parts(parts: pd.DataFrame, waits: pd.DataFrame) -> list[Suspect]:
    suspects = []
    for row in _rows(parts):
        if row["part"] not in _PARTS:
            continue
        base, cause, kind = _PARTS[row["part"]]
        now, worst, before = (_number(row[name]) for name in ("now", "worst", "before"))
        if now - before > 0.05:  # of every step: more than a busy host shows
            note = f"takes {percent(now)} of the median rank's step, {percent(before)} before"
            suspects.append(Suspect({}, cause, base, UNKNOWN_TIME, [note], kind=kind))
        elif worst > max(3 * now, 0.05 + now):
            labels = _place(waits, row["rank"])
            note = f"takes {percent(worst)} of rank {row['rank']}'s step over {WINDOW}, {percent(now)} of the median's"
            suspects.append(Suspect(labels, cause, base, UNKNOWN_TIME, [note], kind=kind))
    return suspects


def _place(waits: pd.DataFrame, rank: str) -> dict[str, str]:
    mine = waits[waits["rank"] == rank] if not waits.empty else waits
    return {"node": str(mine["node"].iloc[0]), "rank": rank} if len(mine) else {}


def _number(value: str) -> float:
    number = float(value)
    return 0.0 if math.isnan(number) else number  # nothing was measured then


def _suspect(
    row: Mapping[str, str], keys: Sequence[str], cause: str, base: float, *, evidence: str, kind: str
) -> Suspect:
    labels = {key: row[key] for key in keys if row[key]}
    return Suspect(labels, cause, base, UNKNOWN_TIME, [evidence], kind=kind)


def _rows(frame: pd.DataFrame) -> list[dict[str, str]]:
    return [{str(name): str(value) for name, value in row.items()} for row in frame.to_dict("records")]
