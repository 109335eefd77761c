"""One GPU: opened, read and let go by one thread at a time, which it keeps if it hangs: its illness stays its own."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyrometer_exporters.framework.metrics import Down, Family, Sample, new_sample
from pyrometer_exporters.framework.outcome import LATE, PartError, reason_of
from pyrometer_exporters.framework.scheduling import Member, Task
from pyrometer_exporters.node.gpu import families
from pyrometer_exporters.node.gpu.driver import Driver, Link
from pyrometer_exporters.node.gpu.inventory import Candidate, Selection, kernel_pci_id
from pyrometer_exporters.node.gpu.jobs import Jobs
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml, NvmlError
from pyrometer_exporters.node.gpu.patience import Patience
from pyrometer_exporters.node.gpu.readings import READ_FIELDS, Values, read_values
from pyrometer_exporters.node.gpu.sampler import Sampler
from pyrometer_exporters.node.gpu.subject import Opened, Subject, SubjectSpec, optional, value_or_none
from pyrometer_exporters.node.gpu.throttling import Throttling
from pyrometer_exporters.node.gpu.xid.watch import XidWatch
from pyrometer_kit.clock import Clock

log = logging.getLogger(__name__)

# How long the other GPUs wait for one that isn't done: as long as one may take in the thread that they share.
PATIENCE_SECONDS = 0.02
_ABSENT = frozenset({"not_found", "gpu_not_found"})


@dataclass(frozen=True)
class Identity:
    """What a GPU is; read when it is opened and kept while it can't be."""

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
        """What no two GPUs share: the PCI address, or the UUID of one that is on no bus."""
        return self.pci_bus_id or self.uuid

    def labels(self) -> tuple[str, str]:
        """See families.GPU_LABELS."""
        return str(self.index), self.uuid

    def dcgm_labels(self, hostname: str) -> tuple[str, ...]:
        """See families.DCGM_LABELS; dcgm-exporter makes ``device`` from the index as well."""
        index = str(self.index)
        return index, self.uuid, self.pci_bus_id, f"nvidia{index}", self.model, hostname, self.driver

    def info(self) -> Sample:
        """The sample of pyrometer_gpu_info."""
        pci = kernel_pci_id(self.pci_bus_id)
        return families.INFO.sample(1, *self.labels(), pci, self.model, self.serial, self.vbios, self.driver)


@dataclass(frozen=True)
class Shared:
    """What the GPUs of a node have in common."""

    nvml: Nvml
    driver: Driver
    sampler: Sampler
    clock: Clock
    selection: Selection
    hostname: str
    subjects: tuple[SubjectSpec, ...]
    dcgm: Mapping[Family, Family]
    """Each DCGM family as it is served, its host label renamed where that was asked for."""
    jobs: Jobs
    xids: XidWatch
    owners: dict[str, Gpu] = field(default_factory=dict)
    """Who is in which :attr:`Identity.place`."""


