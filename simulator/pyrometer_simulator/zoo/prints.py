"""Read what people publish of a machine, as programs print it, into the files of its sysfs and procfs.

Each reader is for one file of a machine's folder: ``ibstat.txt``, ``lspci.txt``, ``mounts.txt``, ... The files that no
print shows come from ``files.txt``: the output of ``tail -n +1 FILES`` and of ``ls -l`` for links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyrometer_simulator.sysfs_layout import HW_COUNTERS, INTERFACE_STATISTICS, PMA_MAXIMA

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,5}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass
class Tree:
    """The files of a machine, and what its driver and its file systems answer.

    Attributes:
        files: content by path.
        links: targets by path, as ``readlink`` prints them.
        gpus: what ``nvidia-smi`` lists.
        driver: the version of NVIDIA's driver.
        sizes: 1K blocks and used ones of file systems, by mount point.
        dmesg: the kernel's log, as ``dmesg`` prints it.
    """

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    gpus: list[GpuPrint] = field(default_factory=list)
    driver: str = ""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    dmesg: list[str] = field(default_factory=list)

    def put(self, folder: str, values: Mapping[str, object]) -> None:
        """Add files to a folder, unless they are there."""
        for name, value in values.items():
            self.files.setdefault(f"{folder}/{name}", str(value))


@dataclass
class GpuPrint:
    """A row of ``nvidia-smi``; ``ecc`` is None where the board has none."""

    index: int
    name: str
    address: str
    persistence: bool
    ecc: bool | None
    memory_mib: int


def _files(text: str, tree: Tree) -> None:
    """Read ``==> /sys/a/b <==`` and the lines below it, and links such as ``lrwxrwxrwx ... /sys/a -> ../b``."""
    path, lines = "", list[str]()
    for line in [*text.splitlines(), "==> <=="]:
        link = re.search(r"(/(?:sys|proc)/\S*) -> (\S+)$", line)
        if line.startswith("==> ") or link:
            if path:
                tree.files[path] = "\n".join(lines).rstrip("\n")
            path, lines = ("" if link else line[4:-4].strip()), []
            if link:
                tree.links[link[1]] = link[2]
        elif not line.startswith("#") or path:
            lines.append(line)


_STATES: Final = {"Down": "1: DOWN", "Initializing": "2: INIT", "Armed": "3: ARMED", "Active": "4: ACTIVE"}
_PHYSICAL: Final = {"Sleep": 1, "Polling": 2, "Disabled": 3, "LinkUp": 5, "LinkErrorRecovery": 6}
# drivers/infiniband/core/sysfs.c, rate_show.
_RATES: Final = {
    "10": "10 Gb/sec (4X SDR)", "20": "20 Gb/sec (4X DDR)", "25": "25 Gb/sec (1X EDR)", "40": "40 Gb/sec (4X QDR)",
    "50": "50 Gb/sec (1X HDR)", "56": "56 Gb/sec (4X FDR)", "100": "100 Gb/sec (4X EDR)", "200": "200 Gb/sec (4X HDR)",
    "400": "400 Gb/sec (4X NDR)", "800": "800 Gb/sec (4X XDR)",
}  # fmt: skip


def _ibstat(text: str, tree: Tree) -> None:
    for device, body in re.findall(r"^CA '(\S+)'\n((?:[ \t].*\n?)+)", text, re.MULTILINE):
        folder = f"/sys/class/infiniband/{device}"
        head, *ports = re.split(r"^\s+Port (\d+):\n", body, flags=re.MULTILINE)
        card = _fields(head)
        tree.put(
            folder,
            {
                "hca_type": card.get("CA type", ""),
                "fw_ver": card.get("Firmware version", ""),
                "hw_rev": card.get("Hardware version", ""),
                "node_guid": _guid(card.get("Node GUID", "")),
                "sys_image_guid": _guid(card.get("System image GUID", "")),
                "node_type": "1: CA",
            },
        )
        for number, lines in zip(ports[::2], ports[1::2], strict=True):
            port = _fields(lines)
            physical, rate = port.get("Physical state", ""), port["Rate"]
            values = {
                "state": _STATES[port["State"]],
                "phys_state": f"{_PHYSICAL.get(physical, 0)}: {physical}",
                "rate": _RATES.get(rate, f"{rate} Gb/sec"),
                "link_layer": port.get("Link layer", ""),
            }
            tree.put(f"{folder}/ports/{number}", values)
            if "NetXtreme" not in card.get("CA type", ""):  # bnxt_re has hw_counters alone: prometheus/procfs pull 687
                tree.put(f"{folder}/ports/{number}/counters", dict.fromkeys(PMA_MAXIMA, 0))
            tree.put(f"{folder}/ports/{number}/hw_counters", {**dict.fromkeys(HW_COUNTERS, 0), "lifespan": 10})
            tree.put(
                f"{folder}/ports/{number}",
                {"lid": hex(int(port.get("Base lid", "0"), 0)), "sm_lid": hex(int(port.get("SM lid", "0"), 0))},
            )


def _fields(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\s*([^:\n]+?):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))


def _guid(text: str) -> str:
    digits = text.removeprefix("0x").rjust(16, "0")
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))


_CLASSES: Final = {
    "3D controller": "0x030200", "VGA compatible controller": "0x030000", "Infiniband controller": "0x020700",
    "Ethernet controller": "0x020000", "Non-Volatile memory controller": "0x010802", "Bridge": "0x068000",
    "PCI bridge": "0x060400", "Network controller": "0x028000", "Fabric controller": "0x020800",
    "Processing accelerators": "0x120000", "System peripheral": "0x088000", "USB controller": "0x0c0330",
    "DMA controller": "0x080100",
}  # fmt: skip
_VENDORS: Final = {
    "NVIDIA": "0x10de", "Mellanox": "0x15b3", "Intel": "0x8086", "Broadcom": "0x14e4", "Amazon.com,": "0x1d0f",
    "Advanced": "0x1022", "Samsung": "0x144d", "Cornelis": "0x434e", "Aquantia": "0x1d6a", "ASPEED": "0x1a03",
    "Microsoft": "0x1414", "Google,": "0x1ae0", "Red": "0x1af4", "Realtek": "0x10ec", "MEDIATEK": "0x14c3",
}  # fmt: skip
_FUNCTION: Final = re.compile(
    r"^((?:[0-9a-f]{4,5}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\[]+?)(?: \[([0-9a-f]{4})\])?: (.*)$"
)


def _lspci(text: str, tree: Tree) -> None:
    """Read ``lspci``, with or without ``-D``, ``-nn``, ``-k`` and ``-vv``."""
    folder = ""
    for line in text.splitlines():
        if function := _FUNCTION.match(line):
            address = function[1] if function[1].count(":") == 2 else f"0000:{function[1]}"
            ids = re.search(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", function[4])
            folder = f"/sys/bus/pci/devices/{address}"
            tree.links.setdefault(folder, f"../../../devices/pci{address[:-5]}/{address}")
            tree.put(
                folder,
                {
                    "vendor": f"0x{ids[1]}" if ids else _VENDORS.get(function[4].split()[0], "0x0000"),
                    "device": f"0x{ids[2]}" if ids else "0x0000",
                    "class": f"0x{function[3]}00" if function[3] else _CLASSES.get(function[2], "0x000000"),
                },
            )
        elif driver := re.search(r"Kernel driver in use: (\S+)", line):
            tree.links[f"{folder}/driver"] = f"/sys/bus/pci/drivers/{driver[1]}"
        elif link := re.search(r"Lnk(Cap|Sta):.*?Speed ([\d.]+)GT/s.*?Width x(\d+)", line):
            which = "max" if link[1] == "Cap" else "current"
            speed = f"{float(link[2]):.1f} GT/s PCIe"
            tree.put(folder, {f"{which}_link_speed": speed, f"{which}_link_width": link[3]})


_FLAGS: Final = {"UP": 0x1, "BROADCAST": 0x2, "LOOPBACK": 0x8, "LOWER_UP": 0, "MULTICAST": 0x1000, "MASTER": 0x400,
                 "SLAVE": 0x800, "NOARP": 0x80, "POINTOPOINT": 0x10}  # fmt: skip
_KINDS: Final = {"ether": 1, "infiniband": 32, "loopback": 772, "none": 65534}


def _ip_link(text: str, tree: Tree) -> None:
    """Read ``ip link``, with or without ``-d``."""
    interface = r"^(\d+): ([^:@\s]+)(?:@\S+)?: <([A-Z_,0-9-]*)> mtu (\d+).* state (\S+).*\n\s+link/(\S+) ?(\S*)"
    for found in re.finditer(interface, text, re.MULTILINE):
        index, name, words, mtu, state, kind, address = found.groups()
        folder = f"/sys/class/net/{name}"
        flags = sum(_FLAGS.get(word, 0) for word in words.split(","))
        tree.links.setdefault(folder, f"../../devices/virtual/net/{name}")
        tree.put(
            folder,
            {
                "ifindex": index, "mtu": mtu, "operstate": state.lower(), "flags": hex(flags),
                "type": _KINDS.get(kind, 1),
                "carrier": int("LOWER_UP" in words), "address": address, "carrier_changes": 1, "carrier_up_count": 1,
                "carrier_down_count": 0, "dev_port": 0, "dev_id": "0x0",
            },
        )  # fmt: skip
        tree.put(f"{folder}/statistics", dict.fromkeys(INTERFACE_STATISTICS, 0))
        if master := re.search(r" master (\S+)", found[0]):
            tree.links[f"{folder}/master"] = f"/sys/class/net/{master[1]}"
        if "MASTER" in words.split(","):
            tree.put(f"{folder}/bonding", {"slaves": ""})


def mountinfo(line: str, number: int) -> str:
    """Return a line of ``/proc/self/mountinfo`` for one of ``/proc/mounts`` or ``mount``; one of mountinfo as it is."""
    if " - " in line:
        return line
    if printed := re.fullmatch(r"(\S+) on (\S+) type (\S+) \((\S+)\)", line):
        line = " ".join(printed.groups())
    device, point, kind, options, *_ = line.split(" ")
    return f"{number} 1 0:{number} / {point} {options} shared:{number} - {kind} {device} {options}"


def _mounts(text: str, tree: Tree) -> None:
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    tree.files["/proc/1/mountinfo"] = "\n".join(mountinfo(line, 20 + number) for number, line in enumerate(lines))


def _df(text: str, tree: Tree) -> None:
    """Read ``df -k``: device, 1K blocks, used, available, use, mount point."""
    for blocks, used, point in re.findall(r"^\S+\s+(\d+)\s+(\d+)\s+\d+\s+\d+%\s+(/.*)$", text, re.MULTILINE):
        tree.sizes[point] = int(blocks), int(used)


def process_files(pid: int, name: str) -> dict[str, str]:
    """Return the files of a process that root runs, as a service of systemd unless it is the kernel's own."""
    is_of_kernel = name.startswith(("kworker", "kthreadd"))
    fields = " ".join(["S", "2" if is_of_kernel else "1", *["0"] * 17, str(100 * pid), "0"])
    return {
        "stat": f"{pid} ({name[:15]}) {fields}",
        "status": f"Name:\t{name[:15]}\nUid:\t0\t0\t0\t0",
        "cgroup": "0::/" if is_of_kernel or pid == 1 else f"0::/system.slice/{name}.service",
    }


