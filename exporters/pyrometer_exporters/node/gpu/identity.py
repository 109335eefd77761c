"""The identity of a GPU: index, UUID, address and model, and the labels that its samples carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu import families
from pyrometer_exporters.node.gpu.inventory import kernel_pci_id
from pyrometer_exporters.node.gpu.nvml import Handle, Nvml, optional, value_or_none


@dataclass(frozen=True)
class Identity:
    """The identity of a GPU; read when it is opened and kept while it can't be."""

    index: int
    uuid: str = ""
    pci_bus_id: str = ""
    """NVML's spelling, ``00000000:18:00.0``."""
    model: str = ""
    serial: str = ""
    vbios: str = ""
    driver: str = ""

    @property
    def place(self) -> str:
        """The PCI address, or the UUID of a GPU that is on no bus: no two GPUs share it."""
        return self.pci_bus_id or self.uuid

    @cached_property
    def address(self) -> str | None:
        """The PCI address as the kernel spells it; None where it is unknown."""
        return kernel_pci_id(self.pci_bus_id) if self.pci_bus_id else None

    def labels(self) -> tuple[str, str]:
        """Return the values of families.GPU_LABELS."""
        return str(self.index), self.uuid

    def dcgm_labels(self, hostname: str) -> tuple[str, ...]:
        """Return the values of families.DCGM_LABELS; dcgm-exporter makes ``device`` from the index as well."""
        index = str(self.index)
        return index, self.uuid, self.pci_bus_id, f"nvidia{index}", self.model, hostname, self.driver

    def info(self) -> Sample:
        """Make the sample of pyrometer_gpu_info."""
        pci = kernel_pci_id(self.pci_bus_id)
        return families.INFO.sample(1, *self.labels(), pci, self.model, self.serial, self.vbios, self.driver)


def read_identity(nvml: Nvml, handle: Handle, driver: str, before: Identity | None, number: int | None) -> Identity:
    """Read the identity of the GPU under ``handle``.

    Args:
        nvml: the driver's library.
        handle: the GPU.
        driver: the driver's version.
        before: the identity that it had before; returned again unless the GPU was exchanged.
        number: the number to serve the GPU under; None for NVML's index.

    Raises:
        NvmlError: UUID or index can't be read.
    """
    uuid = nvml.text(handle, "UUID")
    index = nvml.index(handle) if number is None else number
    if before is not None and before.uuid == uuid and before.driver == driver and before.model:
        return replace(before, index=index) if before.index != index else before
    return Identity(
        index=index,
        uuid=uuid,
        pci_bus_id=value_or_none(lambda: nvml.pci_bus_id(handle)) or "",  # the GPU of a Tegra is on no bus
        model=optional(lambda: nvml.text(handle, "Name")) or "",
        serial=optional(lambda: nvml.text(handle, "Serial")) or "",  # consumer cards have none
        vbios=optional(lambda: nvml.text(handle, "VbiosVersion")) or "",
        driver=driver,
    )
