"""Verbs for events and losses of a machine, by the names that ``machine.yaml`` uses.

Each takes the machine and the arguments of the verb, and returns the names by which a loss may be called: one of
them has to be in the verdict.
"""

from __future__ import annotations

import errno
import fnmatch
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from pyrometer_simulator.zoo.machine import Machine
from pyrometer_simulator.zoo.prints import mountinfo, process_files

Names = Collection[str]
Act = Callable[[Machine, Any], Names]

_MOUNTINFO: Final = "/proc/1/mountinfo"
_PCI: Final = "/sys/bus/pci/devices"
_RDMA: Final = "/sys/class/infiniband"
_NET: Final = "/sys/class/net"
_EDAC: Final = "/sys/devices/system/edac/mc"


# Events: what an ordinary week has.


def reboot(machine: Machine, while_down: Mapping[str, Any] | None) -> Names:
    """Boot again; other verbs may happen while the machine is down, such as an update of firmware."""
    act(machine, while_down or {})
    machine.reboot()
    return ()


def driver(machine: Machine, version: str) -> Names:
    """Load another version of NVIDIA's driver, and its library."""
    machine.gpus.reload_driver(version)
    before = machine.read("/proc/driver/nvidia/version")
    machine.write("/proc/driver/nvidia/version", re.sub(r"\d+\.\d+(\.\d+)?", version, before, count=1))
    return ()


def firmware(machine: Machine, versions: Mapping[str, str]) -> Names:
    """Update the firmware of RDMA devices: version by the devices' names, which may have a ``*``."""
    for device in machine.names(_RDMA):
        for pattern, version in versions.items():
            if fnmatch.fnmatch(device, pattern):
                machine.write(f"{_RDMA}/{device}/fw_ver", version)
    return ()


def write(machine: Machine, files: Mapping[str, object]) -> Names:
    """Write files: content by path."""
    for path, text in files.items():
        machine.write(path, text)
    return ()


def link(machine: Machine, links: Mapping[str, str]) -> Names:
    """Make links: target by path."""
    for path, target in links.items():
        machine.link(path, target)
    machine.link_to_functions()
    return ()


def remove(machine: Machine, paths: Sequence[str]) -> Names:
    """Take files, links or folders away."""
    for path in paths:
        machine.remove(path)
    return ()


def mount(machine: Machine, lines: Sequence[str]) -> Names:
    """Mount file systems: lines as ``/proc/mounts`` or ``mountinfo`` have them."""
    before = machine.read(_MOUNTINFO).splitlines()
    new = [mountinfo(line, 500 + len(before) + number) for number, line in enumerate(lines)]
    machine.write(_MOUNTINFO, "\n".join(before + new))
    return ()


def umount(machine: Machine, points: Sequence[str]) -> Names:
    """Unmount: mount points, which may have a ``*``."""
    lines = machine.read(_MOUNTINFO).splitlines()
    machine.write(
        _MOUNTINFO, "\n".join(line for line in lines if not any(fnmatch.fnmatch(_point(line), p) for p in points))
    )
    return ()


def start(machine: Machine, names: Sequence[str]) -> Names:
    """Start programs."""
    last = max((int(name) for name in machine.names("/proc") if name.isdecimal()), default=1000)
    for pid, name in enumerate(names, last + 1):
        for file, text in process_files(pid, name).items():
            machine.write(f"/proc/{pid}/{file}", text)
    return ()


def stop(machine: Machine, names: Sequence[str]) -> Names:
    """End programs."""
    for pid in machine.names("/proc"):
        if pid.isdecimal() and any(f"({name[:15]})" in machine.read(f"/proc/{pid}/stat") for name in names):
            machine.remove(f"/proc/{pid}")
    return ()


def kernel(machine: Machine, lines: Sequence[str]) -> Names:
    """Let the kernel log lines."""
    for line in lines:
        machine.say(line)
    return ()


def load(machine: Machine, percent: int) -> Names:
    """Let a job use all GPUs; 0 ends it."""
    for gpu in machine.gpus:
        if percent:
            gpu.load(utilisation=percent)
        else:
            gpu.idle()
    return ()


def gpus(machine: Machine, settings: Mapping[str, Any]) -> Names:
    """Change what the driver answers of all GPUs."""
    machine.set_gpus(**settings)
    return ()


def renamed(machine: Machine, names: Mapping[str, str]) -> Names:
    """Give RDMA devices other names, as udev's rules do."""
    for old in names:
        _rename_rdma(machine, old, f"{old}.old")
    for old, new in names.items():
        _rename_rdma(machine, f"{old}.old", new)
    return ()


def carrier(machine: Machine, states: Mapping[str, bool]) -> Names:
    """Let interfaces lose or get their carrier: ``{enp1s0: false}``."""
    for name, up in states.items():
        _carrier(machine, name, up=up)
    return tuple(states)


def disks(machine: Machine, drives: Mapping[str, Mapping[str, str]]) -> Names:
    """Attach NVMe disks: their files by name."""
    for name, files in drives.items():
        for file, text in {"state": "live", **files}.items():
            machine.write(f"/sys/class/nvme/{name}/{file}", text)
    return ()


