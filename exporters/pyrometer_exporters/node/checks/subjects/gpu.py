"""GPUs: there, answering, of one kind, and with nothing that the driver asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps

from pyrometer_exporters.node.checks.check import Check, Verdict, absent, failed, judged, ok, unknown
from pyrometer_exporters.node.checks.gpus import HUNG, RECOVERY_ACTION, GpuFacts, GpuView
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.gpu.driver_versions import differ, kernel_module_version

gpu_check = partial(Check, worker="gpus")
"""Define a check that asks the driver."""

_ACTIONS = {
    1: "a GPU reset",
    2: "a reboot of the node",
    3: "draining P2P traffic",
    4: "draining and a reset",
    5: "a recovery of the IMEX domain",
    6: "a bus reset",
    7: "a reboot of the system",
}


def has_gpus(node: Node) -> bool:
    """Return whether this node has GPUs or should have some."""
    view: GpuView = node.gpus
    return bool(view.on_bus or view.gpus or node.expected.get("gpus"))


def over_driver(judge: Callable[[Node, GpuView], Verdict]) -> Callable[[Node], Verdict]:
    """Make a check of what the driver says: absent on a node without GPUs, or while they are released."""

    @wraps(judge)
    def run(node: Node) -> Verdict:
        view: GpuView = node.gpus
        if view.left_alone or not has_gpus(node):
            return absent(view.left_alone or "no NVIDIA GPU on this node")
        return judge(node, view)

    return run


def over_gpus(judge: Callable[[Node, list[GpuFacts]], Verdict]) -> Callable[[Node], Verdict]:
    """Make a check of all GPUs that answer: unknown where none can be asked; see :func:`over_driver`."""

    @wraps(judge)
    def run(node: Node, view: GpuView) -> Verdict:
        if not view.answering:
            return unknown("no GPU answers, see gpu_driver and gpu_answers")
        return judge(node, view.answering)

    return over_driver(run)


def name_of(gpu: GpuFacts) -> str:
    """Return how people call it: ``GPU 3 (0000:5d:00.0)``."""
    return f"GPU {gpu.index} ({gpu.address})" if gpu.address else f"GPU {gpu.index}"


def _driver(_node: Node, view: GpuView) -> Verdict:
    return failed(view.problem) if view.problem else ok()


def _version(node: Node, view: GpuView) -> Verdict:
    module = kernel_module_version(node.paths.procfs)
    problems = []
    if differ(view.library, module):
        problems.append(f"the library has version {view.library}, the loaded kernel module {module}")
    wanted, driver = node.expected.get("driver"), view.driver or module
    if not driver and not problems:
        return unknown("the driver's version can't be read")
    if wanted and not f"{driver}.".startswith(f"{wanted}."):
        problems.append(f"driver {driver}, expected {wanted}")
    return judged(problems)


def _count(node: Node, view: GpuView) -> Verdict:
    if view.problem:
        return unknown(view.problem)
    wanted, have, on_bus = node.expected.get("gpus"), len(view.gpus), view.on_bus
    problems = []
    if wanted is not None and have < wanted:
        problems.append(f"{have} of {wanted} GPUs ({node.expected.how('gpus')})")
    missing = sorted(set(on_bus or ()) - {gpu.address for gpu in view.gpus})
    if on_bus is not None and have < len(on_bus) and all(gpu.address for gpu in view.gpus):
        problems.append(f"on the bus, but not in the driver's list: {', '.join(missing)}")
    return judged(problems, gpus=have)


def _order(node: Node, gpus: list[GpuFacts]) -> Verdict:
    view: GpuView = node.gpus
    order = [gpu.address for gpu in view.gpus]
    if not all(order) or len(gpus) < len(view.gpus):
        return unknown("not all GPUs answer")
    before = node.expected.learned.get("gpu_order")
    if before and len(before) == len(order) and order != before:
        moved = [
            f"GPU {index} is {now}, was {then}"
            for index, (now, then) in enumerate(zip(order, before, strict=True))
            if now != then
        ]
        return judged(moved)
    return ok(gpu_order=order)


def _answers(_node: Node, view: GpuView) -> Verdict:
    if view.problem:
        return unknown(view.problem)
    problems = [
        f"{name_of(gpu)} does not answer: " + ("it hangs" if gpu.problem == HUNG else gpu.problem)
        for gpu in view.gpus
        if gpu.problem
    ]
    return judged(problems)


def _recovery(_node: Node, gpus: list[GpuFacts]) -> Verdict:
    actions = [(gpu, int(gpu.fields[RECOVERY_ACTION])) for gpu in gpus if RECOVERY_ACTION in gpu.fields]
    if not actions:
        return absent("the driver doesn't report it (570 and newer do)")
    return judged([f"{name_of(gpu)} needs {_ACTIONS.get(action, action)}" for gpu, action in actions if action])


def _model(node: Node, gpus: list[GpuFacts]) -> Verdict:
    wanted = node.expected.get("gpu_model") or _usual([gpu.model for gpu in gpus])
    return judged([f"{name_of(gpu)} is a {gpu.model}, not a {wanted}" for gpu in gpus if gpu.model != wanted])


def _vbios(node: Node, gpus: list[GpuFacts]) -> Verdict:
    reporting = [gpu for gpu in gpus if gpu.vbios]
    if not reporting:
        return absent("the boards don't report it")
    problems = []
    for gpu in reporting:
        peers = [other.vbios for other in reporting if other.model == gpu.model]
        wanted = node.expected.get("vbios") or _usual(peers)
        if gpu.vbios != wanted:
            problems.append(f"{name_of(gpu)} has VBIOS {gpu.vbios}, not {wanted}")
    return judged(problems)


def _usual(values: list[str]) -> str:
    """Return the most frequent value; among equals the last in order, which for versions is mostly the newest."""
    return max(set(values), key=lambda value: (values.count(value), value))


def _persistence(_node: Node, gpus: list[GpuFacts]) -> Verdict:
    reporting = [gpu for gpu in gpus if gpu.persistence is not None]
    if not reporting:
        return absent("the driver doesn't report it")
    return judged([f"{name_of(gpu)} has persistence mode off" for gpu in reporting if not gpu.persistence])


def _pcie(_node: Node, gpus: list[GpuFacts]) -> Verdict:
    problems = []
    links = 0
    for gpu in gpus:
        if gpu.width is not None:
            links += 1
            if gpu.width[0] < gpu.width[1]:
                problems.append(f"{name_of(gpu)} has {gpu.width[0]} of {gpu.width[1]} PCIe lanes")
        # At rest a link slows down to save power: that is no fault.
        if gpu.generation is not None and gpu.utilisation and gpu.generation[0] < gpu.generation[1]:
            problems.append(f"{name_of(gpu)} under load has PCIe {gpu.generation[0]} of {gpu.generation[1]}")
    return judged(problems) if links else absent("these boards have no PCIe link that the driver knows")


def _zombies(node: Node, gpus: list[GpuFacts]) -> Verdict:
    states = {process.pid: process for process in node.processes}
    problems = []
    for gpu in gpus:
        for pid in gpu.processes:
            holder = states.get(pid)
            if holder is not None and holder.state in "ZX":
                problems.append(f"{name_of(gpu)} is held by {holder.name}[{pid}], which has ended")
    return judged(problems)


CHECKS = (
    gpu_check(
        "gpu_driver",
        "the NVIDIA driver is usable",
        "NVML: nvmlInit",
        "gpud nvidia-driver",
        "Reboot the node, or reload the driver (`dmesg | grep NVRM` shows why).",
        over_driver(_driver),
    ),
    gpu_check(
        "gpu_driver_version",
        "library and kernel module belong to the same, expected driver",
        "NVML: nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion; /proc/driver/nvidia/version",
        "gcm, Imbue",
        "Install the same driver as on the other nodes and reboot.",
        over_driver(_version),
    ),
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
        "Find which GPU or riser was replaced; `pyrometer-check --forget` accepts the present order.",
        over_gpus(_order),
        severity="warning",
    ),
    gpu_check(
        "gpu_answers",
        "every GPU answers within 3 s",
        "NVML: all calls of these checks, each GPU in its thread",
        "gpud, gcm",
        "Drain the node and reset the GPU (`nvidia-smi --gpu-reset -i N`); reboot if that hangs.",
        over_driver(_answers),
    ),
    gpu_check(
        "gpu_recovery",
        "the driver requests no reset or reboot",
        "NVML: field 230",
        "NVIDIA NVSentinel, gpud",
        "Drain the node and do what the driver requests.",
        over_gpus(_recovery),
    ),
    gpu_check(
        "gpu_model",
        "all GPUs have the same, expected model",
        "NVML: nvmlDeviceGetName",
        "our own",
        "Compare with the purchase order; replace the odd one.",
        over_gpus(_model),
    ),
    gpu_check(
        "gpu_vbios",
        "all GPUs have the firmware of their peers",
        "NVML: nvmlDeviceGetVbiosVersion",
        "gcm check-nvidia-smi vbios, Imbue",
        "Flash the firmware of the other GPUs.",
        over_gpus(_vbios),
        severity="warning",
    ),
    gpu_check(
        "gpu_persistence",
        "persistence mode is on",
        "NVML: nvmlDeviceGetPersistenceMode",
        "gpud persistence-mode",
        "Start nvidia-persistenced (`systemctl enable --now nvidia-persistenced`).",
        over_gpus(_persistence),
        severity="warning",
    ),
    gpu_check(
        "gpu_pcie",
        "GPUs have all lanes, and under load the full generation",
        "NVML: nvmlDeviceGetCurrPcieLinkWidth, ...Generation, and their Max",
        "gcm check-pci, Imbue",
        "Reseat the GPU or its riser; replace the board if it comes back.",
        over_gpus(_pcie),
    ),
    gpu_check(
        "gpu_zombies",
        "no process that has ended holds a GPU",
        "NVML: nvmlDeviceGetComputeRunningProcesses; /proc/PID/stat",
        "gcm check-nvidia-smi running_procs",
        "Drain the node and reboot it: the driver can't free the memory.",
        over_gpus(_zombies),
    ),
)
