"""Ask the driver about all GPUs, once for all checks, each GPU in a thread of its own.

For a child process that may be left behind: a thread that hangs in the driver is not waited for.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.gpu.binding import Pynvml
from pyrometer_exporters.node.gpu.inventory import Selection, kernel_pci_id
from pyrometer_exporters.node.gpu.nvml import Handle, Nvml, NvmlError, optional

PATIENCE_SECONDS: Final = 3.0
"""How long one GPU may take, and the driver's start, which initialises all of them where none is held open."""

# nvml.h: NVML_FI_DEV_*
REMAP_PENDING, REMAP_FAILURE, RETIRED_PENDING, RECOVERY_ACTION = 144, 145, 31, 230
ECC_UNCORRECTED, LINK_COUNT, LINK_STATE = 4, 91, 165
ECC_MODE = 1
MOST_LINKS: Final = 36
HUNG: Final = "deadline"


@dataclass
class GpuFacts:
    """One GPU; a value is None where this board or driver doesn't have it."""

    index: int
    address: str = ""
    uuid: str = ""
    model: str = ""
    vbios: str = ""
    board: str = ""
    """The part number of its board."""
    problem: str = ""
    """Why it can't be read; empty if it can."""
    fields: Mapping[Any, float] = field(default_factory=dict)
    width: tuple[int, int] | None = None
    """Lanes of the PCIe link in use, and at most."""
    generation: tuple[int, int] | None = None
    utilisation: int | None = None
    persistence: bool | None = None
    fabric_state: int | None = None
    fabric_status: int | None = None
    fabric_spans_nodes: bool = False
    nvlinks: Mapping[int, bool] = field(default_factory=dict)
    """By link, whether it is up; empty for a GPU without."""
    processes: tuple[int, ...] = ()


@dataclass
class GpuView:
    """All GPUs, as far as they answer.

    Attributes:
        on_bus: PCI addresses of the GPUs that this node has on its bus, without those given to virtual machines; None
            where the bus can't be seen.
        problem: why the driver can't be asked; empty if it can.
        left_alone: why nobody asked it; empty if somebody did.
        driver: its version.
        library: the version of NVML.
    """

    on_bus: list[str] | None = None
    problem: str = ""
    left_alone: str = ""
    driver: str = ""
    library: str = ""
    gpus: list[GpuFacts] = field(default_factory=list)

    @property
    def answering(self) -> list[GpuFacts]:
        """The GPUs that could be read."""
        return [gpu for gpu in self.gpus if not gpu.problem]


