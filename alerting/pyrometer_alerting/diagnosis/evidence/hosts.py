"""Facts about hosts: Xids, PCIe links, the kernel's events, pressure, maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyrometer_alerting.diagnosis.look import (
    MOST_SUSPECTS,
    Kind,
    Look,
    Query,
    Questions,
    Subject,
    crossing,
    dated,
    increments,
    middle,
    share_before,
    slopes,
    times,
)
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import percent
from pyrometer_kit.prometheus import Series
from pyrometer_kit.promql import matching, quoted

# NVIDIA's catalogue: reset or replace.
FATAL_XIDS: Mapping[str, str] = {
    "48": "uncorrectable memory error",
    "62": "the GPU's microcontroller halted",
    "64": "a faulty memory row could not be remapped",
    "74": "NVLink error",
    "79": "the GPU has fallen off the bus",
    "95": "uncontained memory error",
    "119": "the GPU's system processor does not answer",
    "120": "the GPU's system processor failed",
}
PRESSURE_SECONDS = 60
# node_exporter, from /proc/pressure: seconds in which some task had to wait for the resource.
PRESSURES = {
    "CPU": "node_pressure_cpu_waiting_seconds_total",
    "memory": "node_pressure_memory_waiting_seconds_total",
    "disk and network storage": "node_pressure_io_waiting_seconds_total",
}
HIGH_PRESSURE, MORE_PRESSURE = 0.1, 0.08


def xids(questions: Questions) -> Look:
    """Return the Xids of the run's GPUs since shortly before the drop."""
    selector = 'class=~"warning|critical"'
    found = _counted(questions, "xids", "pyrometer_gpu_xid_errors_total", selector, detail="xid")
    mine = [
        replace(fact, kind="xid_fatal" if fact.detail in FATAL_XIDS else "xid")
        for fact in found
        if fact.labels.get("gpu", "") in questions.roster.gpus.get(fact.labels.get("node", ""), ())
    ]
    return Look(tuple(mine), frozenset({"xid", "xid_fatal"}))


def kernel_events(questions: Questions) -> Look:
    """Return what the kernel logged on the run's nodes."""
    selector = matching("kind", _KERNEL_EVENTS)
    found = _counted(questions, "kernel_events", "pyrometer_kernel_events_total", selector, detail="kind")
    return Look(tuple(replace(fact, kind=fact.detail, detail="") for fact in found), frozenset(_KERNEL_EVENTS))


def _counted(questions: Questions, provider: str, name: str, selector: str, *, detail: str) -> list[Fact]:
    """Return the series of a counter of events that rose, with the moments."""
    window = questions.since(provider)
    risen = questions.instant(f"increase({name}{questions.of_nodes(selector)}[{window:.0f}s]) > 0.5")
    if not risen:
        return []
    nodes = sorted({series.labels.get("node", "") for series in risen})[:MOST_SUSPECTS]
    stored = questions.instant(f"{name}{questions.of_nodes(selector, nodes=nodes)}[{window:.0f}s]")
    return [fact for series in stored if (fact := _events(series, name, detail)) is not None]


def _events(series: Series, name: str, detail: str) -> Fact | None:
    rises = increments(series.points)
    if not rises:
        return None
    labels = {key: series.labels[key] for key in ("node", "gpu") if series.labels.get(key)}
    what = series.labels.get(detail, "")
    before, first, _rise = rises[0]
    matchers = ",".join(f"{key}={quoted(value)}" for key, value in {**labels, detail: what}.items())
    return Fact(
        "xid",
        labels,
        what,
        began=first,
        precision=first - before,
        ended=rises[-1][1],
        moments=tuple((at, amount) for _before, at, amount in rises),
        peers=0.0,
        before=0.0,
        source=f"{name}{{{matchers}}}",
    )


def pcie_widths(questions: Questions) -> Look:
    """Return the GPUs whose PCIe link has fewer lanes than it can have."""
    where, by, keys = questions.of_nodes(), "max by (node, gpu)", ("node", "gpu")
    lanes, full = f"{by} (DCGM_FI_DEV_PCIE_LINK_WIDTH{where})", f"{by} (DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH{where})"
    now = questions.values(f"{lanes} < {full}", keys)
    before = questions.values(lanes, keys, questions.before) if now else {}
    most = questions.values(full, keys) if now else {}
    facts = []
    for (node, gpu), width in now.items():
        if gpu not in questions.roster.gpus.get(node, ()):
            continue
        past = before.get((node, gpu))
        name = f"DCGM_FI_DEV_PCIE_LINK_WIDTH{{node={quoted(node)},gpu={quoted(gpu)}}}"
        of = f"x{most[node, gpu]:.0f}" if (node, gpu) in most else ""
        fact = Fact("pcie_width", {"node": node, "gpu": gpu}, of, value=width, before=past, source=name)
        facts.append(_since(replace(fact, chronic=past is not None and past <= width), questions))
    return Look(tuple(facts), frozenset({"pcie_width"}))


def _since(fact: Fact, questions: Questions) -> Fact:
    """Add when the link became narrower; few links ever do."""
    if fact.chronic or fact.before is None or fact.value is None:
        return fact
    window = questions.since("pcie_widths")
    stored = questions.instant(f"{fact.source[:-1]},cluster={quoted(questions.incident.cluster)}}}[{window:.0f}s]")
    fell = crossing(stored[0].points, (fact.value + fact.before) / 2, above=False) if stored else None
    return dated(fact, fell)


