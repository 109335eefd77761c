"""One GPU: opened, read and closed by one thread at a time; if a call hangs, only this GPU's thread is stuck."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeVar

from pyrometer_exporters.framework.metrics import Columns, Down, Item, columns_of, new_sample
from pyrometer_exporters.framework.outcome import LATE, PartError, reason_of
from pyrometer_exporters.framework.scheduling import Member, Task
from pyrometer_exporters.node.gpu import families
from pyrometer_exporters.node.gpu.adaptive_timeout import AdaptiveTimeout
from pyrometer_exporters.node.gpu.driver import Driver, Link
from pyrometer_exporters.node.gpu.identity import Identity, read_identity
from pyrometer_exporters.node.gpu.inventory import Candidate, Selection
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, NvmlError
from pyrometer_exporters.node.gpu.readings import READ_FIELDS, Everyday, Readings
from pyrometer_exporters.node.gpu.sampler import Sampler
from pyrometer_exporters.node.gpu.subject import OpenGpu, Subject, SubjectContext, SubjectSpec
from pyrometer_exporters.node.gpu.throttling import Throttling
from pyrometer_exporters.node.gpu.xid.watch import XidWatch

log = logging.getLogger(__name__)

# How long the other GPUs wait for one that isn't done: as long as one may take in the thread that they share.
PATIENCE_SECONDS = 0.02
T = TypeVar("T")

_ABSENT = frozenset({"not_found", "gpu_not_found"})
_LOAD = (families.GPU_UTIL, families.POWER_USAGE, families.ENFORCED_POWER_LIMIT)


class State(Enum):
    """How far a GPU is known.

    ::

        NEW ----+-- opened --> KNOWN --+-- refused by the selection, or given away --> EXCLUDED
        TRIAL --+                      |
                +-- opened, and another one is the same GPU -----------------------> DUPLICATE
    """

    NEW = "on the bus or counted by NVML, never opened"
    TRIAL = "known only from the driver; not served at all where NVML has no such GPU"
    KNOWN = "opened at least once: its identity was read from the GPU itself"
    EXCLUDED = "never read again: refused by the selection, or no longer this node's"
    DUPLICATE = "never read again: another one stands for the same GPU"


@dataclass(frozen=True)
class Shared:
    """The parts that all GPUs of a node share."""

    context: SubjectContext
    driver: Driver
    sampler: Sampler
    selection: Selection
    subjects: tuple[SubjectSpec, ...]
    xids: XidWatch
    owners: dict[str, Gpu] = field(default_factory=dict)
    """The GPU in each :attr:`Identity.place`."""


class Gpu:
    """A GPU from first sight on. Only :meth:`read` touches the hardware; one thread at a time calls it."""

    def __init__(self, candidate: Candidate, shared: Shared, number: int | None = None, *, trial: bool = False) -> None:
        self._candidate = candidate
        self._shared = shared
        self._handle: Handle | None = None
        self._everyday: Everyday | None = None
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
        taken = shared.selection.takes(index, candidate.pci_bus_id, candidate.uuid)
        self.state = State.EXCLUDED if not taken else State.TRIAL if trial else State.NEW
        self.is_absent = False
        """True if the driver had no such GPU when it was last asked to open it."""
        self.timeout = AdaptiveTimeout()
        self.member = Member(f"gpu-{candidate.index}", PATIENCE_SECONDS)

    @property
    def is_read(self) -> bool:
        """True if the GPU is to be read."""
        return self.state not in (State.EXCLUDED, State.DUPLICATE)

    @property
    def is_known(self) -> bool:
        """True once its identity was read from the GPU itself."""
        return self.state is State.KNOWN

    @property
    def is_phantom(self) -> bool:
        """True if the driver holds it, but NVML has no such GPU."""
        return self.state is State.TRIAL and self.is_absent

    @property
    def is_served(self) -> bool:
        """True if anything of it is served, if only that it is down."""
        return self.is_read and not self.is_phantom

    @property
    def part(self) -> str:
        """The GPU's number: the ``part`` label of pyrometer_down_reason_info."""
        return str(self.identity.index)

    @property
    def address(self) -> str | None:
        """The PCI address as the kernel spells it; None where it is unknown."""
        return self.identity.address

    def retire(self) -> None:
        """Stop reading a GPU that is no longer this node's, and make room for the one that comes in its place."""
        self.state = State.EXCLUDED
        self._throttling.close()
        self._shared.sampler.forget(self._throttling.sampled)
        self.member.close()
        if self._shared.owners.get(self.identity.place) is self:
            del self._shared.owners[self.identity.place]

    def task(self) -> Task[list[Item]]:
        """Make a read for the shared worker; a GPU that isn't open may have to be woken, which takes seconds."""
        return self.member.task(self.read, apart=self._handle is None)

    def read(self) -> list[Item]:
        """Read all values of the GPU.

        Raises:
            PartError: the GPU is lost, hangs or reports nonsense; it is opened again at the next read.
        """
        if not self.is_read:
            return []
        try:
            return self._with_link(self._read)
        except PartError:
            self._handle = None
            self._throttling.close()
            raise

    def fetch_xids(self) -> list[Item]:
        """Fetch only its Xids: NVML drops them with the connection, which is about to be closed.

        Raises:
            PartError: as :meth:`read`.
        """
        self._with_link(self._fetch_xids)
        return []

    def _fetch_xids(self, link: Link) -> None:
        self._shared.xids.fetch(self.identity, link.generation)

    def _with_link(self, call: Callable[[Link], T]) -> T:
        """Call the driver while the sampler doesn't."""
        sampled = self._throttling.sampled
        # As long as a scrape waits for the GPU: the sampler may only be waiting for a busy machine.
        if sampled.hangs or not sampled.lock.acquire(timeout=self.timeout.seconds):
            raise PartError(LATE, "the sampler's last call has not returned")
        try:
            with self._shared.driver.using() as link:
                return call(link)
        finally:
            sampled.lock.release()

    def _read(self, link: Link) -> list[Item]:
        # First, as the Xids of a lost GPU say why. In this thread, as a GPU that hangs may hold no second one.
        self._fetch_xids(link)
        began = time.monotonic()
        was_open = self._is_open(link)
        try:
            everyday = self._open(link)
            if everyday is None:
                return []
            readings = everyday.read(self._wanted_fields())
            of_subjects = self._subject_samples(readings)
        except PartError as error:
            self.timeout.failed()
            self._shared.driver.failed(error, link, self)
            raise
        self._shared.driver.works_for(self)
        self._shared.xids.answered(self.identity)
        if was_open:
            self.timeout.took(time.monotonic() - began)
        self._note_load(readings)
        failed = [Down(f"{self.part}/{error.call}", error.reason, error.detail) for error in readings.failed]
        return [self._dcgm_samples(readings), *self._own_samples(readings), *of_subjects, *failed]

    def _is_open(self, link: Link) -> bool:
        return self._handle is not None and self._generation == link.generation

    def _open(self, link: Link) -> Everyday | None:
        """Open the GPU, if it isn't open; return None if it turns out that the GPU is not to be read."""
        if self._is_open(link):
            return self._everyday
        if link.generation != self.numbered_for:
            raise PartError(self._shared.driver.error.reason, "reconnected a moment ago")
        nvml = self._shared.context.nvml
        handle = self._find()
        identity = read_identity(nvml, handle, link.driver, self.identity if self.is_known else None, self.number)
        if self._shared.owners.setdefault(identity.place, self) is not self:
            self.state = State.DUPLICATE
            return None
        if not self._shared.selection.takes(identity.index, identity.pci_bus_id, identity.uuid):
            self.state = State.EXCLUDED
            return None
        self.identity, self.state = identity, State.KNOWN
        self._throttling.open(nvml, handle, link, self._shared.sampler)
        self._open_subjects(OpenGpu(handle, identity, self._shared.context, link.generation))
        self._everyday = Everyday(nvml, handle)
        self._handle, self._generation = handle, link.generation
        return self._everyday

    def _find(self) -> Handle:
        # By address where it is known: indexes shift when a neighbour is lost.
        nvml, address = self._shared.context.nvml, self.identity.pci_bus_id
        self.is_absent = False
        try:
            return nvml.open_pci(address) if address else nvml.open_index(self._candidate.index)
        except NvmlError as error:
            self.is_absent = error.reason in _ABSENT
            raise

    def _open_subjects(self, gpu: OpenGpu) -> None:
        self._broken = {}
        subjects = self._subjects.items()
        self._usable = [
            (name, subject) for name, subject in subjects if self._isolated(name, partial(subject.open, gpu))
        ]
        self._isolated("xid", lambda: self._shared.xids.opened(gpu.handle, gpu.identity))

    def _subject_samples(self, readings: Readings) -> list[Item]:
        samples: list[Item] = []
        for name, subject in self._usable:
            self._isolated(name, lambda subject=subject: samples.extend(subject.read(readings.fields)))  # type: ignore[misc]
        return [*samples, *self._broken.values()]

    def _isolated(self, name: str, call: Callable[[], object]) -> bool:
        """Call a subject, so that an error which isn't the GPU's costs that subject alone; return whether it worked."""
        try:
            call()
        except PartError:
            raise
        except Exception as error:
            if name not in self._broken:  # once: it would be with every scrape
                log.exception("GPU %s: %s can't be read", self.part, name)
            self._broken[name] = self._down(name, error)
            return False
        return True

    def _down(self, name: str, error: Exception) -> Down:
        return Down(f"{self.part}/{name}", reason_of(error), f"{type(error).__name__}: {error}")

    def _wanted_fields(self) -> tuple[FieldKey, ...]:
        """Return each field once, whoever wants it; the same tuple for as long as everybody wants the same."""
        wanted = [self._throttling.fields(), *[subject.fields() for _, subject in self._usable]]
        # Two hundred: merging them costs as much as the call that asks for them.
        if wanted != self._wanted:
            self._wanted = wanted
            self._fields = (*READ_FIELDS, *dict.fromkeys(itertools.chain(*wanted)))
        return self._fields

    def _note_load(self, readings: Readings) -> None:
        self._shared.context.models.note(self.identity.uuid, self.identity.model)
        load = [readings.by_family.get(family) for family in _LOAD]
        if None not in load:
            percent, watts, limit = (float(value or 0) for value in load)
            now = self._shared.context.clock.monotonic()
            self._shared.context.loads.note(self.part, percent, watts, limit, now)

    def _dcgm_samples(self, readings: Readings) -> Columns:
        context = self._shared.context
        labels, served = self.identity.dcgm_labels(context.hostname), context.dcgm
        return columns_of((served[family], labels, value) for family, value in readings.by_family.items())

    def _own_samples(self, readings: Readings) -> list[Item]:
        labels = self.identity.labels()
        millijoules = readings.by_family.get(families.TOTAL_ENERGY)
        energy = [] if millijoules is None else [new_sample(families.ENERGY, labels, millijoules / 1000)]
        return [*energy, self._throttling.samples(readings, self._shared.context.clock.monotonic(), labels)]
