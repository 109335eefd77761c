"""Suspects from what hosts and ranks say: Xids, PCIe, port rates, kernel events, pressure, slow ranks, step parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from pyrometer_alerting.diagnosis.host_evidence import HostEvidence
from pyrometer_alerting.diagnosis.rank_evidence import WINDOW, RankEvidence
from pyrometer_alerting.diagnosis.suspects import Suspect
from pyrometer_alerting.model.text import percent

UNKNOWN_TIME = float("nan")
# A rank stands out when it waits this much less of its step than the median of its stage, and 4 robust sigmas less.
# 0.05: MegaScale's slow hosts were 10 % slower in their forward, which is about half that of the step.
LESS_WAIT = 0.05
FATAL_XIDS = frozenset({"48", "62", "64", "74", "79", "95", "119", "120"})  # NVIDIA's catalogue: reset or replace
MOST_HOSTS = 5  # of one kind; more is a common cause and no culprit

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


def from_hosts(found: HostEvidence, gpus: pd.DataFrame) -> list[Suspect]:
    """Suspects among the run's GPUs, ports and hosts."""
    places = set(zip(gpus.get("node", []), gpus.get("gpu", []), strict=True))
    return [*_xids(found, places), *_pcie(found, places), *_rates(found), *_events(found), *_pressure(found)]


def _xids(found: HostEvidence, places: set[tuple[str, str]]) -> list[Suspect]:
    suspects = []
    for row in _rows(found.xids):
        if (row["node"], row["gpu"]) not in places:
            continue
        fatal = row["xid"] in FATAL_XIDS
        said, base = f"{float(row['count']):.0f} times in the last minutes", 110.0 if fatal else 60.0
        suspect = _suspect(row, ("node", "gpu"), f"Xid {row['xid']}", base, evidence=said, kind="xid")
        if not fatal:
            suspect.against.append("not one of the Xids that take a GPU out of service")
        suspects.append(suspect)
    return suspects


def _pcie(found: HostEvidence, places: set[tuple[str, str]]) -> list[Suspect]:
    return [
        _suspect(
            row,
            ("node", "gpu"),
            "PCIe link narrower than it can be",
            65.0,
            evidence=f"{float(row['lanes']):.0f} lanes",
            kind="pcie",
        )
        for row in _rows(found.pcie)
        if (row["node"], row["gpu"]) in places
    ]


def _rates(found: HostEvidence) -> list[Suspect]:
    return [
        _suspect(
            row,
            ("node", "device", "port"),
            "link below its rate",
            65.0,
            evidence=f"runs at {percent(float(row['ratio']))} of its rate",
            kind="link",
        )
        for row in _rows(found.rates)[:MOST_HOSTS]
    ]


def _events(found: HostEvidence) -> list[Suspect]:
    suspects = []
    for row in _rows(found.events)[:MOST_HOSTS]:
        base, cause = _EVENTS.get(row["kind"], (40.0, f"kernel: {row['kind']}"))
        said = f"{float(row['count']):.0f} times in the kernel's log in the last minutes"
        suspects.append(_suspect(row, ("node",), cause, base, evidence=said, kind="host"))
    return suspects


def _pressure(found: HostEvidence) -> list[Suspect]:
    ordered = found.pressure.sort_values("now", ascending=False) if not found.pressure.empty else found.pressure
    suspects = []
    for row in _rows(ordered)[:MOST_HOSTS]:
        now, usual = float(row["now"]), float(row["usual"])
        before = float(row["before"])
        said = f"its tasks wait for {row['resource']} {percent(now)} of the time, {percent(usual)} on the median node"
        said += "" if math.isnan(before) else f", {percent(before)} before the drop"
        score = 40.0 + 40.0 * min(now, 1.0)
        suspects.append(_suspect(row, ("node",), f"{row['resource']} pressure", score, evidence=said, kind="host"))
    return suspects


def from_ranks(found: RankEvidence) -> list[Suspect]:
    """Suspects among the ranks: the one the others wait for, and parts of the step that have grown."""
    return [*_slow_rank(found.waits), *_grown_parts(found.parts, found.waits)]


def least_waiting(waits: pd.DataFrame) -> tuple[dict[str, str], float, float] | None:
    """The rank the others wait for, if one stands out: (node, gpu and rank, its waiting share, its stage's median)."""
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
    found = least_waiting(waits)
    if found is None:
        return []
    labels, wait, median = found
    said = f"rank {labels.pop('rank')} waits least: {percent(wait)} of its step, {percent(median)} the median rank"
    labels = {name: value for name, value in labels.items() if value}
    return [Suspect(labels, "the other ranks wait for it", 55.0, UNKNOWN_TIME, [said], kind="rank")]


def _grown_parts(parts: pd.DataFrame, waits: pd.DataFrame) -> list[Suspect]:
    suspects = []
    for row in _rows(parts):
        if row["part"] not in _PARTS:
            continue
        base, cause, kind = _PARTS[row["part"]]
        now, worst, before = (_number(row[name]) for name in ("now", "worst", "before"))
        if now - before > 0.05:  # of every step: beyond what a busy host shows
            said = f"takes {percent(now)} of the median rank's step, {percent(before)} before"
            suspects.append(Suspect({}, cause, base, UNKNOWN_TIME, [said], kind=kind))
        elif worst > max(3 * now, 0.05 + now):
            labels = _place(waits, row["rank"])
            said = f"takes {percent(worst)} of rank {row['rank']}'s step over {WINDOW}, {percent(now)} of the median's"
            suspects.append(Suspect(labels, cause, base, UNKNOWN_TIME, [said], kind=kind))
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