class DriverAsker:
    """Asks NVML.

    Args:
        selection: which GPUs may be opened.
        left_alone: returns why the driver must not be asked now, such as a reset under way; else an empty text.
        nvml: the real one by default.
    """

    def __init__(
        self,
        selection: Selection | None = None,
        left_alone: Callable[[], str] = lambda: "",
        nvml: Nvml | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._selection = selection or Selection()
        self._left_alone = left_alone
        self._nvml = nvml or Pynvml()
        self._patience = patience

    def __call__(self, node: Node) -> GpuView:
        """Return what the driver says; within twice the patience, whatever hangs."""
        addresses = node.gpus_on_bus
        if addresses is not None:
            addresses = [address for address in addresses if not self._selection.refuses(address, None)]
        view = GpuView(addresses, left_alone=self._left_alone())
        if view.left_alone:
            return view
        count = self._began(view)
        if not count:
            return view
        view.gpus = [GpuFacts(index) for index in range(count)]
        threads = [self._thread(self._read, gpu) for gpu in view.gpus]
        until = time.monotonic() + self._patience
        for gpu, thread in zip(view.gpus, threads, strict=True):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                view.gpus[gpu.index] = GpuFacts(gpu.index, gpu.address, problem=HUNG)
        if not any(thread.is_alive() for thread in threads):  # the library must not be left under a call
            with contextlib.suppress(NvmlError):
                self._nvml.shutdown()
        view.gpus = [gpu for gpu in view.gpus if self._takes(gpu)]
        return view

    def _began(self, view: GpuView) -> int:
        counted: list[int] = []
        thread = self._thread(self._begin, view, counted)
        thread.join(self._patience)
        if thread.is_alive():
            view.problem = f"nvmlInit has not returned within {self._patience:.0f} s: the driver hangs"
        return counted[0] if counted else 0

    def _begin(self, view: GpuView, counted: list[int]) -> None:
        try:
            self._nvml.init()
            view.driver = self._nvml.driver_version()
            counted.append(self._nvml.device_count())
        except PartError as error:
            view.problem = f"{error.reason}: {error}"
        with contextlib.suppress(NvmlError):
            view.library = self._nvml.library_version()

    def _thread(self, call: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=call, args=arguments, daemon=True)
        thread.start()
        return thread

    def _takes(self, gpu: GpuFacts) -> bool:
        return self._selection.takes(gpu.index, gpu.address or None, gpu.uuid or None)

    def _read(self, gpu: GpuFacts) -> None:
        nvml = self._nvml
        if not self._selection.takes(gpu.index, None, None) and self._selection.include is None:
            return
        try:
            handle = nvml.open_index(gpu.index)
            gpu.address = kernel_pci_id(nvml.pci_bus_id(handle))
            gpu.uuid, gpu.model = nvml.text(handle, "UUID"), nvml.text(handle, "Name")
            gpu.vbios = optional(lambda: nvml.text(handle, "VbiosVersion")) or ""
            gpu.board = optional(lambda: nvml.text(handle, "BoardPartNumber")) or ""
            if self._takes(gpu):
                self._read_state(gpu, handle)
        except PartError as error:
            gpu.problem = f"{error.reason}: {error}"

    def _read_state(self, gpu: GpuFacts, handle: Handle) -> None:
        links = [(LINK_STATE, link) for link in range(MOST_LINKS)]
        single = [ECC_MODE, ECC_UNCORRECTED, RETIRED_PENDING, LINK_COUNT, REMAP_PENDING, REMAP_FAILURE, RECOVERY_ACTION]
        gpu.fields = self._nvml.fields(handle, [*single, *links])
        load = optional(partial(self._nvml.utilisation_percent, handle))
        gpu.utilisation = None if load is None else load[0]
        gpu.nvlinks = self._links(handle, gpu.fields)
        gpu.width = self._pair(handle, "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth")
        gpu.generation = self._pair(handle, "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration")
        mode = optional(partial(self._nvml.ask, "nvmlDeviceGetPersistenceMode", handle))
        gpu.persistence = None if mode is None else bool(mode)
        self._read_fabric(gpu, handle)
        running = optional(partial(self._nvml.ask, "nvmlDeviceGetComputeRunningProcesses", handle))
        gpu.processes = tuple(int(process.pid) for process in running or ())

    def _links(self, handle: Handle, fields: Mapping[Any, float]) -> dict[int, bool]:
        """Return which links are up, from field 165 (Hopper and newer) or the call that is older."""
        count = min(int(fields.get(LINK_COUNT, 0)), MOST_LINKS)
        by_field = {link: fields[LINK_STATE, link] != 0 for link in range(count) if (LINK_STATE, link) in fields}
        if by_field or not count:
            return by_field
        ask = partial(self._nvml.ask, "nvmlDeviceGetNvLinkState", handle)
        by_call = {link: optional(partial(ask, link)) for link in range(count)}
        return {link: bool(state) for link, state in by_call.items() if state is not None}

    def _pair(self, handle: Handle, now: str, most: str) -> tuple[int, int] | None:
        values = [optional(partial(self._nvml.ask, name, handle)) for name in (now, most)]
        # 0 and -1 in an unsigned: the driver doesn't know.
        plausible = [int(value) for value in values if value is not None and 0 < value < 64]
        return (plausible[0], plausible[1]) if len(plausible) == 2 else None

    def _read_fabric(self, gpu: GpuFacts, handle: Handle) -> None:
        for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
            info = optional(partial(self._nvml.ask, name))
            if info is None:  # a release of the binding without it
                continue
            answer = optional(partial(self._nvml.ask, "nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)))
            if answer is not None:
                if info.state:  # 0: not supported
                    gpu.fabric_state, gpu.fabric_status = int(info.state), int(info.status)
                    gpu.fabric_spans_nodes = any(bytes(info.clusterUuid))
                return


def released(state: Path | None) -> str:
    """Return why the GPUs must be left alone: somebody has asked for them with the file ``gpu-release``."""
    wanted = state is not None and (state / "gpu-release").exists()
    return "the GPUs are released: gpu-release is in the state folder" if wanted else ""
