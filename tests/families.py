"""Every metric of Pyrometer, from the ``Family`` definitions of exporters and alerting service."""

from __future__ import annotations

from functools import cache

from tools.metrics_page import OWN_FAMILIES, exporters

from pyrometer_alerting.incidents.metrics import FAMILIES as ALERTING
from pyrometer_exporters.framework.metrics import Family


@cache
def exported() -> dict[str, tuple[Family, ...]]:
    """Return each collector's families, and those that every exporter has about itself under ``framework``."""
    specs = {spec.name: spec.families for _, _, specs in exporters() for spec in specs}
    return {"framework": OWN_FAMILIES, **specs}


@cache
def labels_by_metric() -> dict[str, frozenset[str]]:
    """Return the labels of each metric; one that several families share has the labels of all."""
    labels: dict[str, frozenset[str]] = {}
    for family in (*ALERTING, *(family for families in exported().values() for family in families)):
        labels[family.name] = labels.get(family.name, frozenset()) | set(family.labels)
    return labels
