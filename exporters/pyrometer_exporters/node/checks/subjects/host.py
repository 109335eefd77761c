"""The host: CPUs, memory and the kernel's settings that training feels, and the clocks."""

from __future__ import annotations

import re
from typing import Any

from pyrometer_exporters.node.checks.check import (
    MOST_LISTED,
    Check,
    Problem,
    Verdict,
    absent,
    judged,
    listed,
    ok,
    unknown,
)
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.parts import EARLIER

# Those that cost a system call for each look at the time (Linux: drivers/clocksource, kernel/time/jiffies.c).
_SLOW_CLOCKS = ("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies")
_EDAC = "devices/system/edac/mc"  # Linux: Documentation/admin-guide/RAS/main.rst
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
_SLACK = 0.02
"""The share of the memory that may be missing: firmware and crash kernels take some, a memory module is 3 % or more."""


def _governor(node: Node) -> Verdict:
    folder = node.paths.sysfs / "devices/system/cpu"
    cpus = [name for name in node.names(folder) if re.fullmatch(r"cpu\d+", name)]
    governors: dict[str, int] = {}
    for cpu in cpus:
        governor = node.text(folder / cpu / "cpufreq/scaling_governor")
        if governor:
            governors[governor] = governors.get(governor, 0) + 1
    if not governors:
        return absent("the firmware or the host sets the clocks")
    if len(governors) == 1 and "cpu_governor" not in node.listed:
        (name,) = governors  # with intel_pstate and amd_pstate, powersave is what distributions choose
        return (
            ok() if name == "performance" else absent(f"all CPUs have {name}: to have that judged, list cpu_governor")
        )
    return judged([f"{count} CPUs have governor {name}" for name, count in governors.items() if name != "performance"])


def _cpus(node: Node) -> Verdict:
    folder = node.paths.sysfs / "devices/system/cpu"
    online, present = (_ranges(node.text(folder / name) or "") for name in ("online", "present"))
    if not online:
        return unknown("the CPUs can't be seen")
    # Whoever switches SMT off or on has another machine: its CPUs are learned apart.
    threads = f"online with SMT {node.text(folder / 'smt/control') or 'unknown'}"
    facts: dict[str, Any] = {"cpus": {threads: online}}
    wanted = node.expected.get("cpus")
    if wanted:
        return judged([f"{online} of {wanted} CPUs are online (stated)"] if online < wanted else [], **facts)
    before = node.expected.learned("cpus").get(threads, 0)
    if online < before:
        return judged([Problem(f"{online} of {before} CPUs are online ({EARLIER})", learned=True)], **facts)
    # One thread of each core: SMT is off, in the firmware, on the command line, or by hand as clouds' guides do it.
    one_of_each = present in (2 * online, 4 * online, 8 * online)
    limited = re.search(r"\b(?:maxcpus|nr_cpus)=", node.text(node.paths.procfs / "cmdline") or "")
    as_wanted = online >= present or one_of_each or limited or before
    return judged([] if as_wanted else [f"{online} of {present} CPUs are online"], **facts)


def _ranges(text: str) -> int:
    """Count ``0-3,8-11``: 8.

    >>> _ranges("0-3,8")
    5
    """
    ends = re.findall(r"(\d+)(?:-(\d+))?", text)
    return sum(int(last or first) - int(first) + 1 for first, last in ends)


def _numa_balancing(node: Node) -> Verdict:
    if "numa_balancing" not in node.listed:
        return absent("distributions have it on: to have that judged, list numa_balancing under `checks`")
    value = node.number(node.paths.procfs / "sys/kernel/numa_balancing")
    if value is None:
        return absent("this kernel has none")
    return judged(["automatic NUMA balancing is on"] if value else [])


def _huge_pages(node: Node) -> Verdict:
    wanted = node.expected.get("huge_pages")
    if wanted is None:
        return absent("none are configured")
    have = _meminfo(node).get("HugePages_Total")
    if have is None:
        return unknown("/proc/meminfo doesn't list them")
    return judged([f"{have} of {wanted} huge pages"] if have < wanted else [])