def pressures(questions: Questions) -> Look:
    """Return the hosts whose tasks wait for a resource, clearly more than before and than on the run's other hosts."""
    facts: list[Fact] = []
    measured = False
    for resource, name in PRESSURES.items():
        query = f"max by (node) (rate({name}{questions.of_nodes()}[{PRESSURE_SECONDS}s]))"
        now = questions.values(query, ("node",))
        measured = measured or bool(now)
        high = {node: share for node, share in now.items() if share > HIGH_PRESSURE}
        before = questions.values(query, ("node",), questions.before) if high else {}
        usual = middle(now.values())
        for (node,), share in high.items():
            past = before.get((node,))
            if past is not None and share <= past + MORE_PRESSURE:
                continue
            labels = {"node": node}
            facts.append(
                Fact(
                    "pressure",
                    labels,
                    resource,
                    strength=min(share, 1.0),
                    value=share,
                    peers=usual,
                    before=past,
                    source=f"rate({name}{{node={quoted(node)}}}[{PRESSURE_SECONDS}s])",
                )
            )
    missing = () if measured else ("no CPU, memory or disk pressure of the nodes (node_exporter is not scraped there)",)
    return Look(tuple(_pressed_since(facts, questions)), frozenset({"pressure"}), missing)


def _pressed_since(facts: list[Fact], questions: Questions) -> list[Fact]:
    """Add the onsets, for at most ten hosts: more of them have a common cause."""
    with_onset = []
    window = questions.since("pressures")
    for index, fact in enumerate(sorted(facts, key=lambda one: -one.strength)):
        stored: list[Series] = []
        if index < 10 and fact.before is not None and fact.value is not None:
            where = questions.of_nodes(nodes=[fact.labels["node"]])
            stored = questions.instant(f"{PRESSURES[fact.detail]}{where}[{window:.0f}s]")
        rates = slopes(stored[0].points) if stored else ()
        rose = crossing(rates, ((fact.value or 0.0) + (fact.before or 0.0)) / 2)
        with_onset.append(dated(fact, rose))
    return with_onset


def maintenance(questions: Questions) -> Look:
    """Return the run's nodes that are drained or in maintenance."""
    found = questions.values(f"max by (node) (pyrometer_node_maintenance{questions.of_nodes()}) == 1", ("node",))
    facts = tuple(
        Fact("maintenance", {"node": node}, source=f"pyrometer_node_maintenance{{node={quoted(node)}}}")
        for (node,) in found
    )
    return Look(facts, frozenset({"maintenance"}))


def _xid(fact: Fact) -> str:
    if fact.kind == "xid_fatal":
        return f"Xid {fact.detail}: {FATAL_XIDS.get(fact.detail, 'out of service')}, {times(fact)}"
    return f"Xid {fact.detail} {times(fact)}, which does not take a GPU out of service"


def _pcie(fact: Fact) -> str:
    value = fact.value or 0.0
    past = f", x{fact.before:.0f} before the drop" if fact.before is not None and fact.before > value else ""
    return f"lanes x{value:.0f}{f' of {fact.detail}' if fact.detail else ''}{past}"


def _pressure(fact: Fact) -> str:
    sentence = f"tasks wait for {fact.detail} {percent(fact.value or 0.0)} of the time"
    sentence += f", {percent(fact.peers)} on the median node" if fact.peers is not None else ""
    return sentence + share_before(fact)


def _xid_title(facts: Sequence[Fact]) -> str:
    return f"Xid {facts[0].detail}"


def _pressure_title(facts: Sequence[Fact]) -> str:
    return f"{facts[0].detail} pressure"


_xid_kind = partial(
    Kind, "xid", "Xid", pause=3600.0, says=_xid, title=_xid_title, by_detail=True, runbook="GpuXidCritical"
)
_KERNEL_EVENTS = {
    "oom_kill": Kind("host", "the kernel killed a process for lack of memory", 0.66, 600.0, runbook="HostOutOfMemory"),
    "machine_check": Kind("host", "machine check (CPU or memory hardware)", 0.48, 600.0, runbook="HostMachineCheck"),
    "pcie_aer": Kind("host", "PCIe errors", -0.2, 600.0, runbook="HostPcieErrors"),
    "sxid": Kind("host", "NVSwitch error (SXid)", 0.96, 600.0, runbook="NvswitchFatalError"),
    "nvme": Kind("host", "NVMe errors", -0.4, 600.0, runbook="HostDiskErrors"),
    "soft_lockup": Kind("host", "CPU soft lockup", 0.53, 600.0, runbook="HostKernelErrors"),
    "hung_task": Kind("host", "a task blocked for minutes", 0.53, 600.0, runbook="HostKernelErrors"),
}
SUBJECT = Subject(
    5,
    {
        "xid_fatal": _xid_kind(prior=1.49),
        "xid": _xid_kind(prior=-0.61),
        "pcie_width": Kind(
            "pcie", "PCIe link with fewer lanes than possible", 1.0, says=_pcie, runbook="GpuPcieDegraded"
        ),
        **_KERNEL_EVENTS,
        "pressure": Kind(
            "host",
            "pressure",
            -0.59,
            says=_pressure,
            title=_pressure_title,
            by_detail=True,
            runbook="Pressure on a host",
        ),
        "maintenance": Kind("host", "in maintenance", -1.0, runbook="A change of the run's own"),
    },
    (
        Query(xids, "Xids"),
        Query(kernel_events, "kernel log"),
        Query(pressures, "pressure of the hosts"),
        Query(pcie_widths),
        Query(maintenance),
    ),
)
