"""GPUs: all of them there, each in its place."""

from __future__ import annotations

from typing import Any, Final

from pyrometer_exporters.node.checks.check import Problem, Verdict, failed, judged, listed, ok, unknown
from pyrometer_exporters.node.checks.gpus import GpuFacts, GpuView
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.parts import EARLIER, Part, described, lost, missing, too_few
from pyrometer_exporters.node.checks.subjects.gpu import gpu_check, identity, over_driver, over_gpus
from pyrometer_exporters.node.gpu.inventory import withheld

_STATE: Final = "state `expect: {gpus: N}` in /etc/pyrometer/checks.yaml"


def _part(gpu: GpuFacts) -> dict[str, str]:
    return {"name": f"GPU {gpu.index}", "address": gpu.address, "uuid": gpu.uuid, "model": gpu.model}


def _count(node: Node, view: GpuView) -> Verdict:
    verdict = _compared(node, view)
    if verdict.state != "ok" or node.expected.get("gpus") is not None or node.expected.learned("gpus"):
        return verdict
    dark = _dark_slots(node)
    if dark:
        return unknown(
            f"{listed(dark)} holds a card that is not on the bus; if it is no GPU, {_STATE}", **verdict.facts
        )
    have = len(view.gpus)
    return verdict._replace(reason=f"{have} GPUs, and nothing says whether that is all: {_STATE}" if have > 1 else "")


def _compared(node: Node, view: GpuView) -> Verdict:
    """Compare with what is stated, what was there, and what is on the bus."""
    wanted, learned = node.expected.get("gpus"), node.expected.learned("gpus")
    if view.problem:
        return _short_of(node, view) or unknown(view.problem)
    named = [gpu for gpu in view.gpus if gpu.address]
    have = len(view.gpus)
    facts: dict[str, Any] = {}
    if len(named) == have:
        facts["gpus"] = {identity(gpu): _part(gpu) for gpu in view.gpus}
    gone = lost(learned, facts["gpus"]) if facts else []
    names = [f"{described(part, 'uuid')} is missing ({EARLIER})" for part in gone]
    given = withheld(have, len(node.pci_bus.held or ()), node.paths.devices)
    unlisted = [] if given else _unlisted(node, view)
    problems: list[str | Problem] = []
    if isinstance(wanted, list):
        problems += missing(wanted, {name for gpu in view.gpus for name in (gpu.address, gpu.uuid)})
    elif isinstance(wanted, dict):
        problems += too_few(wanted, (gpu.model for gpu in view.gpus))
    elif wanted is not None:
        problems += [f"{have} of {wanted} GPUs (stated)"] if have < wanted else []
    if unlisted:
        problems.append(f"on the bus, but not in the driver's list: {', '.join(unlisted)}")
    told = {part.get("address") for part in gone if part.get("address") in unlisted}
    for part, name in zip(gone, names, strict=True):
        if part.get("address") not in told and (problems or wanted is None):
            problems.append(Problem(name, learned=True))
    if given and (problems or wanted is None):
        return _short_of(node, view) or unknown(given)
    return judged(problems, **facts)


def _short_of(node: Node, view: GpuView) -> Verdict | None:
    """Return that GPUs are missing from the bus, which can be seen without the driver; None if they are not."""
    wanted, on_bus = node.expected.get("gpus"), view.on_bus
    if isinstance(wanted, int) and on_bus is not None and len(on_bus) < wanted:
        return failed(f"{len(on_bus)} of {wanted} GPUs (stated) are on the bus")
    return None


def _dark_slots(node: Node) -> list[str]:
    """Return the slots in which pciehp sees a card, with power on, of which no function is on the bus.

    Such a slot may hold another card, or its pin may be wired; but nothing else shows a card that has never answered.
    Source: Documentation/ABI/testing/sysfs-bus-pci of Linux, pci/hotplug/pciehp_hpc.c.
    """
    slots = node.paths.sysfs / "bus/pci/slots"
    there = {address.rpartition(".")[0] for address in node.names(node.paths.sysfs / "bus/pci/devices")}
    return [
        f"slot {name} ({address})"
        for name in node.names(slots)
        if node.text(slots / name / "adapter") == "1" == node.text(slots / name / "power")
        and (address := node.text(slots / name / "address")) not in there
    ]


def _unlisted(node: Node, view: GpuView) -> list[str]:
    """Return the GPUs on the bus that the driver should list: of the kind of those that it lists, or once listed.

    Another kind may be a display's, too old for this driver.
    """
    if view.on_bus is None or len(view.gpus) >= len(view.on_bus) or not all(gpu.address for gpu in view.gpus):
        return []
    has = {gpu.address for gpu in view.gpus}
    bus = node.paths.sysfs / "bus/pci/devices"
    kinds = {node.text(bus / address / "device") for address in has}
    before = {part.get("address") for part in node.expected.learned("gpus").values()}
    return sorted(
        address for address in set(view.on_bus) - has
        if (node.text(bus / address / "device") in kinds or address in before) and _is_ours(node, address)
    )  # fmt: skip


def _is_ours(node: Node, address: str) -> bool:
    """Return whether no other driver has a GPU: nouveau's is no loss."""
    return node.driver(node.paths.sysfs / "bus/pci/devices" / address) in ("", "nvidia")


def _order(node: Node, gpus: list[GpuFacts]) -> Verdict:
    view: GpuView = node.gpus
    if not all(gpu.address for gpu in view.gpus) or len(gpus) < len(view.gpus):
        return unknown("not all GPUs answer")
    learned: dict[str, Part] = dict(node.expected.learned("gpus"))
    if set(learned) != {identity(gpu) for gpu in gpus}:  # parts that came or went move the others' numbers
        return ok()
    moved = [
        f"{gpu.uuid} is GPU {gpu.index}, was {before}"
        for gpu in gpus
        if (before := learned[identity(gpu)].get("name")) != f"GPU {gpu.index}"
    ]
    return judged([Problem(text, learned=True) for text in moved])


CHECKS = (
    gpu_check(
        "gpu_count",
        "all GPUs are present: as expected, on the bus, in the driver's list",
        "sysfs: bus/pci/devices; NVML: nvmlDeviceGetCount",
        "gcm check-nvidia-smi gpu_num, gpud gpu-counts, LBNL NHC",
        "Drain the node, reboot it; if the GPU is still missing, power-cycle, then open a hardware case.",
        over_driver(_count),
    ),
    gpu_check(
        "gpu_order",
        "each GPU has the same number as before",
        "NVML: nvmlDeviceGetPciInfo by index",
        "our own",
        "Find which GPU or riser was replaced; the new order is expected after a day.",
        over_gpus(_order),
        severity="warning",
    ),
)
