"""Keep the port memories across restarts of the exporter: one JSON file in the state folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyrometer_exporters.node.nic.link_down import ADMIN, NEW, PortMemory
from pyrometer_exporters.node.nic.widening import Widening
from pyrometer_kit.statefile import StateFile

VERSION = 1
# By field of PortMemory, except that "wraps" and "last" are those of its widening.
_COUNTS = ("events", "rate_max", "inode", "ifindex")
_MAPPINGS = ("ignored", "resets", "sources", "behind")


class PortStateFile:
    """The file ``nic.json``; without a folder, nothing is saved."""

    def __init__(self, folder: Path | None) -> None:
        self._file = StateFile(folder, "nic.json")
        self._saved: object = None

    def load(self) -> dict[str, PortMemory]:
        """Load the memories by port key. An unusable file is set aside with one warning, and counts start at 0."""
        ports = self._file.load(decode)
        if ports is None:
            return {}
        self._saved = _essence(ports)
        return ports

    def changed(self, ports: dict[str, PortMemory]) -> str | None:
        """Return the text to save; None where the file is up to date or there is no folder.

        The latest raw values change with every read and are not worth a write: they are saved with the next change,
        and at the end.
        """
        if not self._file.kept or _essence(ports) == self._saved:
            return None
        return encode(ports)

    def save(self, text: str) -> None:
        """Replace the file atomically: a crash leaves the old or the new one whole. Raises ``OSError``."""
        self._file.replace(text)
        self._saved = _essence(decode(json.loads(text)))

    def finish(self, ports: dict[str, PortMemory]) -> None:
        """Save everything at shutdown, the latest raw values included. Raises ``OSError``."""
        if self._file.kept and ports:
            self.save(encode(ports))


def encode(ports: dict[str, PortMemory]) -> str:
    """Encode the memories as the file's text; equal memories give the same text."""
    return json.dumps({"version": VERSION, "ports": {key: _plain(port) for key, port in sorted(ports.items())}})


def decode(data: Mapping[str, Any]) -> dict[str, PortMemory]:
    """Decode the memories from a file's JSON. Raises ``ValueError`` where :func:`encode` didn't write it."""
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("ports"), dict):
        msg = f"not a state file of version {VERSION}"
        raise ValueError(msg)
    return {key: _memory(port) for key, port in data["ports"].items()}


def _essence(ports: dict[str, PortMemory]) -> object:
    """Return the part of the memories whose change is worth a write."""
    return {
        key: (
            port.events, port.last_down, port.last_reason, port.ever_active, port.rate_max, port.boot, port.inode,
            port.ifindex, port.unarmed, port.active, port.unsettled, port.settling_since, port.device, port.pci_bus_id,
            port.missing_since, *(tuple(getattr(port, name).items()) for name in _MAPPINGS),
            tuple(port.widening.wraps.items()),
        )
        for key, port in ports.items()
    }  # fmt: skip


def _plain(port: PortMemory) -> dict[str, Any]:
    return {
        **{name: getattr(port, name) for name in (*_COUNTS, *_MAPPINGS)},
        "last_down": port.last_down,
        "last_reason": port.last_reason,
        "ever_active": port.ever_active,
        "boot": port.boot,
        "unarmed": port.unarmed,
        "active": port.active,
        "unsettled": port.unsettled,
        "settling_since": port.settling_since,
        "missing_since": port.missing_since,
        "device": [port.device, port.pci_bus_id, port.driver],
        "wraps": port.widening.wraps,
        "last": port.widening.last,
    }


def _memory(data: Any) -> PortMemory:  # noqa: ANN401  whatever the file holds
    if not isinstance(data, dict):
        msg = "a port is not an object"
        raise ValueError(msg)
    device, pci_bus_id, driver = data.get("device") or ("", "", "")  # 0.2.0 did not save these four
    return PortMemory(
        events=_count(data, "events"),
        ignored=_counts(data, "ignored"),
        resets=_counts(data, "resets"),
        last_down=_seconds(data, "last_down"),
        last_reason=str(data.get("last_reason", "")),
        ever_active=data.get("ever_active") is True,
        rate_max=_count(data, "rate_max"),
        boot=str(data.get("boot", "")),
        inode=_count(data, "inode"),
        ifindex=_count(data, "ifindex"),
        unarmed=_unarmed(data),
        active=data.get("active") is True,
        unsettled=str(data.get("unsettled", "")),
        settling_since=_seconds(data, "settling_since"),
        missing_since=_seconds(data, "missing_since"),
        device=str(device),
        pci_bus_id=str(pci_bus_id),
        driver=str(driver),
        sources=_counts(data, "sources"),
        behind=_counts(data, "behind"),
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
