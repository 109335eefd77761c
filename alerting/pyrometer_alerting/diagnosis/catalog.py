"""All evidence, discovered: the SUBJECT of each file in `evidence/`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, ModuleType

from pyrometer_alerting.diagnosis import evidence
from pyrometer_alerting.diagnosis.look import Kind, Query


@dataclass(frozen=True)
class Catalog:
    """All kinds of facts and all queries, by name, in the order of their subjects."""

    kinds: Mapping[str, Kind]
    queries: Mapping[str, Query]


@cache
def load(package: ModuleType = evidence) -> Catalog:
    """Import each module of a package and return what their SUBJECTs add, in the order of their places."""
    names = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    subjects = sorted((importlib.import_module(name).SUBJECT for name in names), key=lambda subject: subject.place)
    kinds = {name: kind for subject in subjects for name, kind in subject.kinds.items()}
    queries = {query.name: query for subject in subjects for query in subject.queries}
    return Catalog(MappingProxyType(kinds), MappingProxyType(queries))
