"""The stand-in for a GPU: a simulated node of one GPU, and an nvidia-smi that asks its driver."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import pynvml

from gpu_check.place import Place, scratch


def make(folder: Path) -> None:
    """Make the files of a node with one idle GPU."""
    from pyrometer_simulator.nvml import SimulatedGpus  # noqa: PLC0415  only of the stand-in

    gpus = SimulatedGpus(folder / "gpus", count=1, driver="595.45.04")
    gpus.write_pci_tree(folder / "sys")
    (folder / "kmsg").touch()


def work_tensor_cores(place: Place, share: float) -> None:
    """Have the simulated GPU at its highest clock report this tensor activity, 0 to 1."""
    from pyrometer_simulator.nvml import SimulatedGpus  # noqa: PLC0415  only of the stand-in

    gpu = SimulatedGpus(place.gpus, create=False)[0]
    gpu.load()
    gpu.set(gpm={"2": 100.0, "5": 100 * share, "10": 30.0})


def rest(place: Place) -> None:
    """Have the simulated GPU idle again."""
    from pyrometer_simulator.nvml import SimulatedGpus  # noqa: PLC0415  only of the stand-in

    gpu = SimulatedGpus(place.gpus, create=False)[0]
    gpu.set(gpm=None)
    gpu.idle()


@contextlib.contextmanager
def with_nvidia_smi(place: Place) -> Iterator[None]:
    """Put an nvidia-smi on the path for the length of the block: on the stand-in, where there is none."""
    if not place.stand_in:
        yield
        return
    with scratch() as folder:
        program = folder / "nvidia-smi"
        launcher = Path(__file__).resolve().parents[1] / "on_gpu.py"
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {launcher} --child nvidia-smi '{place.text()}' '{{}}'\n")
        program.chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before


def nvidia_smi(place: Place) -> None:
    """Write what ``nvidia-smi -q -x`` does, as far as the simulated driver knows it through pynvml's own wrappers."""
    with place.nvml() as gpu:
        memory = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
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
    tree: dict[str, object] = {}
    for path, value in values.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})  # type: ignore[assignment]
        node[name] = value.decode() if isinstance(value, bytes) else value
    return _elements(tree)


def _elements(tree: dict[str, object]) -> str:
    return "".join(
        f"<{name}>{_elements(value) if isinstance(value, dict) else escape(str(value))}</{name}>"
        for name, value in tree.items()
    )
