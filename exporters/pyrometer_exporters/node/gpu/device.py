"""One GPU: opened, read and let go by its own worker, so that its illness stays its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyrometer_exporters.framework.clock import Clock
from pyrometer_exporters.framework.metrics import Family, Sample
from pyrometer_exporters.framework.worker import PartError
from pyrometer_exporters.node.gpu import clock_events, families
from pyrometer_exporters.node.gpu.driver import Driver, Link
from pyrometer_exporters.node.gpu.inventory import Candidate, Selection, kernel_pci_id
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml, NvmlError
from pyrometer_exporters.node.gpu.readings import Values, read_values
from pyrometer_exporters.node.gpu.sampler import Sampler, Watched
from pyrometer_exporters.node.gpu.subject import Opened, SubjectSpec


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


class Gpu:
    """A GPU from first sight on. Only :meth:`read` touches the hardware; its worker alone calls it."""

    def __init__(self, candidate: Candidate, shared: Shared) -> None:
        self._candidate = candidate
        self._shared = shared
        self._handle: Handle | None = None
        self._generation = 0
        self._fields: dict[str, int] = {}
        self._events = clock_events.ClockEvents()
        self._watched = Watched()
        self._samplable: frozenset[str] = frozenset()
        self._subjects = [spec.make() for spec in shared.subjects]
        self.identity = Identity(candidate.index, candidate.uuid or "", candidate.pci_bus_id or "")
        self.known = False
        """Whether the identity was read from the GPU itself."""
        self.excluded = False
        """Whether the selection leaves it out: seen only once it was open where nothing was known before."""

    @property
    def part(self) -> str:
        """The GPU's index: the ``part`` label of pyrometer_down_reason_info."""
        return str(self._candidate.index)

    def read(self) -> list[Sample]:
        """Everything that the GPU tells now.

        Errors: PartError: lost, hung up, talking nonsense; the handle is let go and looked up again at the next read.
        """
        if self.excluded:
            return []
        link = self._shared.driver.link
        if link is None:
            self._let_go()
            raise PartError(self._shared.driver.error.reason, self._shared.driver.error.detail)
        try:
            handle = self._opened(link)
            if handle is None:
                return []
            values = read_values(self._shared.nvml, handle, self._wanted_fields())
            more = [sample for subject in self._subjects for sample in subject.read(values.fields)]
        except PartError as error:
            self._let_go()
            self._shared.driver.failed(error, link)
            raise
        return [*self._dcgm_samples(values), *self._own_samples(values), *more]

    def _opened(self, link: Link) -> Handle | None:
        if self._handle is not None and self._generation == link.generation:
            return self._handle
        nvml = self._shared.nvml
        # By address where it is known: indexes shift when a neighbour is lost.
        address = self.identity.pci_bus_id
        handle = nvml.open_pci(address) if address else nvml.open_index(self._candidate.index)
        identity = _identify(nvml, handle, link.driver, self.identity if self.known else None)
        self.identity, self.known = identity, True
        if not self._shared.selection.takes(identity.index, identity.pci_bus_id, identity.uuid):
            self.excluded = True
            return None
        self._fields = clock_events.counter_fields(link.driver)
        self._samplable = clock_events.sampled_reasons(link.driver)
        self._events.reopened()
        for subject in self._subjects:
            subject.open(Opened(handle, identity, self._shared))
        self._watched.read = _reader(nvml, handle)
        self._shared.sampler.watch(self._watched)
        self._handle, self._generation = handle, link.generation
        return handle

    def _wanted_fields(self) -> Iterable[FieldKey]:
        """Each once, whoever wants it."""
        of_subjects = (key for subject in self._subjects for key in subject.fields())
        return dict.fromkeys((*self._fields.values(), *of_subjects))

    def _let_go(self) -> None:
        self._handle = None
        self._watched.read = None

    def _dcgm_samples(self, values: Values) -> Iterable[Sample]:
        labels = self.identity.dcgm_labels(self._shared.hostname)
        for family, value in values.by_family.items():
            yield Sample(self._shared.dcgm[family], labels, value)

    def _own_samples(self, values: Values) -> Iterable[Sample]:
        labels = self.identity.labels()
        if values.energy_millijoules is not None:
            yield families.ENERGY.sample(values.energy_millijoules / 1000, *labels)
        by_mask = self._watched.by_mask()
        sampled = {}
        if families.CLOCKS_EVENT_REASONS in values.by_family:  # else the sampler can't read it either
            by_reason = clock_events.seconds_by_reason(by_mask)
            sampled = {reason: seconds for reason, seconds in by_reason.items() if reason in self._samplable}
            yield families.CLOCK_EVENT_SAMPLED.sample(sum(by_mask.values()), *labels)
        counters = {reason: values.fields[field] for reason, field in self._fields.items() if field in values.fields}
        for reason, seconds, method in self._events.update(counters, sampled, self._shared.clock.monotonic()):
            yield families.CLOCK_EVENT_SECONDS.sample(seconds, *labels, reason)
            yield families.CLOCK_EVENT_METHOD.sample(1, *labels, reason, method)


def _reader(nvml: Nvml, handle: Handle) -> Callable[[], int]:
    return lambda: nvml.clock_event_reasons(handle)


def _identify(nvml: Nvml, handle: Handle, driver: str, known: Identity | None) -> Identity:
    """Who answers under ``handle``: ``known`` again, under its known index, unless the GPU was exchanged."""
    uuid = nvml.text(handle, "UUID")
    if known is not None and known.uuid == uuid and known.driver == driver:
        return known
    return Identity(
        index=known.index if known is not None else nvml.index(handle),
        uuid=uuid,
        pci_bus_id=nvml.pci_bus_id(handle),
        model=_text_or_empty(nvml, handle, "Name"),
        serial=_text_or_empty(nvml, handle, "Serial"),  # consumer cards have none
        vbios=_text_or_empty(nvml, handle, "VbiosVersion"),
        driver=driver,
    )


def _text_or_empty(nvml: Nvml, handle: Handle, what: str) -> str:
    try:
        return nvml.text(handle, what)
    except NvmlError as error:
        if error.about_one_value:
            return ""
        raise
