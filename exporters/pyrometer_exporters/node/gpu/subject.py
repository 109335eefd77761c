"""A subject: one kind of values that a GPU reports (its memory errors, its PCIe link), in a file of its own.

A file in ``subjects/`` that defines ``SUBJECT`` is discovered; nothing else has to be touched to add one.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, cast

from pyrometer_exporters.framework.gpu_loads import GpuLoads
from pyrometer_exporters.framework.gpu_models import GpuModels
from pyrometer_exporters.framework.metrics import Columns, Family, Sample, columns_of, new_sample
from pyrometer_exporters.node.gpu.identity import Identity
from pyrometer_exporters.node.gpu.jobs import Jobs
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml
from pyrometer_exporters.node.gpu.pods import Pods
from pyrometer_kit.clock import Clock


@dataclass(frozen=True)
class SubjectContext:
    """The surroundings that the subjects of all GPUs of a node share."""

    nvml: Nvml
    clock: Clock
    hostname: str
    dcgm: Mapping[Family, Family]
    """Each DCGM family as it is served, its host label renamed where that was asked for."""
    jobs: Jobs
    loads: GpuLoads = field(default_factory=GpuLoads)
    pods: Pods | None = None
    """Names of pods; None where this is no node of Kubernetes, or nobody asked for them."""
    models: GpuModels = field(default_factory=GpuModels)


@dataclass(frozen=True)
class OpenGpu:
    """An open GPU, as a subject sees it."""

    handle: Handle
    identity: Identity
    context: SubjectContext
    generation: int
    """The connection to the driver (driver.Link) under which the handle is valid."""

    @property
    def nvml(self) -> Nvml:
        """The driver's library."""
        return self.context.nvml

    @cached_property
    def labels(self) -> tuple[str, str]:
        """Values of families.GPU_LABELS."""
        return self.identity.labels()

    def dcgm(self, family: Family, value: float, *more: str) -> Sample:
        """Make a sample of a DCGM family; ``more`` are the values of its labels beyond families.DCGM_LABELS."""
        return new_sample(self.context.dcgm[family], (*self._dcgm_labels, *more) if more else self._dcgm_labels, value)

    @cached_property
    def _dcgm_labels(self) -> tuple[str, ...]:
        # Made once: a GPU has a hundred samples with them per scrape.
        return self.identity.dcgm_labels(self.context.hostname)

    def own(self, family: Family, value: float, *more: str) -> Sample:
        """Make a sample of a family of ours; ``more`` are the values of its labels beyond families.GPU_LABELS."""
        return new_sample(family, (*self.labels, *more) if more else self.labels, value)


class BoundSamples:
    """Samples whose values come from numbers by key; families and labels are bound once, when a GPU is opened."""

    def __init__(self, by_key: Mapping[Any, Sample], least: float = -math.inf, most: float = math.inf) -> None:
        self._keys = tuple(by_key)
        self._bound = columns_of(by_key.values())
        self._least, self._most = least, most

    def read(self, numbers: Mapping[Any, float]) -> Columns:
        """Return the samples whose number is there and lies between the least and the most that can be true."""
        least, most = self._least, self._most
        values = tuple(map(numbers.get, self._keys))
        columns = Columns(self._bound.families, self._bound.labels, cast("tuple[float, ...]", values))
        if values and None not in values and min(columns.values) >= least and max(columns.values) <= most:
            return columns
        return columns.selected([value is not None and least <= value <= most for value in values])


class Subject(Protocol):
    """The state of a subject for one GPU. Only that GPU's worker calls it.

    A PartError (NvmlError) from :meth:`open` or :meth:`read` means that the GPU as a whole can't be read; a single
    value that is unavailable is left out (nvml.value_or_none). Any other exception disables this subject alone.
    """

    def open(self, gpu: OpenGpu) -> None:
        """Begin with a GPU that was opened, perhaps again after a loss or a driver reload; may ask what it supports."""

    def fields(self) -> Sequence[FieldKey]:
        """Return the field values that :meth:`read` wants; those of all subjects are asked in one call."""
        ...

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample | Columns]:
        """Return the samples of now; ``fields`` has those of the wanted values that this GPU and driver have."""
        ...


@dataclass(frozen=True)
class SubjectSpec:
    """A subject's registration, the value of ``SUBJECT`` in its own file."""

    name: str
    families: tuple[Family, ...]
    make: Callable[[], Subject]


def discover() -> tuple[SubjectSpec, ...]:
    """Import the subjects in ``subjects/`` and return them by name."""
    from pyrometer_exporters.node.gpu import subjects  # noqa: PLC0415  its modules import this one

    names = [module.name for module in pkgutil.iter_modules(subjects.__path__, f"{subjects.__name__}.")]
    specs = [importlib.import_module(name).SUBJECT for name in names]
    return tuple(sorted(specs, key=lambda spec: spec.name))
