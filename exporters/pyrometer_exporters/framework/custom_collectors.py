"""Collectors of a site's own: ordinary prometheus_client collectors, found through an entry point group.

Such a collector is loaded and called in a thread of its own with a deadline, like ours. When it fails, hangs or returns
nonsense, everything else is served, and ``pyrometer_collector_success`` is 0. prometheus_client is imported only where
there is such a collector.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyrometer_exporters.framework.collector import CollectorSpec, Context
from pyrometer_exporters.framework.metrics import Down, Family, Item, MetricType

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.samples import Sample as MetricSample

MAX_SAMPLES = 10_000
MAX_FAMILIES = 1_000
MAX_DOWNS = 20
RESERVED_PREFIXES = ("pyrometer_", "process_")

_COLLECTOR_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_COUNTER_ENDS = ("_total", "_bucket", "_count", "_sum")


class EntryPoint(NamedTuple):
    """A line of a distribution's entry_points.txt: the collector's name and ``module:attribute``."""

    name: str
    value: str


def discover(group: str, taken: Iterable[str]) -> tuple[list[CollectorSpec], list[str]]:
    """Return a spec for each entry point of a group, and a line for each that can't be used.

    Args:
        group: such as ``pyrometer_exporters.node_collectors``.
        taken: names of collectors that exist already.
    """
    names = set(taken)
    specs, refused = [], []
    for entry in entry_points(group):
        if not _COLLECTOR_NAME.fullmatch(entry.name):
            refused.append(
                f"custom collector {entry.name!r} ({entry.value}): its name is not like my_collector; not loaded"
            )
        elif entry.name in names:
            refused.append(f"custom collector {entry.name} ({entry.value}): another one has this name; not loaded")
        else:
            names.add(entry.name)
            specs.append(CollectorSpec(entry.name, f"Custom collector {entry.value}.", (), partial(Custom, entry)))
    return specs, refused


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group from all installed distributions, without importlib.metadata's imports."""
    entries: list[EntryPoint] = []
    for folder in sys.path:
        try:
            distributions = [name for name in os.listdir(folder or ".") if name.endswith(".dist-info")]  # noqa: PTH208
        except OSError:  # a zip file, or missing
            continue
        for name in sorted(distributions):
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:  # noqa: PTH118
                    entries += _section(file.read(), group)
            except (OSError, UnicodeDecodeError):
                continue
    return entries


def _section(text: str, group: str) -> Iterator[EntryPoint]:
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip())


class Custom:
    """Loads a prometheus_client collector at its first scrape and turns its metrics into samples."""

    def __init__(self, entry: EntryPoint, _context: Context) -> None:
        self._entry = entry
        self._collector: object | None = None
        self._families: dict[tuple[str, str, tuple[str, ...]], Family] = {}

    def collect(self, until: float) -> Iterable[Item]:
        """Return the collector's samples, and a Down for each metric that can't be served.

        Raises:
            RuntimeError: the collector tried to end the program, or returned too much.
            TimeoutError: it went on past ``until``.
        """
        try:
            if self._collector is None:
                self._collector = _load(self._entry)
            return list(self._samples(self._collector, until))
        except SystemExit as error:
            msg = f"{self._entry.value} tried to exit: {error}"
            raise RuntimeError(msg) from None

    def close(self) -> None:
        """Do nothing: prometheus_client's collectors have no end."""

    def _samples(self, collector: object, until: float) -> Iterator[Item]:
        from prometheus_client.core import Metric as Known  # noqa: PLC0415  megabytes, only where a site has such a collector

        served = downs = 0
        for metric in collector.collect():  # type: ignore[attr-defined]  # _load has checked it
            if not isinstance(metric, Known):
                msg = (
                    f"{self._entry.value}: collect() gave a {type(metric).__name__}, not a metric of prometheus_client"
                )
                raise TypeError(msg)
            if time.monotonic() > until:
                msg = f"{self._entry.value}: collect() went on past its deadline"
                raise TimeoutError(msg)
            problem = _problem(metric)
            if problem:
                downs += 1
                if downs <= MAX_DOWNS:
                    yield Down(metric.name, "bad_metric", problem)
                continue
            # One more than allowed is enough to know: a metric may hold any number.
            for sample in itertools.islice(metric.samples, MAX_SAMPLES - served + 1):
                served += 1
                if served > MAX_SAMPLES:
                    msg = f"{self._entry.value}: more than {MAX_SAMPLES} samples"
                    raise RuntimeError(msg)
                if not sample.name.endswith("_created"):
                    yield self._family(metric, sample).sample(sample.value, *sample.labels.values())

    def _family(self, metric: Metric, sample: MetricSample) -> Family:
        key = (sample.name, metric.type, tuple(sample.labels))
        family = self._families.get(key)
        if family is None:
            if len(self._families) >= MAX_FAMILIES:
                msg = f"{self._entry.value}: more than {MAX_FAMILIES} metrics"
                raise RuntimeError(msg)
            counts = metric.type in ("counter", "histogram", "summary") and sample.name.endswith(_COUNTER_ENDS)
            kind: MetricType = "counter" if counts else "gauge"
            family = self._families[key] = Family(sample.name, kind, metric.documentation, key[2])
        return family


def _load(entry: EntryPoint) -> object:
    """Import what an entry point names; a class or function is called without arguments.

    Raises:
        TypeError: the result has no ``collect()``.
    """
    module, _, path = entry.value.partition(":")
    target: object = importlib.import_module(module)
    for name in filter(None, path.split(".")):
        target = getattr(target, name)
    if isinstance(target, type) or (callable(target) and not hasattr(target, "collect")):
        target = target()
    if not callable(getattr(target, "collect", None)):
        msg = f"{entry.value} has no collect() method"
        raise TypeError(msg)
    return target


def _problem(metric: Metric) -> str:
    """Return why a metric can't be served, or an empty string."""
    for sample in itertools.islice(metric.samples, MAX_SAMPLES):
        if not _METRIC_NAME.fullmatch(sample.name):
            return f"{sample.name!r} is no metric name"
        if sample.name.startswith(RESERVED_PREFIXES):
            return f"{sample.name}: names that begin with {' or '.join(RESERVED_PREFIXES)} are the exporter's own"
        bad = [label for label in sample.labels if not _LABEL_NAME.fullmatch(label)]
        if bad:
            return f"{sample.name}: {bad[0]!r} is no label name"
        if sample.timestamp is not None:
            return f"{sample.name} has a timestamp: a scrape has the values of now"
    return ""
