"""NVLink and the fabric behind it: links, registration, fabric manager, IMEX."""

from __future__ import annotations

from pyrometer_exporters.node.checks.check import Check, Problem, Verdict, absent, failed, judged, listed, ok, unknown
from pyrometer_exporters.node.checks.gpus import GpuFacts, GpuView
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.rdma import limited_functions
from pyrometer_exporters.node.checks.subjects.gpu import gpu_check, identity, name_of, over_gpus

NVIDIA_VENDOR, BRIDGE_CLASS = "0x10de", "0x0680"
_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_RACK_SCALE = ("NVIDIA GB200", "NVIDIA GB300")
# GPUs of a machine with NVSwitches: DGX and HGX have 8, HGX A100 and trays of NVL72 also 4, DGX-2 16, GH200 one.
_WHOLE_BOARDS = (1, 2, 4, 8, 16)
_STATES = {1: "not started", 2: "in progress"}


def _nvlinks(node: Node, gpus: list[GpuFacts]) -> Verdict:
    up = {identity(gpu): sum(gpu.nvlinks.values()) for gpu in gpus}
    stated, learned = node.expected.get("nvlinks"), node.expected.learned("nvlinks")
    if not any(gpu.nvlinks for gpu in gpus) and not stated and not any(learned.values()):
        return absent("these boards have no NVLink")
    problems = []
    for gpu in gpus:
        peers = [up[identity(other)] for other in gpus if other.model == gpu.model]
        now, before = up[identity(gpu)], learned.get(identity(gpu), 0)
        # A board may have links that lead nowhere, and one without a bridge has none: most of its likes must have more.
        most = max(peers) if now or 2 * sum(peer > 0 for peer in peers) > len(peers) else 0
        wanted = stated if stated is not None else max(before, most)
        if now < wanted:
            down = ", ".join(str(link) for link, is_up in gpu.nvlinks.items() if not is_up)
            text = f"{name_of(gpu)} has {now} of {wanted} NVLinks up (down: {down or 'all'})"
            problems.append(Problem(text, learned=stated is None and now >= most))
    if not problems and not any(up.values()):
        return absent("no NVLink of any GPU leads anywhere", nvlinks=up)
    return judged(problems, nvlinks=up)


def _fabric(node: Node, gpus: list[GpuFacts]) -> Verdict:
    members = [gpu for gpu in gpus if gpu.fabric_state is not None]
    blind = _no_whole_board(node) if members or _switches(node) else []
    if not members:
        return unknown(listed(blind)) if blind else absent("no NVSwitch fabric that the driver knows")
    problems = []
    for gpu in members:
        state = gpu.fabric_state or 0
        if state in _STATES:
            problems.append(f"{name_of(gpu)}: registration with the fabric is {_STATES[state]}")
        elif state != _COMPLETED:
            blind.append(f"{name_of(gpu)}: the fabric's state {state} is unknown")
        elif gpu.fabric_status:
            problems.append(f"{name_of(gpu)}: registration with the fabric ended with error {gpu.fabric_status}")
    return judged(problems, blind)


def _no_whole_board(node: Node) -> list[str]:
    """Report a number of GPUs that no board with NVSwitches has, if nobody has stated how many there should be."""
    count = len(node.gpus_on_bus or ())
    stated = node.expected.get("gpus") is not None
    if stated or node.is_virtual or not count or count in _WHOLE_BOARDS or node.pci_bus.given_away:
        return []
    return [f"{count} GPUs are on the bus, and machines with NVSwitches have 4, 8 or 16: state `gpus`"]


def _switches(node: Node) -> list[str]:
    devices = node.paths.sysfs / "bus/pci/devices"
    return node.once("nvswitches", lambda: [name for name in node.names(devices) if _is_switch(node, name)])


def _fabric_manager(node: Node) -> Verdict:
    switches = _switches(node)
    # The NVSwitches of HGX B200 and B300 are behind functions of network cards, which the fabric manager has.
    functions = limited_functions(node)
    if not switches and not functions:
        return absent("no NVSwitch on this node's bus")
    if any(process.name.startswith("nv-fabricmanage") for process in node.processes):
        return ok()
    if not node.sees_processes:
        return unknown("the host's processes can't be seen")
    what = f"{len(switches)} NVSwitches" if switches else f"{len(functions)} functions of its own"
    return failed(f"{what}, but nv-fabricmanager is not running")


def _is_switch(node: Node, address: str) -> bool:
    folder = f"{node.paths.sysfs}/bus/pci/devices/{address}"
    is_bridge = (node.text(f"{folder}/class") or "").startswith(BRIDGE_CLASS)
    return is_bridge and node.text(f"{folder}/vendor") == NVIDIA_VENDOR


def _imex(node: Node) -> Verdict:
    """Judge by what is stated alone: under ComputeDomains and Slurm's plugin a domain lives as long as its job."""
    view: GpuView = node.gpus
    if not node.expected.get("imex"):
        spans = any(gpu.fabric_spans_nodes and gpu.model.startswith(_RACK_SCALE) for gpu in view.answering)
        return absent(
            "not stated: `imex: on` where the host's service must run" if spans else "no NVLink domain of several nodes"
        )
    if any(process.name == "nvidia-imex" for process in node.processes):
        return ok()
    return (
        failed("nvidia-imex is not running") if node.sees_processes else unknown("the host's processes can't be seen")
    )


CHECKS = (
    gpu_check(
        "nvlinks",
        "as many NVLinks are up as before, and as on its peers",
        "NVML: fields 91 and 165, nvmlDeviceGetNvLinkState",
        "gpud nvlink, gcm check-dcgmi, Imbue",
        "Drain the node and reset all GPUs together; then open a hardware case.",
        over_gpus(_nvlinks),
    ),
    gpu_check(
        "gpu_fabric",
        "every GPU is registered with its NVSwitch fabric",
        "NVML: nvmlDeviceGetGpuFabricInfoV",
        "gpud fabric state",
        "Restart nv-fabricmanager, then reset the GPUs; it must have the driver's version.",
        over_gpus(_fabric),
    ),
    Check(
        "fabric_manager",
        "the fabric manager runs where there are NVSwitches; it exits if its version isn't the driver's",
        "sysfs: bus/pci/devices (class 0x0680); /proc/PID/stat",
        "gpud, Imbue",
        "Start it (`systemctl start nvidia-fabricmanager`); install the version that matches the driver.",
        _fabric_manager,
    ),
    gpu_check(
        "imex",
        "nvidia-imex runs where `imex: on` is stated (NVL72)",
        "NVML: nvmlDeviceGetGpuFabricInfoV; /proc/PID/stat",
        "NVIDIA's IMEX guide",
        "Start it (`systemctl start nvidia-imex`) and look at its nodes_config.cfg.",
        _imex,
    ),
)