def _memory(node: Node) -> Verdict:
    kibibytes = _meminfo(node).get("MemTotal")
    if kibibytes is None:
        return unknown("/proc/meminfo can't be read")
    total, wanted = kibibytes * 1024, node.expected.get("memory")
    sizes = {} if node.is_virtual else _memory_of_nodes(node) or {"memory": total}
    modules = {} if node.is_virtual else _modules(node)
    facts: dict[str, Any] = {"memory": sizes, **({"memory_modules": modules} if modules else {})}
    # Names of modules are the driver's, which another kernel may spell otherwise: alone they are no evidence.
    gone = [name for name in node.expected.learned("memory_modules") if name not in modules] if modules else []
    named = f": {listed(gone)} is missing" if gone else ""
    if wanted:
        short = total < wanted * (1 - _SLACK)
        return judged([f"{total / 2**30:.0f} of {wanted / 2**30:.0f} GiB (stated){named}"] if short else [], **facts)
    learned = node.expected.learned("memory")
    return judged(
        [
            Problem(
                f"{name} has {sizes.get(name, 0) / 2**30:.0f} of {before / 2**30:.0f} GiB ({EARLIER}){named}",
                learned=True,
            )
            for name, before in learned.items()
            if sizes and sizes.keys() & learned.keys() and sizes.get(name, 0) < before * (1 - _SLACK)
        ],
        **facts,
    )


def _modules(node: Node) -> dict[str, int]:
    """Return the memory modules as EDAC labels them, with their size in MiB: ``CPU_SrcID#0_MC#0_Chan#0_DIMM#0``."""
    modules = {}
    for controller in _controllers(node):
        folder = node.paths.sysfs / _EDAC / controller
        for name in node.names(folder):
            size = node.number(folder / name / "size") if name.startswith(("dimm", "rank")) else None
            if size:
                modules[node.text(folder / name / "dimm_label") or f"{controller} {name}"] = size
    return modules


def _controllers(node: Node) -> list[str]:
    return [name for name in node.names(node.paths.sysfs / _EDAC) if re.fullmatch(r"mc\d+", name)]


def _memory_of_nodes(node: Node) -> dict[str, int]:
    """Return the bytes of each NUMA node with CPUs: the memory of Grace's GPUs comes and goes with their driver."""
    folder = node.paths.sysfs / "devices/system/node"
    sizes = {}
    for name in node.names(folder):
        if re.fullmatch(r"node\d+", name) and node.text(folder / name / "cpulist"):
            total = re.search(r"MemTotal:\s+(\d+)", node.text(folder / name / "meminfo") or "")
            if total is not None:
                sizes[name] = int(total[1]) * 1024
    return sizes


def _meminfo(node: Node) -> dict[str, int]:
    text = node.text(node.paths.procfs / "meminfo") or ""
    return {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)", text, re.MULTILINE)}


def _edac(node: Node) -> Verdict:
    folder = node.paths.sysfs / _EDAC
    controllers = _controllers(node)
    if not controllers:
        return absent("no memory controller reports to EDAC")
    limit = node.limit("edac", "corrected")
    problems, blind = [], []
    for name in controllers:
        lost, mended = (node.number(folder / name / f"{kind}_count") for kind in ("ue", "ce"))
        if lost is None and mended is None:
            blind.append(f"{name}: its counts can't be read")
        if lost:
            problems.append(Problem(f"{name} had {lost} uncorrected memory errors{_of_modules(node, name, 'ue')}"))
        if mended is not None and mended > limit:
            text = f"{name} had {mended} corrected memory errors{_of_modules(node, name, 'ce')}"
            problems.append(Problem(text, "warning"))
    return judged(problems, blind)


def _of_modules(node: Node, controller: str, kind: str) -> str:
    """Return in words which modules of a controller had errors, where EDAC says so."""
    folder = node.paths.sysfs / _EDAC / controller
    names = [name for name in node.names(folder) if node.number(folder / name / f"dimm_{kind}_count")]
    labels = [node.text(folder / name / "dimm_label") or name for name in names]
    return f" ({', '.join(labels[:MOST_LISTED])})" if labels else ""