def _ps(text: str, tree: Tree) -> None:
    """Read ``ps -e``: PID, TTY, TIME, CMD."""
    for pid, name in re.findall(r"^\s*(\d+)\s+\S+\s+[\d:-]+\s+(\S.*)$", text, re.MULTILINE):
        tree.put(f"/proc/{pid}", process_files(int(pid), name))


def _lsmod(text: str, tree: Tree) -> None:
    for name in re.findall(r"^(\w+)\s+\d+\s+-?\d+", text, re.MULTILINE):
        tree.files[f"/sys/module/{name}/initstate"] = "live"


def _lscpu(text: str, tree: Tree) -> None:
    values = _fields(text)
    online, offline = values["On-line CPU(s) list"], values.get("Off-line CPU(s) list", "")
    last = max(int(number) for number in re.findall(r"\d+", f"{online},{offline}"))
    tree.put("/sys/devices/system/cpu", {"online": online, "offline": offline, "present": f"0-{last}"})
    if values.get("Thread(s) per core") == "1" and offline:
        tree.put("/sys/devices/system/cpu/smt", {"active": "0", "control": "off"})


def _nvme_list(text: str, tree: Tree) -> None:
    """Read ``nvme list``, whose second line rules the columns: a serial number may have blanks."""
    titles, ruler, *rows = text.splitlines()
    columns = {titles[slice(*found.span())].strip(): slice(*found.span()) for found in re.finditer("-+", ruler)}
    for row in rows:
        if controller := re.match(r"/dev/(nvme\d+)n\d+", row):
            serial, model = (row[columns[title]].strip() for title in ("SN", "Model"))
            tree.put(
                f"/sys/class/nvme/{controller[1]}",
                {
                    "state": "live", "serial": serial, "model": model, "firmware_rev": row.split()[-1],
                    "transport": "pcie",
                },
            )  # fmt: skip


