"""Keep the port memories across restarts of the exporter: one JSON file in the state folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyrometer_exporters.node.nic.link_down import ADMIN, NEW, PortMemory, Widening
from pyrometer_kit.statefile import StateFile

VERSION = 1
# The fields of PortMemory that are saved under their own names, by type.
_COUNTS = ("events", "rate_max", "inode", "ifindex")
_MAPPINGS = ("ignored", "resets", "sources", "behind")
_TEXTS = ("last_reason", "boot", "disturbance")
_TIMES = ("last_down", "disturbed_at", "missing_since")
_FLAGS = ("ever_active", "active")
_SCALARS = (*_COUNTS, *_TEXTS, *_TIMES, *_FLAGS, "unarmed")

Plain = dict[str, dict[str, Any]]
"""The memories by port key, as they are in the file."""


class PortStateFile:
    """The file ``nic.json``; without a folder, nothing is saved."""

    def __init__(self, folder: Path | None) -> None:
        self._file = StateFile(folder, "nic.json")
        self._saved: Plain | None = None

    def load(self) -> dict[str, PortMemory]:
        """Load the memories by port key. An unusable file is set aside with one warning, and counts start at 0."""
        ports = self._file.load(decode)
        if ports is None:
            return {}
        self._saved = _worth_a_write(_plain(ports))
        return ports

    def changed(self, ports: dict[str, PortMemory]) -> str | None:
        """Return the text to save; None where the file is up to date or there is no folder.

        The latest raw values change with every read and are not worth a write: they are saved with the next change,
        and at the end.
        """
        if not self._file.kept or _worth_a_write(_plain(ports)) == self._saved:
            return None
        return encode(ports)

    def save(self, text: str) -> None:
        """Replace the file atomically: a crash leaves the old or the new one whole. Raises ``OSError``."""
        self._file.replace(text)
        self._saved = _worth_a_write(json.loads(text)["ports"])

    def finish(self, ports: dict[str, PortMemory]) -> None:
        """Save everything at shutdown, the latest raw values included. Raises ``OSError``."""
        if self._file.kept and ports:
            self.save(encode(ports))


def encode(ports: dict[str, PortMemory]) -> str:
    """Encode the memories as the file's text; equal memories give the same text."""
    return json.dumps({"version": VERSION, "ports": dict(sorted(_plain(ports).items()))})


def decode(data: Mapping[str, Any]) -> dict[str, PortMemory]:
    """Decode the memories from a file's JSON. Raises ``ValueError`` where :func:`encode` didn't write it."""
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("ports"), dict):
        msg = f"not a state file of version {VERSION}"
        raise ValueError(msg)
    return {key: _memory(port) for key, port in data["ports"].items()}


def _worth_a_write(ports: Plain) -> Plain:
    """Return the part of the memories whose change is worth a write: all but the latest raw values."""
    return {key: {**port, "last": None} for key, port in ports.items()}


def _plain(ports: dict[str, PortMemory]) -> Plain:
    return {
        key: {
            **{name: getattr(port, name) for name in _SCALARS},
            **{name: dict(getattr(port, name)) for name in _MAPPINGS},
            "device": [port.device, port.pci_bus_id, port.driver],
            "wraps": dict(port.widening.wraps),
            "last": dict(port.widening.last),
        }
        for key, port in ports.items()
    }


def _memory(data: Any) -> PortMemory:  # noqa: ANN401  whatever the file holds
    if not isinstance(data, dict):
        msg = "a port is not an object"
        raise ValueError(msg)
    device, pci_bus_id, driver = data.get("device") or ("", "", "")  # 0.2.0 did not save these four
    fields: dict[str, Any] = {
        **{name: _count(data, name) for name in _COUNTS},
        **{name: _counts(data, name) for name in _MAPPINGS},
        **{name: str(data.get(name, "")) for name in _TEXTS},
        **{name: _seconds(data, name) for name in _TIMES},
        **{name: data.get(name) is True for name in _FLAGS},
    }
    return PortMemory(
        **fields,
        unarmed=_unarmed(data),
        device=str(device),
        pci_bus_id=str(pci_bus_id),
        driver=str(driver),
        widening=Widening(wraps=_counts(data, "wraps"), last=_counts(data, "last")),
    )


def _unarmed(data: dict[str, Any]) -> str:
    if "armed" in data:  # 0.1.0 did not save the cause
        return "" if data["armed"] is True else ADMIN if data.get("ever_active") is True else NEW
    return str(data.get("unarmed", NEW))


def _seconds(data: dict[str, Any], name: str) -> float | None:
    value = data.get(name)
    return value if isinstance(value, float) else None  # the clock gives floats


def _count(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        msg = f"{name} is not a count: {value!r}"
        raise ValueError(msg)
    return value


def _counts(data: dict[str, Any], name: str) -> dict[str, int]:
    counts = data.get(name, {})  # 0.1.0 had fewer
    if not isinstance(counts, dict):
        msg = f"{name} is not an object: {counts!r}"
        raise ValueError(msg)
    return {key: _count(counts, key) for key in counts}
