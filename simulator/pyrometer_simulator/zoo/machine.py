"""A machine of the zoo while it is played: its files on disk, its GPUs, its clock, and a way back for each change."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from pyrometer_exporters.node.checks.gpus import DriverAsker
from pyrometer_exporters.node.checks.look import Look, Looker
from pyrometer_exporters.node.checks.node import Paths
from pyrometer_exporters.node.checks.workers import run_here
from pyrometer_simulator.host_files import FileSystems, SimulatedStatFs
from pyrometer_simulator.kmsg import INFO, KernelLog
from pyrometer_simulator.nvml import FakeLibrary, SimulatedGpus
from pyrometer_simulator.nvml.library import put_under_pynvml
from pyrometer_simulator.yaml_loader import LOADER
from pyrometer_simulator.zoo.prints import READERS, Tree, functions_of

DAY: Final = 86_400.0
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}
_START: Final = 1_760_000_000.0
# A machine that has been up for a while, and a boot of today's servers.
_UPTIME: Final = 20 * DAY
_BOOT_SECONDS: Final = 300.0
_KEYS: Final = ("name", "sources", "published", "assumptions", "driver", "expect", "week", "losses")
_DMESG: Final = re.compile(r"(?:<(\d)>)?\[\s*(\d+\.\d+)\] (.*)")


def seconds(text: str) -> float:
    """Return the seconds of ``30m``, ``8h`` or ``2d``."""
    return float(text[:-1]) * _UNITS[text[-1]]


@dataclass(frozen=True)
class Description:
    """Hold what a machine's folder describes: ``machine.yaml``, and prints.

    Attributes:
        folder: its name is the machine's short one.
        name: in words.
        sources: where the facts were published; empty for none.
        published: which part of a print has every value as its source prints it, by the print's file name.
        assumptions: what no source shows.
        driver: answers of NVML that ``nvidia-smi`` doesn't print, by the simulated driver's names; for one GPU below
            its number.
        expect: the content of ``checks.yaml``, as an operator of such a machine would write it; empty for none.
        week: events, each ``after`` a time, with verbs of ``acts.py``.
        losses: each one verb of ``acts.py`` with its argument.
    """

    folder: Path
    name: str
    sources: Sequence[str] = ()
    published: Mapping[str, str] = field(default_factory=dict)
    assumptions: Sequence[str] = ()
    driver: Mapping[Any, Any] = field(default_factory=dict)
    expect: str = ""
    week: Sequence[Mapping[str, Any]] = ()
    losses: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def read(cls, folder: Path) -> Description:
        """Read a machine's folder.

        Raises:
            ValueError: a key or a file that no machine has.
        """
        values = yaml.load((folder / "machine.yaml").read_text(encoding="utf-8"), LOADER)  # noqa: S506  a safe one
        strange = [*(set(values) - {*_KEYS}), *({path.name for path in folder.iterdir()} - {"machine.yaml", *READERS})]
        if strange:
            msg = f"{folder}: unknown {', '.join(sorted(strange))}"
            raise ValueError(msg)
        return cls(folder, **values)

    def tree(self) -> Tree:
        """Return what the prints show."""
        tree = Tree()
        for name, read in READERS.items():
            path = self.folder / name
            if path.exists():
                read(path.read_text(encoding="utf-8"), tree)
        return tree


class Machine:
    """A machine under ``root``; paths of files are those on the machine, such as ``/sys/class/net``."""

    def __init__(self, description: Description, root: Path) -> None:
        self.description = description
        self.root = root
        self.tree = description.tree()
        self.wall = _START
        self.booted = _START - _UPTIME
        self.file_systems = FileSystems()
        self.clock_state: int | None = 0
        self._undo: list[Callable[[], object]] = []
        self._removed = 0
        for name in ("sys", "proc", "state", "removed"):
            (root / name).mkdir(parents=True)
        (root / "checks.yaml").write_text(description.expect, encoding="utf-8")
        self.log = KernelLog(root / "kmsg", self.uptime)
        self._lay_out()
        self.gpus = self._new_gpus()
        self.library = FakeLibrary(root / "gpus", self.since_creation)
        self._say_dmesg()
        self._new_boot()
        self.sizes_of(self.tree.sizes)
        paths = Paths(root / "sys", root / "proc", Path("/"), root / "kmsg")
        replaced = {
            "statvfs": self.file_systems.statvfs, "boottime": self.uptime, "clock_state": lambda: self.clock_state
        }  # fmt: skip
        self.looker = Looker(
            paths, root / "checks.yaml", root / "state", DriverAsker(), run_here, lambda: self.wall, replaced
        )

    def uptime(self) -> float:
        """Return the seconds since the boot."""
        return self.wall - self.booted

    def since_creation(self) -> float:
        """Return seconds that never go back, for what the driver counts."""
        return self.wall - _START + _UPTIME

    def look(self, *, keep: bool = True) -> Look:
        """Run the checks."""
        put_under_pynvml(self.library)
        self.write_uptime()
        return self.looker.look(keep=keep)

    def close(self) -> None:
        """Release whatever hangs."""
        self.file_systems.release()
        self.library.release()
        put_under_pynvml(None)

    def path(self, path: str) -> Path:
        """Return where a file of the machine is."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        """Return the text of a file; empty where there is none."""
        try:
            return self.path(path).read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, in order."""
        folder = self.path(path)
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def real(self, path: str) -> str:
        """Return the machine's path behind links."""
        return "/" + str(self.path(path).resolve().relative_to(self.root.resolve()))

    def write(self, path: str, text: object) -> None:
        """Write a file; a link on its way is followed, as by the kernel."""
        place = self.path(path)
        before = place.read_bytes() if place.is_file() else None
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n", encoding="utf-8")
        self._undo.append(lambda: place.unlink() if before is None else place.write_bytes(before))

    def remove(self, path: str) -> None:
        """Take a file, a link or a folder away, if it exists."""
        if os.path.lexists(self.path(path)):
            self._removed += 1
            self.rename(path, f"/removed/{self._removed}")

    def rename(self, old: str, new: str) -> None:
        """Give a file, a link or a folder another name."""
        source, target = self.path(old), self.path(new)
        source.rename(target)
        self._undo.append(lambda: target.rename(source))

    def link(self, path: str, target: str) -> None:
        """Make a link, and the folder that it leads to; a relative target counts from where the link really is."""
        place = self.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place = place.parent.resolve() / place.name
        goal = self.path(target) if target.startswith("/") else Path(os.path.normpath(place.parent / target))
        goal.mkdir(parents=True, exist_ok=True)
        self.remove(path)
        place.symlink_to(os.path.relpath(goal.resolve(), place.parent))
        self._undo.append(place.unlink)

    def link_to_functions(self) -> None:
        """Give each device of a class its link to the function that it is on, as the kernel does."""
        for kind in ("infiniband", "net", "nvme"):
            for name in self.names(f"/sys/class/{kind}"):
                device = self.path(f"/sys/class/{kind}/{name}").resolve()
                is_physical = device.parent.name == kind and device.parents[1].name not in ("virtual", "class")
                if is_physical and not (device / "device").is_symlink():
                    self.link(f"/sys/class/{kind}/{name}/device", "../..")

    def say(self, line: str) -> None:
        """Let the kernel log a line, with its level as ``dmesg -r`` prints it: ``<3>nvme nvme2: ...``."""
        level = re.match(r"<(\d)>", line)
        self.log.write(line[3:] if level else line, int(level[1]) if level else INFO)

    def set_gpus(self, **settings: Any) -> None:  # noqa: ANN401  whatever the simulated driver takes
        """Change what the driver answers of all GPUs."""
        for gpu in self.gpus:
            gpu.set(**settings)

    def reboot(self) -> None:
        """Boot again: a new boot id, an empty kernel log, the driver loaded again."""
        self.wall += _BOOT_SECONDS
        self.booted = self.wall - _BOOT_SECONDS / 2
        self.log.truncate()
        self.log.sequence = 0
        self._say_dmesg()
        self.gpus.reload_driver()
        self._new_boot()

    def sizes_of(self, sizes: Mapping[str, tuple[int, int]]) -> None:
        """Let file systems have these sizes: 1K blocks, and used ones."""
        for point, (blocks, used) in sizes.items():
            self.file_systems.sizes[point] = SimulatedStatFs(1024, blocks - used, f_blocks=blocks)

    def mark(self) -> Callable[[], None]:
        """Return a function that brings back all that is changed from now on."""
        steps, wall, booted, clock = len(self._undo), self.wall, self.booted, self.clock_state
        gpus, log, sequence = (self.root / "gpus").read_bytes(), self.log.path.read_bytes(), self.log.sequence
        state = {path: path.read_bytes() for path in (self.root / "state").iterdir()}
        systems = (dict(self.file_systems.sizes), set(self.file_systems.hanging), dict(self.file_systems.errors))

        def back() -> None:
            while len(self._undo) > steps:
                self._undo.pop()()
            self.wall, self.booted, self.clock_state, self.log.sequence = wall, booted, clock, sequence
            self.file_systems.sizes, self.file_systems.hanging, self.file_systems.errors = systems
            self.log.path.write_bytes(log)
            self.library.release()
            with (self.root / "gpus").open("r+b") as file:
                file.write(gpus)
            self.library = FakeLibrary(self.root / "gpus", self.since_creation)
            for path in (self.root / "state").iterdir():
                path.unlink()
            for path, data in state.items():
                path.write_bytes(data)

        return back

    def _lay_out(self) -> None:
        """Write the prints' files: links first, from the shortest on, as others lead through them."""
        tree = self.tree
        places: dict[str, str] = {}
        self._place_rdma_devices()
        for address, folder in functions_of(tree):
            places[address] = max(folder, places.get(address, ""), key=len)
        for address, folder in places.items():
            self.link(f"/sys/bus/pci/devices/{address}", folder)
        functions = {f"/sys/bus/pci/devices/{address}" for address in places}
        for path in sorted(tree.links.keys() - functions, key=len):
            self.link(path, tree.links[path])
        for path, text in tree.files.items():
            self.write(path, text)
        self.link_to_functions()
        self._undo.clear()

    def _place_rdma_devices(self) -> None:
        """Put RDMA devices without a place of their own on the functions of the bus, in their order."""
        tree = self.tree
        names = sorted({found[1] for path in tree.files if (found := re.match(r"/sys/class/infiniband/(\w+)/", path))},
                       key=lambda name: (len(name), name))  # fmt: skip
        functions = sorted(
            path.removesuffix("/vendor") for path, text in tree.files.items()
            if path.endswith("/vendor") and text == "0x15b3"
            and tree.files.get(path.replace("/vendor", "/class"), "")[:6] in ("0x0200", "0x0207")
        )  # fmt: skip
        for name, function in zip(names, functions, strict=False):
            place = tree.links[function].removeprefix("../../../")
            tree.links.setdefault(f"/sys/class/infiniband/{name}", f"../../{place}/infiniband/{name}")

    def _new_gpus(self) -> SimulatedGpus:
        prints, settings = self.tree.gpus, self.description.driver
        model = prints[0].name if prints else ""
        gpus = SimulatedGpus(
            self.root / "gpus", len(prints), model, self.tree.driver or "0.0", monotonic=self.since_creation
        )
        for gpu, row in zip(gpus, prints, strict=True):
            gpu.place(row.address, row.memory_mib)
            gpu.set(ecc="unset" if row.ecc is None else "on" if row.ecc else "off")
            gpu.set(**{name: value for name, value in settings.items() if isinstance(name, str)})
            gpu.set(**settings.get(row.index, {}))
            self._add_to_bus(row.address)
        if not prints:
            gpus.fail_init(12)  # no library
        elif not self.read("/proc/driver/nvidia/version"):
            self.load_driver(self.tree.driver)
        return gpus

    def load_driver(self, version: str) -> None:
        """Write which module of the NVIDIA driver is loaded."""
        self.write(
            "/proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (root@build)",
        )

    def _add_to_bus(self, address: str) -> None:
        folder = f"/sys/bus/pci/devices/{address[4:].lower()}"
        if not self.path(folder).exists():
            self.link(folder, f"/sys/devices/pci{address[4:].lower()[:-5]}/{address[4:].lower()}")
            self.write(f"{folder}/vendor", "0x10de")
            self.write(f"{folder}/class", "0x030200")
        if not self.path(f"{folder}/driver").exists():
            self.link(f"{folder}/driver", "/sys/bus/pci/drivers/nvidia")

    def _say_dmesg(self) -> None:
        """Log the lines of the boot at their own times."""
        for line in self.tree.dmesg:
            found = _DMESG.match(line)
            level, seconds_, text = found.groups() if found else (None, "0", line)
            record = f"{level or INFO},{self.log.sequence},{round(float(seconds_) * 1e6)},-;{text}\n"
            with self.log.path.open("a", encoding="utf-8") as file:
                file.write(record)
            self.log.sequence += 1

    def _new_boot(self) -> None:
        self.write("/proc/sys/kernel/random/boot_id", uuid.uuid5(uuid.NAMESPACE_OID, str(self.wall)))
        self.write_uptime()

    def write_uptime(self) -> None:
        """Write how long the machine is up."""
        self.path("/proc/uptime").write_text(f"{self.uptime():.2f} 1000.00\n", encoding="utf-8")
