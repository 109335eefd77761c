"""NVLink and the fabric behind it: links, registration, fabric manager, IMEX."""

from __future__ import annotations

from pyrometer_exporters.node.checks.check import Check, Verdict, absent, failed, judged, ok, unknown
from pyrometer_exporters.node.checks.gpus import GpuFacts, GpuView
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.subjects.gpu import gpu_check, name_of, over_gpus

NVIDIA_VENDOR, BRIDGE_CLASS = "0x10de", "0x0680"
_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_RACK_SCALE = ("NVIDIA GB200", "NVIDIA GB300")
_STATES = {1: "not started", 2: "in progress"}


def _nvlinks(node: Node, gpus: list[GpuFacts]) -> Verdict:
    linked = [gpu for gpu in gpus if gpu.nvlinks]
    wanted = node.expected.get("nvlinks")
    if not linked and not wanted:
        return absent("these boards have no NVLink")
    # A board may have links that lead nowhere: without an expectation, a GPU should have as many as its best peer.
    most = wanted or max(sum(gpu.nvlinks.values()) for gpu in linked)
    problems = []
    for gpu in gpus if wanted else linked:
        up = sum(gpu.nvlinks.values())
        if up < most:
            down = ", ".join(str(link) for link, is_up in gpu.nvlinks.items() if not is_up)
            problems.append(f"{name_of(gpu)} has {up} of {most} NVLinks up (down: {down})")
    if not problems and not most:
        return failed("no NVLink of any GPU is up")
    return judged(problems, nvlinks=most)


def _fabric(_node: Node, gpus: list[GpuFacts]) -> Verdict:
    members = [gpu for gpu in gpus if gpu.fabric_state is not None]
    if not members:
        return absent("no NVSwitch fabric")
    problems = []
    for gpu in members:
        state = gpu.fabric_state or 0
        if state != _COMPLETED:
            problems.append(f"{name_of(gpu)}: registration with the fabric is {_STATES.get(state, state)}")
        elif gpu.fabric_status:
            problems.append(f"{name_of(gpu)}: registration with the fabric ended with error {gpu.fabric_status}")
    return judged(problems)


def _fabric_manager(node: Node) -> Verdict:
    devices = node.paths.sysfs / "bus/pci/devices"
    switches = [name for name in node.names(devices) if _is_switch(node, name)]
    if not switches:
        return absent("no NVSwitch on this node's bus")
    if any(process.name.startswith("nv-fabricmanage") for process in node.processes):
        return ok()
    return failed(f"{len(switches)} NVSwitches, but nv-fabricmanager is not running")


def _is_switch(node: Node, address: str) -> bool:
    folder = node.paths.sysfs / "bus/pci/devices" / address
    is_nvidia = node.text(folder / "vendor") == NVIDIA_VENDOR
    return is_nvidia and (node.text(folder / "class") or "").startswith(BRIDGE_CLASS)


def _imex(node: Node) -> Verdict:
    view: GpuView = node.gpus
    wanted = node.expected.get("imex")
    # On the boards of one node the domain is none, or the node's own.
    spans = any(gpu.fabric_spans_nodes and gpu.model.startswith(_RACK_SCALE) for gpu in view.answering)
    if wanted is False or (wanted is None and not spans):
        return absent("no NVLink domain of several nodes")
    if any(process.name == "nvidia-imex" for process in node.processes):
        return ok()
    if not node.processes:
        return unknown("processes can't be seen")
    return failed("nvidia-imex is not running")


CHECKS = (
    gpu_check(
        "nvlinks",
        "all NVLinks are up",
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
        "nvidia-imex runs where NVLink spans nodes (NVL72)",
        "NVML: nvmlDeviceGetGpuFabricInfoV; /proc/PID/stat",
        "NVIDIA's IMEX guide",
        "Start it (`systemctl start nvidia-imex`) and look at its nodes_config.cfg.",
        _imex,
    ),
)
