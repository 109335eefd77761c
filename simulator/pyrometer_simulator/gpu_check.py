"""The real check of a GPU on a simulated NVIDIA driver, and on PyTorch's CPU build.

python -m pyrometer_simulator.gpu_check --out FOLDER
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from xml.sax.saxutils import escape

import pynvml

from pyrometer_exporters.commands.gpu_check import collectives, load, xid
from pyrometer_exporters.commands.gpu_check.main import main
from pyrometer_exporters.commands.gpu_check.place import Place, say, scratch
from pyrometer_simulator.nccl.job import Job, Layout
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer
from pyrometer_simulator.nvml import SimulatedGpus, installed
from pyrometer_simulator.nvml.features.events import report_xid
from pyrometer_simulator.nvml.gpus import SimulatedGpu
from pyrometer_simulator.overrides import override

PEAK = 989.4e12
BANDWIDTH = 5120 * 2619e6 * 2 / 8
"""Bytes per second of the simulated H100's memory: bus of 5120 bits, 2619 MHz, two transfers a cycle."""


@dataclass(frozen=True)
class StandIn(Place):
    """A simulated node of one GPU, its state in a folder of files."""

    files: str = ""

    stand_in: ClassVar[bool] = True
    program: ClassVar[tuple[str, ...]] = ("-m", "pyrometer_simulator.gpu_check")
    device: ClassVar[str] = "cpu"
    backend: ClassVar[str] = "gloo"
    capability: ClassVar[tuple[float, int] | None] = (4096.0 * PEAK / (4096 * 132 * 1980e6), 132)
    bandwidth: ClassVar[float | None] = BANDWIDTH

    @classmethod
    @contextlib.contextmanager
    @override
    def made(cls, out: Path, scale: float) -> Iterator[StandIn]:
        """Make the files of a node with one idle GPU for the length of a run."""
        files = Path(tempfile.mkdtemp(prefix="gpu-check-stand-in-"))
        try:
            make(files)
            yield cls(str(out), scale, files=str(files))
        finally:
            shutil.rmtree(files, ignore_errors=True)

    @property
    def gpus(self) -> Path:
        """Folder of the simulated driver, which has a file for each GPU."""
        return Path(self.files) / "gpus"

    def gpu(self) -> SimulatedGpu:
        """Return the simulated GPU."""
        return SimulatedGpus(self.gpus, create=False)[0]

    @override
    def exporter_module(self) -> list[str]:
        """Return how Python starts the node exporter here."""
        return ["-m", "pyrometer_simulator.node", "--gpus", str(self.gpus), "--"]

    @override
    def doctor_module(self) -> list[str]:
        """Return how Python starts the doctor here."""
        return ["-m", "pyrometer_simulator.doctor", "--gpus", str(self.gpus), "--"]

    @override
    def node_paths(self) -> list[str]:
        """Return the flags of the simulated node's files."""
        return [f"--path.sysfs={self.files}/sys", f"--path.kmsg={self.files}/kmsg"]

    @contextlib.contextmanager
    @override
    def library(self) -> Iterator[None]:
        """Have pynvml use the simulated driver."""
        with installed(self.gpus):
            yield

    @contextlib.contextmanager
    @override
    def nvidia_smi(self) -> Iterator[None]:
        """Put an nvidia-smi on the path for the length of the block, which asks the simulated driver."""
        with scratch() as folder:
            program = folder / "nvidia-smi"
            module = " ".join(self.program)
            program.write_text(f"#!/bin/sh\nexec {sys.executable} {module} --child nvidia-smi '{self.text()}' '{{}}'\n")
            program.chmod(0o755)
            before = os.environ["PATH"]
            os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
            try:
                yield
            finally:
                os.environ["PATH"] = before

    @contextlib.contextmanager
    @override
    def ras(self, address: tuple[str, int]) -> Iterator[None]:
        """Answer as NCCL's RAS does."""
        with RasServer(RasJob(Job(Layout("one rank"))), address[0], address[1]):
            yield

    @override
    def show_tensor_work(self, share: float) -> None:
        """Have the simulated GPU at its highest clock report this tensor activity, 0 to 1."""
        gpu = self.gpu()
        gpu.load()
        gpu.set(gpm={"2": 100.0, "5": 100 * share, "10": 30.0})

    @override
    def show_rest(self) -> None:
        """Have the simulated GPU idle again."""
        gpu = self.gpu()
        gpu.set(gpm=None)
        gpu.idle()


def make(folder: Path) -> None:
    """Make the files of a node with one idle GPU."""
    gpus = SimulatedGpus(folder / "gpus", count=1, driver="595.45.04")
    gpus.write_pci_tree(folder / "sys")
    (folder / "kmsg").touch()


def run_load(place: StandIn, *, phases: list[dict[str, Any]]) -> None:
    """Have the simulated driver answer as under a load of these phases."""
    load.run_phases(_Loader(place), phases)


