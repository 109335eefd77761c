"""What must survive a restart of the exporter: one JSON file in the state folder."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyrometer_exporters.node.nic.link_down import PortMemory
from pyrometer_exporters.node.nic.widening import Widening

log = logging.getLogger(__name__)

VERSION = 1
_TRANSIENT = frozenset({"widening", "behind"})


class Store:
    """The file ``nic.json``; without a folder, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / "nic.json" if folder else None
        self._saved = ""

    def load(self) -> dict[str, PortMemory]:
        """What was kept, by port key. A file that can't be used is set aside with one warning: counts start at 0."""
        if self._path is None:
            return {}
        try:
            text = self._path.read_text(encoding="utf-8")
            ports = decode(text)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s can't be used, link-down counts start again at 0: %s", self._path, error)
            with contextlib.suppress(OSError):
                self._path.replace(self._path.with_suffix(".json.corrupt"))
            return {}
        self._saved = text
        return ports

    def changed(self, ports: dict[str, PortMemory]) -> str | None:
        """The text to save; None where the file has it already or there is no folder."""
        if self._path is None:
            return None
        text = encode(ports)
        return None if text == self._saved else text

    def save(self, text: str) -> None:
        """Replace the file, so that a crash leaves the old or the new one whole. Raises ``OSError``."""
        if self._path is None:
            return
        new = self._path.with_suffix(".json.new")
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        _sync_folder(self._path.parent)
        self._saved = text


def encode(ports: dict[str, PortMemory]) -> str:
    """The file's text; the same for equal memories."""
    return json.dumps({"version": VERSION, "ports": {key: _plain(port) for key, port in sorted(ports.items())}})


def decode(text: str) -> dict[str, PortMemory]:
    """The memories of a file's text; ``ValueError`` where it isn't what :func:`encode` writes."""
    try:
        data = json.loads(text)
    except RecursionError as error:
        msg = "nested too deeply"
        raise ValueError(msg) from error
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
