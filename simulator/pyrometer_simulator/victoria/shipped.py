"""The services of compose.scale.yaml as they are shipped: programs, flags, and the addresses that .env.example has."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from pyrometer_simulator.shipped import project_folder
from pyrometer_simulator.stack.cache import cache_folder

CLUSTER = ("vmstorage", "vminsert", "vmselect", "vmauth", "vmagent", "vmalert")
HOW_TO_GET = (
    "go build ./app/vmstorage ./app/vminsert ./app/vmselect in VictoriaMetrics' source (tag v1.145.0-cluster), "
    "and their folder on PATH; vmauth, vmagent and vmalert are in Debian's package victoria-metrics"
)


def programs() -> dict[str, Path]:
    """Return where the cluster version's programs are, those that are on PATH or in Debian's package."""
    found = {}
    for name in CLUSTER:
        path = shutil.which(name) or cache_folder() / "victoria-metrics/usr/bin" / name
        if os.access(path, os.X_OK):
            found[name] = Path(path)
    return found


def missing() -> str:
    """Return which programs are missing, and how to get them; empty where all are there."""
    absent = [name for name in CLUSTER if name not in programs()]
    return f"no {', '.join(absent)}: {HOW_TO_GET}" if absent else ""


def addresses() -> dict[str, str]:
    """Return the settings that .env.example names for the cluster version."""
    text = (project_folder() / "compose/.env.example").read_text(encoding="utf-8")
    return dict(re.findall(r"^#   (VICTORIA_\w+)=(\S+)$", text, re.MULTILINE))


def commands(settings: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the flags of each service of the profile ``scale-cluster``, with these settings."""
    loaded = yaml.safe_load((project_folder() / "compose/compose.scale.yaml").read_text(encoding="utf-8"))

    def filled(flag: str) -> str:
        return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: settings.get(found[1], found[2]), flag)

    return {
        name: [filled(flag) for flag in service["command"]]
        for name, service in loaded["services"].items()
        if "scale-cluster" in service["profiles"] and program_of(name) in CLUSTER
    }


def program_of(service: str) -> str:
    """Return the program of a service: ``vminsert`` of ``vminsert-1``."""
    return service.partition("-")[0]
