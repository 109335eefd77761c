"""The file of ``--collector.checks.config``: checks on or off, their limits, and what is expected, by class of node.

::

    expect: {gpus: 8, hcas: 8, rate: 400e9, driver: 590.48.01}
    checks:
      cpu_governor: off
      filesystem_full: {used: 0.9, severity: warning}
    classes:
      - nodes: login-.*
        expect: {gpus: 0}
        checks: {gpu_count: off}

The first class whose ``nodes`` matches the node's name is laid over the settings above it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrometer_exporters.node.checks.check import SEVERITIES, Check
from pyrometer_kit.errors import UsageError

if TYPE_CHECKING:
    from pyrometer_kit.yamlfile import Node as Setting

DEFAULT_FILE = Path("/etc/pyrometer/checks.yaml")
_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def chosen_file(given: Path | None) -> Path | None:
    """Return the file that a flag gave, else the default one where there is one."""
    return given if given is not None or not DEFAULT_FILE.exists() else DEFAULT_FILE


@dataclass(frozen=True)
class Settings:
    """The configuration, as it holds for one node."""

    checks: tuple[Check, ...]
    """Those that are on."""
    severities: Mapping[str, str]
    """Those that the file states."""
    limits: Mapping[str, Mapping[str, float]]
    expect: Mapping[str, Any] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    """Names of the checks that the file has under ``checks``, with whatever setting."""


def load(path: Path | None, node: str, checks: Sequence[Check]) -> Settings:
    """Read the file for the node of this name; None for no file: everything at its default.

    Raises:
        UsageError: It can't be used: file, line, key and what would be right.
    """
    enabled = {check.name: check.enabled for check in checks}
    severities: dict[str, str] = {}
    listed: set[str] = set()
    limits = {check.name: dict(check.limits) for check in checks}
    expect: dict[str, Any] = {}
    general, classes = _read(path)
    wanted = [general, *next(([layer] for pattern, layer in classes if pattern.fullmatch(node)), [])]
    for layer in wanted:
        expect.update(_expectations(layer["expect"]) if "expect" in layer else {})
        for name, setting in (layer["checks"].fields(enabled) if "checks" in layer else {}).items():
            _apply(name, setting, enabled, severities, limits[name])
            listed.add(name)
    for _, layer in classes:  # a mistake in a class of other nodes too: one file goes to all of them
        if not any(layer is applied for applied in wanted):
            _refuse_mistakes(layer, checks)
    on = tuple(check for check in checks if enabled[check.name])
    return Settings(on, severities, limits, expect, frozenset(listed))


_Layer = Mapping[str, "Setting"]


def _read(path: Path | None) -> tuple[_Layer, list[tuple[re.Pattern[str], _Layer]]]:
    """Return what holds for all nodes, and the classes in order."""
    if path is None:
        return {}, []
    from pyrometer_kit import yamlfile  # noqa: PLC0415  PyYAML, which a node without this file need not load

    root = yamlfile.read(path)
    settings = ("expect", "checks", "classes")
    for name, setting in root.items():
        if name not in settings:
            raise UsageError(f"{setting.place}: unknown setting {name}; known are {', '.join(settings)}")
    root = {name: setting for name, setting in root.items() if setting.value != ""}
    return root, [_class(entry) for entry in root["classes"].items()] if "classes" in root else []


def _class(setting: Setting) -> tuple[re.Pattern[str], _Layer]:
    fields = setting.fields(("nodes", "expect", "checks"))
    if "nodes" not in fields:
        raise UsageError(f"{setting.place}: a class needs nodes, a regular expression of their names such as gpu-.*")
    text = fields["nodes"].text()
    try:
        return re.compile(text), fields
    except re.error as error:
        raise UsageError(f"{fields['nodes'].place}: nodes {text!r} is not a regular expression: {error}") from None


def _refuse_mistakes(layer: _Layer, checks: Sequence[Check]) -> None:
    if "expect" in layer:
        _expectations(layer["expect"])
    limits = {check.name: dict(check.limits) for check in checks}
    for name, setting in (layer["checks"].fields(limits) if "checks" in layer else {}).items():
        _apply(name, setting, {}, {}, limits[name])


def _apply(
    name: str, setting: Setting, enabled: dict[str, bool], severities: dict[str, str], limits: dict[str, float]
) -> None:
    if not isinstance(setting.value, dict):
        enabled[name] = _switch(name, setting)
        return
    enabled[name] = True
    for key, value in setting.fields(("enabled", "severity", *limits)).items():
        if key == "enabled":
            enabled[name] = _switch(name, value)
        elif key == "severity":
            severities[name] = _one_of(f"{name}.severity", value, SEVERITIES)
        else:
            limits[key] = _number(f"{name}.{key}", value)


def _switch(name: str, setting: Setting) -> bool:
    text = setting.text().lower()
    if text not in _SWITCH:
        raise UsageError(f"{setting.place}: {name} is {text!r}; give on, off or limits such as {{severity: warning}}")
    return _SWITCH[text]


def _one_of(name: str, setting: Setting, words: Sequence[str]) -> str:
    if setting.text() not in words:
        raise UsageError(f"{setting.place}: {name} is {setting.text()!r}; known are {', '.join(words)}")
    return setting.text()


def _number(name: str, setting: Setting) -> float:
    try:
        value = float(setting.text())
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{setting.place}: {name} is {setting.text()!r}, which is not a number of 0 or more")
    return value


def _count(name: str, setting: Setting) -> int:
    value = _number(name, setting)
    if value != int(value):
        raise UsageError(f"{setting.place}: {name} is {setting.text()!r}, which is not a whole number")
    return int(value)


def _plain(name: str, setting: Setting) -> str:
    if not setting.text():
        raise UsageError(f"{setting.place}: {name} is empty")
    return setting.text()


def _texts(name: str, setting: Setting) -> list[str]:
    return [_plain(name, item) for item in setting.items()]


def _parts(classes: Sequence[str] = ()) -> Callable[[str, Setting], Any]:
    """Return a reader of ``8`` (a count), ``[mlx5_0, 0000:18:00.0]`` (these), or ``{compute: 8}`` (a count of each)."""

    def read(name: str, setting: Setting) -> int | list[str] | dict[str, int]:
        if isinstance(setting.value, list):
            return _texts(name, setting)
        if isinstance(setting.value, dict):
            return {key: _count(f"{name}.{key}", value) for key, value in setting.fields(classes or None).items()}
        return _count(name, setting)

    return read


def _of_each(read: Callable[[str, Setting], Any]) -> Callable[[str, Setting], Any]:
    """Return a reader of one value for all, or of ``{compute: 400e9, mlx5_9: 100e9}``."""

    def read_each(name: str, setting: Setting) -> Any:  # noqa: ANN401  what ``read`` returns, or a mapping of these
        if isinstance(setting.value, dict):
            return {key: read(f"{name}.{key}", value) for key, value in setting.fields().items()}
        return read(name, setting)

    return read_each


COMPUTE, STORAGE, MANAGEMENT = "compute", "storage", "management"
CLASSES = (COMPUTE, STORAGE, MANAGEMENT)
"""What an RDMA port is for; :mod:`~pyrometer_exporters.node.checks.rdma` reads it from the machine."""

EXPECTATIONS: Mapping[str, tuple[Callable[[str, Setting], Any], str]] = {
    "gpus": (_parts(), "GPUs: their number, or a list of PCI addresses or UUIDs"),
    "gpu_model": (_plain, "the GPUs' name, as nvidia-smi prints it"),
    "driver": (_plain, "version of NVIDIA's driver, or its beginning"),
    "vbios": (_plain, "version of the GPUs' firmware"),
    "ecc": (_switch, "whether the GPUs' memory must have ECC on"),
    "nvlinks": (_count, "number of NVLinks that are up on each GPU"),
    "hcas": (
        _parts(CLASSES),
        "links that are up: a number of those for training, a list of names, PCI addresses or GUIDs, or {compute: 8}",
    ),
    "rate": (
        _of_each(_number),
        "bits per second of each link for training; or by class, name, PCI address or GUID: {compute: 400e9}",
    ),
    "firmware": (_of_each(_plain), "version of the training HCAs' firmware; or by board, class, name or PCI address"),
    "memory": (_number, "bytes of the host's memory, such as 2e12; 2 % less is accepted"),
    "cpus": (_count, "CPUs that are online"),
    "nvmes": (
        _parts(),
        "NVMe disks: their number, a list of serial numbers or PCI addresses, or the number of each model",
    ),
    "huge_pages": (_count, "huge pages of the default size"),
    "mounts": (_texts, "file systems that must be mounted, such as [/data, /home]"),
    "services": (_texts, "programs that must be running, such as [slurmd, containerd]"),
    "imex": (_switch, "whether nvidia-imex must be running (NVL72)"),
}
"""Keys of ``expect``: how each is read, and what it means."""


def _expectations(setting: Setting) -> dict[str, Any]:
    if setting.value == "":
        return {}
    fields = setting.fields(EXPECTATIONS)
    return {name: EXPECTATIONS[name][0](f"expect.{name}", value) for name, value in fields.items()}
