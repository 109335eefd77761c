"""A subject: one kind of thing that a GPU tells (its memory errors, its PCIe link), in a file of its own.

A file in ``subjects/`` that defines ``SUBJECT`` is found by itself; nothing else has to be touched to add one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyrometer_exporters.framework.metrics import Family, Sample, new_sample
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml, NvmlError

if TYPE_CHECKING:
    from pyrometer_exporters.node.gpu.device import Identity, Shared

T = TypeVar("T")


@dataclass(frozen=True)
class Opened:
    """A GPU whose handle is good, as a subject sees it."""

    handle: Handle
    identity: Identity
    shared: Shared
    generation: int
    """The connection to the driver (driver.Link) under which the handle is good."""

    @property
    def nvml(self) -> Nvml:
        """The driver's library."""
        return self.shared.nvml

    @cached_property
    def labels(self) -> tuple[str, str]:
        """Values of families.GPU_LABELS."""
        return self.identity.labels()

    def dcgm(self, family: Family, value: float, *more: str) -> Sample:
        """A sample of a DCGM family; ``more`` are the values of labels that it has beyond families.DCGM_LABELS."""
        return new_sample(self.shared.dcgm[family], (*self._dcgm_labels, *more) if more else self._dcgm_labels, value)

    @cached_property
    def _dcgm_labels(self) -> tuple[str, ...]:
        # Made once: a GPU has a hundred samples with them per scrape.
        return self.identity.dcgm_labels(self.shared.hostname)

    def own(self, family: Family, value: float, *more: str) -> Sample:
        """A sample of a family of ours; ``more`` are the values of labels that it has beyond families.GPU_LABELS."""
        return new_sample(family, (*self.labels, *more) if more else self.labels, value)


class Subject(Protocol):
    """What is kept of a subject for one GPU. Only that GPU's worker calls it."""

    def open(self, gpu: Opened) -> None:
        """The GPU has been opened, or opened again after a loss or a driver reload. May ask it what it supports."""

    def fields(self) -> Sequence[FieldKey]:
        """Field values that :meth:`read` wants; those of all subjects are asked in one call."""

    def read(self, fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """The samples of now; ``fields`` holds those of the wanted that this GPU and driver have.

        An NvmlError or PartError out of here means that the GPU as a whole can't be read; a value that is merely not
        to be had is left out (:func:`value_or_none`). Any other exception, here or in :meth:`open`, costs this subject
        alone.
        """


@dataclass(frozen=True)
class SubjectSpec:
    """A subject's registration, the value of ``SUBJECT`` in its own file."""

    name: str
    families: tuple[Family, ...]
    make: Callable[[], Subject]


def discover() -> tuple[SubjectSpec, ...]:
    """The subjects in ``subjects/``, by name."""
    from pyrometer_exporters.node.gpu import subjects  # noqa: PLC0415  its modules import this one

    names = [module.name for module in pkgutil.iter_modules(subjects.__path__, f"{subjects.__name__}.")]
    found = [importlib.import_module(name).SUBJECT for name in names]
    return tuple(sorted(found, key=lambda spec: spec.name))


def value_or_none(read: Callable[[], T]) -> T | None:
    """What ``read`` gives; None where this value can't be had here though the GPU is well."""
    try:
        return read()
    except NvmlError as error:
        if error.about_one_value:
            return None
        raise


def optional(read: Callable[[], T]) -> T | None:
    """As :func:`value_or_none`, for calls that few boards and drivers know: any error that isn't the GPU's is None.

    An exotic call that ends in UNKNOWN or gives a text that is none must not take temperature and clocks along; where
    the GPU itself is ill, the everyday calls say so.
    """
    try:
        return read()
    except PartError as error:
        if isinstance(error, NvmlError) and error.about_whole_gpu:
            raise
        return None