class Gpu:
    """A GPU from first sight on. Only :meth:`read` touches the hardware; one thread at a time calls it."""

    def __init__(self, candidate: Candidate, shared: Shared, number: int | None = None) -> None:
        self._candidate = candidate
        self._shared = shared
        self._handle: Handle | None = None
        self._generation = 0
        self._throttling = Throttling()
        self._subjects = {spec.name: spec.make() for spec in shared.subjects}
        self._usable: list[tuple[str, Subject]] = []
        self._broken: dict[str, Down] = {}
        """Subjects that failed since the GPU was opened, and why: a fault of this program's or its binding's."""
        self._wanted: list[Sequence[FieldKey]] = []
        self._fields: tuple[FieldKey, ...] = ()
        self.number = number
        """The number to serve it under; None for NVML's own index."""
        self.numbered_for = 0
        """The generation of the connection for which that holds; under another the GPU isn't opened."""
        index = candidate.index if number is None else number
        self.identity = Identity(index, candidate.uuid or "", candidate.pci_bus_id or "")
        self.known = False
        """Whether the identity was read from the GPU itself."""
        self.excluded = False
        """Whether it is left out: by the selection, or as a double."""
        self.is_absent = False
        """Whether the driver said that there is no such GPU when it was last asked for."""
        self.double = False
        """Whether another already stands for this GPU: seen only once it was open where nothing was known before."""
        self.on_trial = False
        """Whether it is known only that the driver has it: where NVML hasn't, it is not served at all."""
        self.patience = Patience()
        self.own = Member(f"gpu-{candidate.index}", PATIENCE_SECONDS)
        """The thread that it keeps while it is held up in a read."""

    def retire(self) -> None:
        """It is no longer this node's: never read it again, and let whoever comes in its place have it."""
        self.excluded = True
        self._throttling.let_go()
        self._shared.sampler.forget(self._throttling.watched)
        self.own.close()
        if self._shared.owners.get(self.identity.place) is self:
            del self._shared.owners[self.identity.place]

    @property
    def is_served(self) -> bool:
        """Whether anything of it is served, be it that it is down."""
        return not self.excluded and not (self.on_trial and self.is_absent)

    @property
    def part(self) -> str:
        """The GPU's number: the ``part`` label of pyrometer_down_reason_info."""
        return str(self.identity.index)

    @property
    def address(self) -> str | None:
        """PCI address as the kernel spells it, where it is known."""
        return kernel_pci_id(self.identity.pci_bus_id) if self.identity.pci_bus_id else None

    def task(self) -> Task[list[Sample | Down]]:
        """Make a read for the shared worker; a GPU that isn't open may have to be woken, which takes seconds."""
        return self.own.task(self.read, apart=self._handle is None)

    def read(self) -> list[Sample | Down]:
        """Everything that the GPU tells now.

        Errors: PartError: lost, hung up, talking nonsense; the handle is let go and looked up again at the next read.
        """
        if self.excluded:
            return []
        lock = self._taken_from_sampler()
        try:
            with self._shared.driver.using() as link:
                # First, as a GPU that is lost has told why. Here, as a GPU that hangs may hold no second thread.
                self._shared.xids.fetch(self.identity, link.generation)
                return self._read(link)
        except PartError:
            self._handle = None
            self._throttling.let_go()
            raise
        finally:
            lock.release()

    def fetch(self) -> list[Sample | Down]:
        """Fetch its Xids and nothing else: they go with the connection, which is about to be given up.

        Errors: as those of :meth:`read`.
        """
        lock = self._taken_from_sampler()
        try:
            with self._shared.driver.using() as link:
                self._shared.xids.fetch(self.identity, link.generation)
        finally:
            lock.release()
        return []

    def _taken_from_sampler(self) -> threading.Lock:
        """The lock on calls about this GPU, locked."""
        watched = self._throttling.watched
        # As long as a scrape waits for the GPU: the sampler may only stand still because the machine is busy.
        if watched.hangs or not watched.lock.acquire(timeout=self.patience.seconds):
            raise PartError(LATE, "the sampler's last call has not returned")
        return watched.lock

    def _read(self, link: Link) -> list[Sample | Down]:
        began = time.monotonic()
        was_open = self._is_open(link)
        try:
            handle = self._opened(link)
            if handle is None:
                return []
            values = read_values(self._shared.nvml, handle, self._wanted_fields())
            more = self._of_subjects(values)
        except PartError as error:
            self.patience.failed()
            self._shared.driver.failed(error, link, self)
            raise
        self._shared.driver.works_for(self)
        if was_open:
            self.patience.took(time.monotonic() - began)
        found = self._dcgm_samples(values)
        found += self._own_samples(values)
        found += more
        return found

    def _is_open(self, link: Link) -> bool:
        return self._handle is not None and self._generation == link.generation

    def _opened(self, link: Link) -> Handle | None:
        if self._is_open(link):
            return self._handle
        if link.generation != self.numbered_for:
            raise PartError(self._shared.driver.error.reason, "connected again a moment ago")
        nvml = self._shared.nvml
        handle = self._looked_up()
        identity = _identify(nvml, handle, link.driver, self.identity if self.known else None, self.number)
        self.double = self._shared.owners.setdefault(identity.place, self) is not self
        takes = self._shared.selection.takes(identity.index, identity.pci_bus_id, identity.uuid)
        if self.double or not takes:
            self.excluded = True
            return None
        self.identity, self.known = identity, True
        self._throttling.open(nvml, handle, link, self._shared.sampler)
        self._open_subjects(Opened(handle, identity, self._shared, link.generation))
        self._handle, self._generation = handle, link.generation
        return handle

    def _open_subjects(self, gpu: Opened) -> None:
        self._usable, self._broken = [], {}
        for name, subject in self._subjects.items():
            try:
                subject.open(gpu)
            except PartError:
                raise
            except Exception as error:
                log.exception("GPU %s: %s can't be opened", self.part, name)
                self._broken[name] = self._down(name, error)
            else:
                self._usable.append((name, subject))

    def _of_subjects(self, values: Values) -> list[Sample | Down]:
        found: list[Sample | Down] = []
        for name, subject in self._usable:
            try:
                found += subject.read(values.fields)
            except PartError:
                raise
            except Exception as error:
                if name not in self._broken:  # once: it would be with every scrape
                    log.exception("GPU %s: %s can't be read", self.part, name)
                self._broken[name] = self._down(name, error)
        return [*found, *self._broken.values()] if self._broken else found

    def _down(self, name: str, error: Exception) -> Down:
        return Down(f"{self.part}/{name}", reason_of(error), f"{type(error).__name__}: {error}")

    def _looked_up(self) -> Handle:
        # By address where it is known: indexes shift when a neighbour is lost.
        nvml, address = self._shared.nvml, self.identity.pci_bus_id
        self.is_absent = False
        try:
            return nvml.open_pci(address) if address else nvml.open_index(self._candidate.index)
        except NvmlError as error:
            self.is_absent = error.reason in _ABSENT
            raise

    def _wanted_fields(self) -> tuple[FieldKey, ...]:
        """Each once, whoever wants it; the same tuple as long as everybody wants the same."""
        wanted = [self._throttling.fields(), *[subject.fields() for _, subject in self._usable]]
        # Two hundred: to put them together costs as much as the call that asks for them.
        if wanted != self._wanted:
            self._wanted = wanted
            self._fields = (*READ_FIELDS, *dict.fromkeys(itertools.chain(*wanted)))
        return self._fields

    def _dcgm_samples(self, values: Values) -> list[Sample | Down]:
        labels, served = self.identity.dcgm_labels(self._shared.hostname), self._shared.dcgm
        return [new_sample(served[family], labels, value) for family, value in values.by_family.items()]

    def _own_samples(self, values: Values) -> list[Sample]:
        labels = self.identity.labels()
        energy = values.energy_millijoules
        found = [] if energy is None else [new_sample(families.ENERGY, labels, energy / 1000)]
        found += self._throttling.samples(values, self._shared.clock.monotonic(), labels)
        return found


def _identify(nvml: Nvml, handle: Handle, driver: str, known: Identity | None, number: int | None) -> Identity:
    """Who answers under ``handle``: ``known`` again unless the GPU was exchanged; ``number`` overrides NVML's index."""
    uuid = nvml.text(handle, "UUID")
    index = nvml.index(handle) if number is None else number
    if known is not None and known.uuid == uuid and known.driver == driver and known.model:
        return replace(known, index=index) if known.index != index else known
    return Identity(
        index=index,
        uuid=uuid,
        pci_bus_id=value_or_none(lambda: nvml.pci_bus_id(handle)) or "",  # the GPU of a Tegra is on no bus
        model=optional(lambda: nvml.text(handle, "Name")) or "",
        serial=optional(lambda: nvml.text(handle, "Serial")) or "",  # consumer cards have none
        vbios=optional(lambda: nvml.text(handle, "VbiosVersion")) or "",
        driver=driver,
    )
