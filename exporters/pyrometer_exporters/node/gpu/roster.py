"""Which GPUs this exporter knows, and under which number each is served.

A number is NVML's index (what nvidia-smi and DCGM call the GPU) and the label ``gpu``. NVML counts anew each time that
it is initialised: without a lost GPU, all behind it move up. So while a known GPU is missing, the others keep their
numbers and a newcomer gets a free one; once all are there again, numbers are NVML's own. No two are ever the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pyrometer_exporters.node.gpu import inventory
from pyrometer_exporters.node.gpu.device import Gpu, Shared
from pyrometer_exporters.node.gpu.driver import Link
from pyrometer_exporters.node.gpu.inventory import Candidate
from pyrometer_exporters.node.gpu.patience import Patience


class Roster:
    """The GPUs from first sight on; those left out by the selection are here too, and never read."""

    def __init__(self, shared: Shared, procfs: Path) -> None:
        self._shared = shared
        self._procfs = procfs
        self._all: list[Gpu] = []
        self._generation = 0

    @property
    def gpus(self) -> list[Gpu]:
        """Those to be read."""
        return [gpu for gpu in self._all if not gpu.excluded]

    @property
    def left_out(self) -> set[str]:
        """PCI addresses, where known, of those that aren't served."""
        return {gpu.address for gpu in self._all if gpu.excluded and gpu.address is not None}

    @property
    def addressed(self) -> bool:
        """Whether the PCI address of every GPU is known: else one on the bus may be any of them."""
        return all(gpu.address is not None for gpu in self._all)

    def lacks(self, address: str) -> bool:
        """See arrivals.Known: of one that is here once it was asked for, of any other once all were opened."""
        known = [gpu.is_absent for gpu in self._all if gpu.address == address]
        return all(known) if known else self.addressed

    def leaves_out(self, address: str) -> bool:
        """See arrivals.Known."""
        known = [gpu.excluded for gpu in self._all if gpu.address == address]
        if known:
            return all(known)
        return self._shared.selection.refuses(address, inventory.uuid_from_proc(self._procfs, address))

    def without(self, given_away: Collection[str]) -> None:
        """Forget the GPUs at these PCI addresses: virtual machines have them now."""
        gone = [gpu for gpu in self._all if gpu.address in given_away]
        for gpu in gone:
            gpu.retire()
        if gone:
            self._all = [gpu for gpu in self._all if gpu not in gone]

    def update(self, link: Link, on_bus: list[str] | None, came: Collection[str] = ()) -> None:
        """Take note of a connection to the driver, perhaps a new one.

        Args:
            link: the connection.
            on_bus: the PCI addresses of the bus's GPUs, if known.
            came: the addresses of those for which this connection was made.
        """
        if link.generation == self._generation:
            return
        self._generation = link.generation
        self._all = [gpu for gpu in self._all if not gpu.double and not (gpu.on_trial and gpu.is_absent)]
        found = inventory.candidates(link.count, on_bus, self._procfs)
        if not self._all:
            self._all = [self._made(candidate, None) for candidate in found]
        elif all(candidate.pci_bus_id for candidate in found):
            self._merge(found)
        else:
            self._keep_numbers()
            if link.count > len(self._all):  # who is new shows only when they are open
                self._all += [self._made(candidate, number) for candidate, number in self._numbered(found)]
            else:  # one may be lost to the driver and another have come
                self._try(link, came)
        for gpu in self._all:
            gpu.numbered_for = link.generation
            gpu.patience = Patience()  # it may have to be woken again

    def _merge(self, found: list[Candidate]) -> None:
        present = {candidate.pci_bus_id for candidate in found}
        # One that was never open nor known by its address can't be told from the rest: it is among those found.
        self._all = [gpu for gpu in self._all if gpu.address is not None]
        known = {gpu.address for gpu in self._all}
        newcomers = [candidate for candidate in found if candidate.pci_bus_id not in known]
        if known <= present:
            for gpu in self._all:
                gpu.number = None
            self._all += [self._made(candidate, None) for candidate in newcomers]
        else:
            self._keep_numbers()
            self._all += [self._made(candidate, number) for candidate, number in self._numbered(newcomers)]

    def _try(self, link: Link, came: Collection[str]) -> None:
        """Have those that came asked for by their addresses."""
        known = {gpu.address for gpu in self._all}
        held = sorted(link.held or ())
        candidates = [Candidate(held.index(address), address) for address in came if address not in known]
        for candidate, number in self._numbered(candidates):
            gpu = self._made(candidate, number)
            gpu.on_trial = True
            self._all.append(gpu)

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

    def _made(self, candidate: Candidate, number: int | None) -> Gpu:
        gpu = Gpu(candidate, self._shared, number)
        takes = self._shared.selection.takes(gpu.identity.index, candidate.pci_bus_id, candidate.uuid)
        gpu.excluded = not takes
        return gpu