class _Loader:
    """Sets what the simulated driver answers, as a GPU under this load would."""

    def __init__(self, place: StandIn) -> None:
        self._gpu = place.gpu()

    def prepare(self) -> None:
        """Appear in the driver's list of processes."""
        self._gpu.set(processes=[[os.getpid(), 1 << 30]], pcie_bytes=[0, 0])

    def end(self) -> None:
        """Disappear from it, and leave the GPU idle."""
        self._gpu.set(processes=None)
        self._rest()

    def run(self, phase: dict[str, Any]) -> dict[str, Any]:
        """Run a phase; return the truth about it."""
        runs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            load.PRODUCTS: self._products, load.DEVICE_COPY: self._device_copy, load.HOST_COPY: self._host_copy,
        }  # fmt: skip
        truth = runs.get(phase["kind"], self._idle)(phase)
        self._rest()
        return truth

    def _rest(self) -> None:
        self._gpu.recover()
        self._gpu.set(gpm=None)
        self._gpu.idle()

    def _products(self, phase: dict[str, Any]) -> dict[str, Any]:
        duty, seconds = phase.get("duty", 1.0), phase["seconds"]
        self._gpu.load(utilisation=round(100 * duty), power_watts=72 + 628 * duty)
        self._gpu.set(gpm={"2": 100 * duty, "5": 90.0 * duty, "10": 30.0 * duty})
        self._gpu.pulse("power_cap", "hw_slowdown", seconds=0.3, every=1.1)
        periods, start = [], time.monotonic()
        while time.monotonic() - start < seconds:
            began = time.monotonic()
            time.sleep(0.01)
            periods.append((began, time.monotonic() - began))
        return {"busy": duty, "flops": 0.9 * duty * PEAK, "periods": periods}

    def _device_copy(self, phase: dict[str, Any]) -> dict[str, Any]:
        self._gpu.load()
        self._gpu.set(gpm={"2": 20.0, "5": 0.0, "10": 80.0})
        time.sleep(phase["seconds"])
        return {"bytes_per_second": 0.8 * BANDWIDTH / 2}

    def _host_copy(self, phase: dict[str, Any]) -> dict[str, Any]:
        start, rate = time.monotonic(), 20e9
        took = 0.0
        while took < phase["seconds"]:
            time.sleep(0.005)
            took = time.monotonic() - start
            self._gpu.set(pcie_bytes=[round(1e6 * took), round(rate * took)])
        return {"bytes": rate * took, "bytes_per_second": rate}

    def _idle(self, phase: dict[str, Any]) -> dict[str, Any]:
        time.sleep(phase["seconds"])
        return {"busy": 0.0, "flops": 0.0}


def fault(place: StandIn) -> None:
    """Have the simulated driver report what it does after a kernel that wrote out of bounds."""
    report_xid(place.gpu(), 31)
    say(code=xid.ILLEGAL_ADDRESS, step="cuCtxSynchronize")


def hang(place: StandIn, *, folder: str) -> None:
    """Wait for a message that nobody sends: gloo has no watchdog, so the dump is asked for."""
    torch, tensor = collectives.begin(place, seconds=2)
    say(ready=True, pid=os.getpid())
    with contextlib.suppress(RuntimeError, ValueError):
        torch.distributed.new_group([0])
        torch.distributed.recv(tensor, src=0)
    collectives.dump(torch, Path(folder), "dump_hang")


def nvidia_smi(place: StandIn) -> None:
    """Write what ``nvidia-smi -q -x`` does, as far as the simulated driver knows it through pynvml's own wrappers."""
    with place.nvml() as gpu:
        memory: Any = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
        rates = pynvml.nvmlDeviceGetUtilizationRates(gpu)
        values = {
            "driver_version": pynvml.nvmlSystemGetDriverVersion(),
            "gpu/product_name": pynvml.nvmlDeviceGetName(gpu),
            "gpu/serial": pynvml.nvmlDeviceGetSerial(gpu),
            "gpu/vbios_version": pynvml.nvmlDeviceGetVbiosVersion(gpu),
            "gpu/uuid": pynvml.nvmlDeviceGetUUID(gpu),
            "gpu/pci/pci_bus_id": pynvml.nvmlDeviceGetPciInfo(gpu).busId,
            "gpu/fb_memory_usage/total": f"{memory.total >> 20} MiB",
            "gpu/fb_memory_usage/used": f"{memory.used >> 20} MiB",
            "gpu/utilization/gpu_util": f"{rates.gpu} %",
            "gpu/temperature/gpu_temp": f"{pynvml.nvmlDeviceGetTemperature(gpu, 0)} C",
            "gpu/clocks/sm_clock": f"{pynvml.nvmlDeviceGetClockInfo(gpu, 1)} MHz",
            "gpu/clocks/mem_clock": f"{pynvml.nvmlDeviceGetClockInfo(gpu, 2)} MHz",
        }
    sys.stdout.write(f'<?xml version="1.0" ?>\n<nvidia_smi_log>{_xml(values)}</nvidia_smi_log>\n')


def _xml(values: dict[str, object]) -> str:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value.decode() if isinstance(value, bytes) else value
    return _elements(tree)


def _elements(tree: dict[str, Any]) -> str:
    return "".join(
        f"<{name}>{_elements(value) if isinstance(value, dict) else escape(str(value))}</{name}>"
        for name, value in tree.items()
    )


StandIn.children = {"load": run_load, "fault": fault, "nvidia-smi": nvidia_smi, "hang": hang}

if __name__ == "__main__":
    sys.exit(main(kind=StandIn))