def space(machine: Machine, used: Mapping[str, float]) -> Names:
    """Fill file systems: the used share by mount point."""
    for point, share in used.items():
        blocks = machine.file_systems.sizes[point].f_blocks if point in machine.file_systems.sizes else 2**30
        machine.sizes_of({point: (blocks, int(blocks * share))})
    return tuple(used)


# Losses. Those that a reboot shows in another way are played after one, too.


def gpu(machine: Machine, address: str) -> Names:
    """Let a GPU fall off the bus."""
    index = _index(machine, address)
    machine.gpus[index].lose()
    machine.say(f"<3>NVRM: Xid (PCI:{address[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    return address, address[:-2], machine.gpus[index].uuid


def gpu_after_reboot(machine: Machine, address: str) -> Names:
    """Boot without a GPU."""
    machine.gpus[_index(machine, address)].hide()
    machine.remove(f"{_PCI}/{address}")
    machine.reboot()
    return address, address[:-2], machine.gpus[_index(machine, address)].uuid


def gpu_lanes(machine: Machine, address: str) -> Names:
    """Let a GPU's PCIe link have fewer lanes, while a job runs."""
    gpu = machine.gpus[_index(machine, address)]
    gpu.load()
    most = gpu.get("pcie", {}).get("max_width", 16)
    gpu.set(pcie={**gpu.get("pcie", {}), "width": most // 2})
    return (address,)


def gpu_memory(machine: Machine, address: str) -> Names:
    """Let a GPU's memory have uncorrected errors."""
    machine.gpus[_index(machine, address)].set(ecc_errors={"volatile/device_memory/uncorrected": 2})
    return (address,)


def nvlink(machine: Machine, address: str) -> Names:
    """Let an NVLink of a GPU go down."""
    machine.gpus[_index(machine, address)].set(nvlinks_down=[1])
    return (address,)


def hca(machine: Machine, device: str) -> Names:
    """Let an RDMA device fall off the bus, with its interfaces."""
    guid, function = machine.read(f"{_RDMA}/{device}/node_guid"), machine.real(f"{_RDMA}/{device}/device")
    machine.remove(f"{_RDMA}/{device}")
    for name in machine.names(_NET):
        if machine.real(f"{_NET}/{name}").startswith(f"{function}/"):
            machine.remove(f"{_NET}/{name}")
    address = function.rpartition("/")[2]
    machine.remove(f"{_PCI}/{address}")
    return tuple(name for name in (device, address, guid) if name)


def hca_after_reboot(machine: Machine, device: str) -> Names:
    """Boot without an RDMA device: the kernel numbers the others again."""
    names = hca(machine, device)
    if re.fullmatch(r"mlx5_\d+", device):
        lost = int(device.removeprefix("mlx5_"))
        numbers = sorted(int(name[5:]) for name in machine.names(_RDMA) if re.fullmatch(r"mlx5_\d+", name))
        renamed(machine, {f"mlx5_{number}": f"mlx5_{number - 1}" for number in numbers if number > lost})
    machine.reboot()
    return names


def port(machine: Machine, name: str) -> Names:
    """Let the link of a port go down, such as ``mlx5_3/1``."""
    device, _, number = name.partition("/")
    folder = f"{_RDMA}/{device}/ports/{number}"
    machine.write(f"{folder}/state", "1: DOWN")
    machine.write(f"{folder}/phys_state", "2: Polling")
    function = machine.real(f"{_RDMA}/{device}/device")
    for interface in machine.names(_NET):
        if machine.real(f"{_NET}/{interface}").startswith(f"{function}/"):
            _carrier(machine, interface, up=False)
    return (device,)


def slow_port(machine: Machine, name: str) -> Names:
    """Let the link of a port come up at a quarter of its rate: one lane of four."""
    device, _, number = name.partition("/")
    path = f"{_RDMA}/{device}/ports/{number}/rate"
    full = int(machine.read(path).partition(" ")[0])
    machine.write(path, f"{full // 4} Gb/sec (1X)")
    return (device,)


def hca_lanes(machine: Machine, device: str) -> Names:
    """Let the PCIe link of an RDMA device have half its lanes."""
    function = f"{_RDMA}/{device}/device"
    width = machine.read(f"{function}/current_link_width") or machine.read(f"{function}/max_link_width")
    machine.write(f"{function}/current_link_width", int(width) // 2)
    return device, machine.real(function).rpartition("/")[2]


def interface(machine: Machine, name: str) -> Names:
    """Let an interface lose its carrier for good."""
    return carrier(machine, {name: False})


def disk(machine: Machine, name: str) -> Names:
    """Let an NVMe disk go."""
    folder = f"/sys/class/nvme/{name}"
    names = (name, machine.read(f"{folder}/serial"), machine.real(f"{folder}/device").rpartition("/")[2])
    machine.remove(folder)
    machine.say(f"<4>nvme {name}: Disabling device after reset failure: -19")
    return tuple(text for text in names if text)


def disk_after_reboot(machine: Machine, name: str) -> Names:
    """Boot without an NVMe disk."""
    names = disk(machine, name)
    machine.reboot()
    return names


def mount_gone(machine: Machine, point: str) -> Names:
    """Let a file system be mounted no more."""
    umount(machine, [point])
    return (point,)


def mount_stale(machine: Machine, point: str) -> Names:
    """Let a file system answer ``Stale file handle``."""
    machine.file_systems.errors[point] = errno.ESTALE
    return (point,)


def mount_read_only(machine: Machine, point: str) -> Names:
    """Let the kernel remount a file system read-only, after errors."""
    lines = machine.read(_MOUNTINFO).splitlines()
    changed = [re.sub(r"( - \S+ \S+ )rw", r"\1ro", line) if _point(line) == point else line for line in lines]
    machine.write(_MOUNTINFO, "\n".join(changed))
    return (point,)


def full(machine: Machine, point: str) -> Names:
    """Let a file system be full."""
    return space(machine, {point: 0.999})


def dimm(machine: Machine, gibibytes: int) -> Names:
    """Boot without a memory module of this size; where EDAC labels none, its size is all that names it."""
    text = machine.read("/proc/meminfo")
    total = int(re.search(r"MemTotal:\s+(\d+)", text)[1])  # type: ignore[index]
    left = total - gibibytes * 2**20
    machine.write("/proc/meminfo", re.sub(r"MemTotal:\s+\d+", f"MemTotal:       {left}", text))
    folders = [f"{_EDAC}/{controller}/{name}" for controller in machine.names(_EDAC)
               for name in machine.names(f"{_EDAC}/{controller}")]  # fmt: skip
    modules = [folder for folder in folders if machine.read(f"{folder}/size") == str(1024 * gibibytes)][-1:]
    labels = tuple(machine.read(f"{folder}/dimm_label") for folder in modules)
    for folder in modules:
        machine.remove(folder)
    machine.reboot()
    return labels or (f"{left / 2**20:.0f}",)


def memory_error(machine: Machine, controller: str) -> Names:
    """Let a memory controller report an error that it could not correct."""
    machine.write(f"{_EDAC}/{controller}/ue_count", 1)
    return (controller,)


def process(machine: Machine, name: str) -> Names:
    """Let a program end."""
    stop(machine, [name])
    return name, name[:15]


def array(machine: Machine, name: str) -> Names:
    """Let a software RAID lose its last disk."""
    text = machine.read("/proc/mdstat")

    def degraded(found: re.Match[str]) -> str:
        return f"{found[1]}[{found[2]}/{int(found[2]) - 1}] [{'U' * (int(found[2]) - 1)}_]"

    machine.write("/proc/mdstat", re.sub(rf"(^{name} :.*\n.*)\[(\d+)/\d+\] \[U+\]", degraded, text, flags=re.MULTILINE))
    return (name,)


def cpus(machine: Machine, online: str) -> Names:
    """Boot with fewer CPUs."""
    machine.write("/sys/devices/system/cpu/online", online)
    machine.reboot()
    return ("CPUs",)


EVENTS: Final[Mapping[str, Act]] = {
    act.__name__: act
    for act in (reboot, driver, firmware, write, link, remove, mount, umount, start, stop, kernel, load, gpus, renamed,
                carrier, disks, space)
}  # fmt: skip
LOSSES: Final[Mapping[str, Act]] = {
    act.__name__: act
    for act in (gpu, gpu_after_reboot, gpu_lanes, gpu_memory, nvlink, hca, hca_after_reboot, port, slow_port, hca_lanes,
                interface, disk, disk_after_reboot, mount_gone, mount_stale, mount_read_only, full, dimm, memory_error,
                process, array, cpus)
}  # fmt: skip


def act(machine: Machine, event: Mapping[str, Any]) -> None:
    """Let an event happen: all its verbs, in their order.

    Raises:
        KeyError: there is no such verb.
    """
    for verb, argument in event.items():
        if verb not in ("after", "what"):
            EVENTS[verb](machine, argument)


def _point(line: str) -> str:
    return line.split(" ")[4]


def _index(machine: Machine, address: str) -> int:
    return next(gpu.index for gpu in machine.gpus if gpu.pci_bus_id[4:].lower() == address)


def _rename_rdma(machine: Machine, old: str, new: str) -> None:
    path = f"{_RDMA}/{old}"
    real = machine.real(path)
    there = f"{real.rpartition('/')[0]}/{new}"
    machine.rename(real, there)
    machine.remove(path)
    machine.link(f"{_RDMA}/{new}", there)


def _carrier(machine: Machine, name: str, *, up: bool) -> None:
    folder = f"{_NET}/{name}"
    for file, text in (("carrier", int(up)), ("operstate", "up" if up else "down")):
        machine.write(f"{folder}/{file}", text)
    for file in ("carrier_changes", "carrier_up_count" if up else "carrier_down_count"):
        machine.write(f"{folder}/{file}", int(machine.read(f"{folder}/{file}") or 0) + 1)
