"""GPUs: there, answering, of one kind, and with nothing that the driver asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Final

from pyrometer_exporters.node.checks.check import Check, Problem, Verdict, absent, failed, judged, ok, unknown
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
# NVML's reasons (:class:`Code`) by which this process can't ask: they say nothing about the GPU or the driver.
_CANNOT_ASK = ("no_driver", "no_permission", "library_not_found", "function_not_found", "out_of_memory")
# And those by which the driver itself says that a GPU is out of service.
_OUT_OF_SERVICE = ("gpu_is_lost", "reset_required", "timeout", HUNG)
_BUSY_PERCENT: Final = 50
"""Below it a link may rightly be slow to save power: a desktop alone keeps a GPU busy for some percent of the time."""


def has_gpus(node: Node) -> bool:
    """Return whether this node has GPUs that the NVIDIA driver should have."""
    view: GpuView = node.gpus
    return bool(view.on_bus or view.gpus or _are_expected(node) or _all_are_gone(node, view))


def _all_are_gone(node: Node, view: GpuView) -> bool:
    """Return whether the driver is loaded and no GPU is on the bus: it stays loaded only if it has found one.

    Source: nv_module_init in kernel-open/nvidia/nv.c of NVIDIA/open-gpu-kernel-modules.
    """
    stays = view.on_bus == [] and not view.gpus and not node.pci_bus.given_away
    return stays and node.expected.get("gpus") is None and (node.paths.sysfs / "module/nvidia").exists()


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


def identity(gpu: GpuFacts) -> str:
    """Return what a GPU is known by: its UUID, else its address."""
    return gpu.uuid or f"pci:{gpu.address}"


def usual(values: Sequence[Any]) -> Any:  # noqa: ANN401  the type of the values
    """Return the value that more than half of them are; None where none is."""
    value, times = Counter(values).most_common(1)[0]
    return value if 2 * times > len(values) else None


def _driver(node: Node, view: GpuView) -> Verdict:
    if not _are_expected(node) and _all_are_gone(node, view):
        return unknown("the NVIDIA driver is loaded, and no GPU is on the bus: state `gpus`")
    if not view.problem:
        return ok()
    reason = view.problem.partition(":")[0]
    loaded = (node.paths.sysfs / "module/nvidia").exists() or bool(kernel_module_version(node.paths.procfs))
    if reason in _CANNOT_ASK and (loaded or not _are_expected(node) or not node.sees_hardware):
        return unknown(view.problem)
    if loaded or _are_expected(node):
        return failed(view.problem)
    return unknown(
        f"{view.problem}: NVIDIA GPUs are on the bus, and nothing says that they should be used: state `gpus`"
    )


def _are_expected(node: Node) -> bool:
    return bool(node.expected.get("gpus") or node.expected.learned("gpus"))


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


def _answers(_node: Node, view: GpuView) -> Verdict:
    if view.problem:
        return unknown(view.problem)
    problems, blind = [], []
    for gpu in view.gpus:
        reason = gpu.problem.partition(":")[0]
        text = f"{name_of(gpu)} does not answer: " + ("it hangs" if gpu.problem == HUNG else gpu.problem)
        if reason in _OUT_OF_SERVICE or (gpu.problem and reason not in _CANNOT_ASK and view.answering):
            problems.append(text)
        elif gpu.problem:
            blind.append(text)
    return judged(problems, blind) if view.gpus else unknown("the driver lists no GPU")


def _recovery(_node: Node, gpus: list[GpuFacts]) -> Verdict:
    actions = [(gpu, int(gpu.fields[RECOVERY_ACTION])) for gpu in gpus if RECOVERY_ACTION in gpu.fields]
    if not actions:
        return absent("the driver doesn't report it (570 and newer do)")
    return judged(
        [f"{name_of(gpu)} needs {_ACTIONS[action]}" for gpu, action in actions if action in _ACTIONS],
        [
            f"{name_of(gpu)} asks for the unknown action {action}"
            for gpu, action in actions
            if action not in {0, *_ACTIONS}
        ],
    )


def _model(node: Node, gpus: list[GpuFacts]) -> Verdict:
    wanted, learned = node.expected.get("gpu_model"), node.expected.learned("gpus")
    slots = {part.get("address"): part.get("model") for part in learned.values()}
    problems = []
    for gpu in gpus:
        before = slots.get(gpu.address) or gpu.model
        if wanted and gpu.model != wanted:
            problems.append(Problem(f"{name_of(gpu)} is a {gpu.model}, not a {wanted}"))
        elif not wanted and gpu.model != before:
            problems.append(Problem(f"{name_of(gpu)} is a {gpu.model}, and was a {before}", learned=True))
    return judged(problems)


def _vbios(node: Node, gpus: list[GpuFacts]) -> Verdict:
    reporting = [gpu for gpu in gpus if gpu.vbios]
    if not reporting:
        return absent("the boards don't report it")
    problems = []
    for gpu in reporting:
        # Boards of two makers have rightly two.
        peers = [other.vbios for other in reporting if (other.model, other.board) == (gpu.model, gpu.board)]
        wanted = node.expected.get("vbios") or usual(peers) or gpu.vbios
        if gpu.vbios != wanted:
            problems.append(f"{name_of(gpu)} has VBIOS {gpu.vbios}, not {wanted}")
    return judged(problems)


def _persistence(node: Node, gpus: list[GpuFacts]) -> Verdict:
    reporting = [gpu for gpu in gpus if gpu.persistence is not None]
    if not reporting:
        return absent("the driver doesn't report it")
    off = [gpu for gpu in reporting if not gpu.persistence]
    if len(off) == len(reporting) and "gpu_persistence" not in node.listed:
        return absent("it is off on all GPUs; to have that judged, list gpu_persistence under `checks`")
    return judged([f"{name_of(gpu)} has persistence mode off" for gpu in off])


def _pcie(node: Node, gpus: list[GpuFacts]) -> Verdict:
    linked = [gpu for gpu in gpus if gpu.width is not None]
    if not linked:
        return absent("these boards have no PCIe link that the driver knows")
    learned = node.expected.learned("gpu_lanes")
    problems: list[Problem] = []
    for gpu in linked:
        now, most = gpu.width or (0, 0)
        # The driver's own maximum is a virtual machine's host's guess: evidence is what it had, or what its peers have.
        before = learned.get(identity(gpu), 0)
        peers = max((other.width or (0, 0))[0] for other in linked if other.model == gpu.model)
        alone = sum(other.model == gpu.model for other in linked) == 1 and not node.is_virtual
        wanted = max(min(peers, most), before if before <= most else 0, most if alone else 0)
        if now < wanted:
            problems.append(Problem(f"{name_of(gpu)} has {now} of {wanted} PCIe lanes"))
    for gpu in gpus:
        # At rest a link slows down to save power: that is no fault.
        busy = (gpu.utilisation or 0) >= _BUSY_PERCENT
        if gpu.generation is not None and busy and gpu.generation[0] < gpu.generation[1]:
            problems.append(Problem(f"{name_of(gpu)} under load has PCIe {gpu.generation[0]} of {gpu.generation[1]}"))
    return judged(problems, gpu_lanes={identity(gpu): (gpu.width or (0, 0))[0] for gpu in linked})


def _zombies(node: Node, gpus: list[GpuFacts]) -> Verdict:
    if not node.sees_processes:
        return unknown("the host's processes can't be seen")
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
        "all GPUs have the stated model, and that of the day before in the same slot",
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
        "persistence mode is on, on all GPUs or on none",
        "NVML: nvmlDeviceGetPersistenceMode",
        "gpud persistence-mode",
        "Start nvidia-persistenced (`systemctl enable --now nvidia-persistenced`).",
        over_gpus(_persistence),
        severity="warning",
    ),
    gpu_check(
        "gpu_pcie",
        "GPUs have the lanes that they had and their peers have, and under load the full generation",
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
