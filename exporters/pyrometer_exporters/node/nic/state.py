"""What must survive a restart of the exporter: one JSON file in the state folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyrometer_exporters.framework.statefile import StateFile
from pyrometer_exporters.node.nic.link_down import PortMemory
from pyrometer_exporters.node.nic.widening import Widening

VERSION = 1
_TRANSIENT = frozenset({"widening", "behind"})


class Store:
    """The file ``nic.json``; without a folder, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._file = StateFile(folder, "nic.json")
        self._saved = ""

    def load(self) -> dict[str, PortMemory]:
        """What was kept, by port key. A file that can't be used is set aside with one warning: counts start at 0."""
        ports = self._file.load(decode)
        if ports is None:
            return {}
        self._saved = encode(ports)
        return ports

    def changed(self, ports: dict[str, PortMemory]) -> str | None:
        """The text to save; None where the file has it already or there is no folder."""
        if not self._file.kept:
            return None
        text = encode(ports)
        return None if text == self._saved else text

    def save(self, text: str) -> None:
        """Replace the file, so that a crash leaves the old or the new one whole. Raises ``OSError``."""
        self._file.replace(text)
        self._saved = text


def encode(ports: dict[str, PortMemory]) -> str:
    """The file's text; the same for equal memories."""
    return json.dumps({"version": VERSION, "ports": {key: _plain(port) for key, port in sorted(ports.items())}})


def decode(data: Mapping[str, Any]) -> dict[str, PortMemory]:
    """The memories in a file's JSON; ``ValueError`` where it isn't what :func:`encode` writes."""
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("ports"), dict):
        msg = f"not a state file of version {VERSION}"
        raise ValueError(msg)
    return {key: _memory(port) for key, port in data["ports"].items()}


def _plain(port: PortMemory) -> dict[str, Any]:
    plain = {f.name: getattr(port, f.name) for f in fields(PortMemory) if f.name not in _TRANSIENT}
    # Latest raw values change with every scrape; only their wraps are worth a write to the disk.
    return {**plain, "wraps": port.widening.wraps}


def _memory(data: Any) -> PortMemory:  # noqa: ANN401  whatever the file holds
    if not isinstance(data, dict):
        msg = "a port is not an object"
        raise ValueError(msg)
    last_down = data.get("last_down")  # the clock gives floats
    return PortMemory(
        events=_count(data, "events"),
        last_down=last_down if isinstance(last_down, float) else None,
        ever_active=data.get("ever_active") is True,
        rate_max=_count(data, "rate_max"),
        boot=str(data.get("boot", "")),
        inode=_count(data, "inode"),
        ifindex=_count(data, "ifindex"),
        armed=data.get("armed") is True,
        active=data.get("active") is True,
        sources=_counts(data, "sources"),
        widening=Widening(wraps=_counts(data, "wraps")),
    )


def _count(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        msg = f"{name} is not a count: {value!r}"
        raise ValueError(msg)
    return value


def _counts(data: dict[str, Any], name: str) -> dict[str, int]:
    found = data.get(name)
    if not isinstance(found, dict):
        msg = f"{name} is not an object: {found!r}"
        raise ValueError(msg)
    return {key: _count(found, key) for key in found}