def _clocksource(node: Node) -> Verdict:
    name = node.text(node.paths.sysfs / "devices/system/clocksource/clocksource0/current_clocksource")
    if not name:
        return unknown("the clock source can't be read")
    slow = name in _SLOW_CLOCKS
    return judged([f"the clock source is {name}: each reading of the time is a system call"] if slow else [])


def _synchronised(node: Node) -> Verdict:
    state = node.clock_state()
    if state is None:
        return unknown("adjtimex failed")
    if state != _TIME_ERROR:
        return judged([], clock={"synchronised": 1})
    # Some time services synchronise the clock and leave the kernel's flag (chrony without rtcsync, PTP).
    before = node.expected.learned("clock").get("synchronised")
    if not before and "time_synchronised" not in node.listed:
        return absent("no service has told this kernel that the clock is synchronised", clock={"synchronised": 0})
    return judged([Problem("the clock is not synchronised", learned=bool(before))], clock={"synchronised": 0})


def _uptime(node: Node) -> Verdict:
    text = (node.text(node.paths.procfs / "uptime") or "").split(" ")[0]
    try:
        seconds = float(text)
    except ValueError:
        return unknown("/proc/uptime can't be read")
    limit = node.limit("uptime", "seconds")
    return judged([f"booted {seconds:.0f} s ago"] if seconds < limit else []) if limit else ok()


CHECKS = (
    Check(
        "cpu_governor",
        "all CPUs have one governor; where listed, performance",
        "sysfs: devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "gcm check-processor",
        "`cpupower frequency-set -g performance`.",
        _governor,
        severity="warning",
    ),
    Check(
        "cpus",
        "all CPUs are online, or one thread of each core",
        "sysfs: devices/system/cpu/online, present",
        "LBNL NHC check_hw_cpuinfo",
        "Reboot; if they are still missing, check the BIOS and its event log.",
        _cpus,
    ),
    Check(
        "numa_balancing",
        "where listed: the kernel moves no memory between nodes",
        "/proc/sys/kernel/numa_balancing",
        "NVIDIA's and AMD's tuning guides",
        "`sysctl kernel.numa_balancing=0`.",
        _numa_balancing,
        severity="warning",
    ),
    Check(
        "huge_pages",
        "as many huge pages as configured",
        "/proc/meminfo: HugePages_Total",
        "gcm check-processor buddyinfo",
        "`sysctl vm.nr_hugepages=N`, best at boot.",
        _huge_pages,
    ),
    Check(
        "memory_size",
        "no memory module is lost",
        "/proc/meminfo: MemTotal; sysfs: devices/system/node/node*/meminfo",
        "LBNL NHC check_hw_physmem, gcm (DIMMs)",
        "Look in the BMC's event log for the module; reseat or replace it.",
        _memory,
    ),
    Check(
        "edac",
        "no uncorrected memory error since the boot",
        "sysfs: devices/system/edac/mc/mc*/ue_count, ce_count",
        "gpud memory, LBNL NHC check_hw_mcelog",
        "Find the module (`ras-mc-ctl --errors`) and replace it.",
        _edac,
        limits={"corrected": 1000},
    ),
    Check(
        "clocksource",
        "reading the time costs no system call",
        "sysfs: devices/system/clocksource/clocksource0/current_clocksource",
        "gcm check-processor clocksource",
        "`dmesg | grep -i tsc` shows why it was rejected; reboot, update the BIOS.",
        _clocksource,
        severity="warning",
    ),
    Check(
        "time_synchronised",
        "the clock is synchronised, where it was for a day or this is listed",
        "adjtimex(2)",
        "node_exporter's rules (timex)",
        "`chronyc tracking`, `systemctl restart chronyd`.",
        _synchronised,
        severity="warning",
    ),
    Check(
        "uptime",
        "the node has been up for a while (600 s; 0 for none)",
        "/proc/uptime; against the fleet: alert NodeBootsOften",
        "gcm check-uptime (600 s)",
        "Wait; `last -x reboot` shows how often it boots.",
        _uptime,
        severity="warning",
        limits={"seconds": 600},
        enabled=False,
    ),
)