def _nvidia_smi(text: str, tree: Tree) -> None:
    """Read the table of ``nvidia-smi``: two lines for a GPU."""
    version = re.search(r"Driver Version: ([\d.]+)", text)
    tree.driver = version[1] if version else ""
    row = re.compile(
        r"^\|\s+(\d+)\s+(\S.*?)\s+(On|Off|N/A)\s*\|\s+([0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d)\s+\S+\s*\|\s+(\S+) \|\n"
        r"^\|.*?\|(.*?)\|",
        re.MULTILINE,
    )
    for index, name, persistence, address, ecc, memory in row.findall(text):
        total = re.search(r"/\s*(\d+)MiB", memory)
        tree.gpus.append(
            GpuPrint(
                int(index), name, address, persistence == "On", None if ecc == "N/A" else ecc != "Off",
                int(total[1]) if total else 0,
            )
        )  # fmt: skip


def _dmesg(text: str, tree: Tree) -> None:
    tree.dmesg += [line for line in text.splitlines() if line]


READERS: Final[Mapping[str, Callable[[str, Tree], None]]] = {
    "files.txt": _files,
    "lspci.txt": _lspci,
    "ibstat.txt": _ibstat,
    "ip-link.txt": _ip_link,
    "mounts.txt": _mounts,
    "df.txt": _df,
    "ps.txt": _ps,
    "lsmod.txt": _lsmod,
    "lscpu.txt": _lscpu,
    "nvme-list.txt": _nvme_list,
    "nvidia-smi.txt": _nvidia_smi,
    "dmesg.txt": _dmesg,
}
"""The files of a machine's folder, in the order in which they are read: existing ones stay."""


def functions_of(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the PCI functions that the links lead through: address, and its folder below ``/sys/devices``."""
    for target in tree.links.values():
        path = target[target.find("devices/pci") :]
        for found in _ADDRESS.finditer(path):
            if path.startswith("devices/pci"):
                yield found[0], f"/sys/{path[: found.end()]}"
