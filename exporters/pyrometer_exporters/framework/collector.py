"""The collector protocol, and the discovery of the collectors in a package.

A collector lives in one file (or one package with a ``collector.py``) that defines ``COLLECTOR``, its
:class:`CollectorSpec`: name, families, flags and how to build it. Nothing else has to be touched to add one.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pyrometer_exporters.framework.gpu_loads import GpuLoads
from pyrometer_exporters.framework.gpu_models import GpuModels
from pyrometer_exporters.framework.metrics import Family, Item
from pyrometer_kit.clock import Clock
from pyrometer_kit.http_message import Request


@dataclass(frozen=True)
class Context:
    """The surroundings that a collector is built from: the parsed flags, the paths they name and the clock."""

    flags: argparse.Namespace
    clock: Clock
    sysfs: Path
    procfs: Path
    rings: Path
    state: Path | None
    """Folder for what must survive a restart; None where there is none to write to."""
    kmsg: Path = Path("/dev/kmsg")
    """The kernel's log, or a file or pipe in its record format."""
    gpu_loads: GpuLoads = field(default_factory=GpuLoads)
    """How busy the GPUs were at the latest scrape, where a collector reads them."""
    gpu_models: GpuModels = field(default_factory=GpuModels)
    """The models of the GPUs, where a collector reads them."""


class Collector(Protocol):
    """Reads one subject."""

    def collect(self, until: float) -> Iterable[Item]:
        """Return everything known now, by the monotonic time ``until``.

        A part that can't be read is reported by a :class:`Down` and no samples: absent, not frozen, not zero. Missing
        hardware is a Down too, not an exception; an exception means that the collector itself failed.
        """
        ...

    def close(self) -> None:
        """Stop threads, close files. Called once."""


class FlagGroup(Protocol):
    """A parser or one of its groups, to which a collector adds its flags."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:  # noqa: ANN401  argparse's own signature
        """Do as :meth:`argparse.ArgumentParser.add_argument`."""
        ...


Endpoint = Callable[[Request], "Reply"]


@dataclass(frozen=True)
class Reply:
    """A response of a collector's own endpoint; ``delivered`` is called with whether the client received all of it."""

    content_type: str
    body: bytes
    delivered: Callable[[bool], None] | None = None


class ServesEndpoints(Protocol):
    """A collector that serves paths of its own, such as ``/batches``."""

    def endpoints(self) -> Mapping[str, Endpoint]:
        """Return handlers by path."""
        ...


@dataclass(frozen=True)
class CollectorSpec:
    """A collector's registration, the value of ``COLLECTOR`` in its own file."""

    name: str
    help: str
    families: tuple[Family, ...]
    build: Callable[[Context], Collector]
    add_flags: Callable[[FlagGroup], None] = field(default=lambda _parser: None)
    default_enabled: bool = True
    # Prometheus gives a scrape 10 s unless told otherwise; a collector that needs longer holds up its neighbours.
    deadline_seconds: float = 5.0


def discover(package: ModuleType) -> list[CollectorSpec]:
    """Return the COLLECTOR of each module of a package, and of each sub-package's ``collector``, by name."""
    specs = [spec for name in _module_names(package) if (spec := _spec_of(name)) is not None]
    return sorted(specs, key=lambda spec: spec.name)


def _module_names(package: ModuleType) -> Iterable[str]:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.ispkg:
            yield module.name
        elif importlib.util.find_spec(f"{module.name}.collector") is not None:
            yield f"{module.name}.collector"


def _spec_of(module_name: str) -> CollectorSpec | None:
    spec = getattr(importlib.import_module(module_name), "COLLECTOR", None)
    return spec if isinstance(spec, CollectorSpec) else None
