"""All evidence, discovered: the SUBJECT of each file in `evidence/`."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from pyrometer_alerting.diagnosis import evidence
from pyrometer_alerting.diagnosis.look import Kind, Query

KINDS: dict[str, Kind] = {}
QUERIES: dict[str, Query] = {}


def load(package: ModuleType) -> None:
    """Add the SUBJECT of each module of a package, in the order of their places."""
    names = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    for subject in sorted((importlib.import_module(name).SUBJECT for name in names), key=lambda one: one.place):
        KINDS.update(subject.kinds)
        QUERIES.update({query.name: query for query in subject.queries})


load(evidence)
