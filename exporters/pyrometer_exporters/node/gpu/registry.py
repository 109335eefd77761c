"""The GPUs that this exporter knows, and the number under which each is served.

A number is NVML's index (what nvidia-smi and DCGM call the GPU) and the label ``gpu``. NVML numbers its GPUs each time
that it is initialised: if one is lost, all behind it move up. So while a known GPU is missing, the others keep their
numbers and a new one gets a free number; once all are back, numbers are NVML's own. No two are ever the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pyrometer_exporters.node.gpu import inventory
from pyrometer_exporters.node.gpu.adaptive_timeout import AdaptiveTimeout
from pyrometer_exporters.node.gpu.device import Gpu, Shared, State
from pyrometer_exporters.node.gpu.driver import Link
from pyrometer_exporters.node.gpu.inventory import Candidate


class GpuRegistry:
    """The GPUs from first sight on, including those that the selection excludes, which are never read."""

    def __init__(self, shared: Shared, procfs: Path) -> None:
        self._shared = shared
        self._procfs = procfs
        self._all: list[Gpu] = []
        self._generation = 0

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs to be read."""
        return [gpu for gpu in self._all if gpu.is_read]

    @property
    def left_out(self) -> set[str]:
        """The PCI addresses, where known, of the GPUs that aren't read."""
        return {gpu.address for gpu in self._all if not gpu.is_read and gpu.address is not None}

    @property
    def addressed(self) -> bool:
        """True if the PCI address of every GPU is known; if not, a GPU on the bus may be any of them."""
        return all(gpu.address is not None for gpu in self._all)

    def lacks(self, address: str) -> bool:
        """See hotplug.KnownGpus: for a GPU in here once it was asked for, for any other once all were opened."""
        absences = [gpu.is_absent for gpu in self._all if gpu.address == address]
        return all(absences) if absences else self.addressed

    def leaves_out(self, address: str) -> bool:
        """See hotplug.KnownGpus."""
        refusals = [not gpu.is_read for gpu in self._all if gpu.address == address]
        if refusals:
            return all(refusals)
        return self._shared.selection.refuses(address, inventory.uuid_from_proc(self._procfs, address))

    def without(self, given_away: Collection[str]) -> None:
        """Drop the GPUs at these PCI addresses: virtual machines have them now."""
        gone = [gpu for gpu in self._all if gpu.address in given_away]
        for gpu in gone:
            gpu.retire()
        if gone:
            self._all = [gpu for gpu in self._all if gpu not in gone]

    def update(self, link: Link, on_bus: list[str] | None, came: Collection[str] = ()) -> None:
        """Update the list for a connection to the driver, if it is a new one.

        Args:
            link: the connection.
            on_bus: the PCI addresses of the bus's GPUs, if known.
            came: the addresses of those for which this connection was made.
        """
        if link.generation == self._generation:
            return
        self._generation = link.generation
        self._all = [gpu for gpu in self._all if gpu.state is not State.DUPLICATE and not gpu.is_phantom]
        presented = inventory.candidates(link.count, on_bus, self._procfs)
        if not self._all:
            self._all = [Gpu(candidate, self._shared, None) for candidate in presented]
        elif all(candidate.pci_bus_id for candidate in presented):
            self._merge(presented)
        else:
            self._keep_numbers()
            if link.count > len(self._all):  # who is new shows only when they are open
                self._all += [Gpu(candidate, self._shared, number) for candidate, number in self._numbered(presented)]
            else:  # one may be lost to the driver and another have come
                self._try(link, came)
        for gpu in self._all:
            gpu.numbered_for = link.generation
            gpu.timeout = AdaptiveTimeout()  # it may have to be woken again

    def _merge(self, presented: list[Candidate]) -> None:
        present = {candidate.pci_bus_id for candidate in presented}
        # One that was never open nor known by its address can't be told from the rest: it is among those found.
        self._all = [gpu for gpu in self._all if gpu.address is not None]
        addresses = {gpu.address for gpu in self._all}
        newcomers = [candidate for candidate in presented if candidate.pci_bus_id not in addresses]
        if addresses <= present:
            for gpu in self._all:
                gpu.number = None
            self._all += [Gpu(candidate, self._shared, None) for candidate in newcomers]
        else:
            self._keep_numbers()
            self._all += [Gpu(candidate, self._shared, number) for candidate, number in self._numbered(newcomers)]

    def _try(self, link: Link, came: Collection[str]) -> None:
        """Add the GPUs that came, on trial: they are asked for by their addresses."""
        addresses = {gpu.address for gpu in self._all}
        held = sorted(link.held or ())
        candidates = [Candidate(held.index(address), address) for address in came if address not in addresses]
        for candidate, number in self._numbered(candidates):
            self._all.append(Gpu(candidate, self._shared, number, trial=True))

    def _keep_numbers(self) -> None:
        for gpu in self._all:
            gpu.number = gpu.identity.index

    def _numbered(self, newcomers: Iterable[Candidate]) -> Iterable[tuple[Candidate, int]]:
        taken = {gpu.identity.index for gpu in self._all}
        for candidate in newcomers:
            number = candidate.index
            while number in taken:
                number += 1
            taken.add(number)
            yield candidate, number
