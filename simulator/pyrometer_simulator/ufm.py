"""UFM's event log as a file, with the lines that the fabric manager writes about faults of the fabric."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path


@dataclass(frozen=True)
class SwitchPort:
    """A port of a switch with two ports per cage, by number: 33 is labelled 17/1."""

    switch: str
    number: int
    guid: str = "9c0591030090e000"

    def __str__(self) -> str:
        return f"(Switch:{self.switch}:{self.label}){self.guid}:{self.number}"

    @property
    def label(self) -> str:
        """The label as UFM writes it: board, cage, port."""
        return f"1/{(self.number + 1) // 2}/{1 if self.number % 2 else 2}"


@dataclass(frozen=True)
class HostPort:
    """A port of a host's HCA."""

    host: str
    device: str
    guid: str = "b8cef6030012aa00"
    number: int = 1

    def __str__(self) -> str:
        return f"(Computer:{self.host} {self.device}){self.guid}:{self.number}"


End = SwitchPort | HostPort


class UfmLog:
    """Append to ``path``; timestamps are those of ``wall`` in ``zone`` (None: this machine's)."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time, zone: tzinfo | None = None) -> None:
        self.path = path
        self._wall = wall
        self._zone = zone
        self._entry = 1000
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def write(self, text: str) -> None:
        """Write a text unchanged, in one write."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def line(self, number: int, severity: str, what: str, message: str, topic: str = "Hardware") -> str:
        """Return a line without writing it; ``what`` is such as ``Link [default / Switch: leaf-12 / 1/17/1]``."""
        stamp = datetime.fromtimestamp(self._wall(), self._zone).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        self._entry += 1
        return f"{stamp} [{self._entry}] [{number}] {severity} [{topic}] {what}: {message}\n"

    def event(self, number: int, severity: str, what: str, message: str) -> None:
        """Write an event, over several lines if the message has line breaks."""
        self.write(self.line(number, severity, what, message))

    def link_down(self, one: End, other: End, cable: str = "") -> None:
        """Write that a link went down (event 329)."""
        serial = f", cable S/N: {cable}" if cable else ""
        self.event(329, "WARNING", f"Link [{_object(one)}]", f"Link went down: {one} - {other}{serial}")

    def link_up(self, one: End, other: End, cable: str = "") -> None:
        """Write that a link is up (event 328)."""
        serial = f", cable S/N: {cable}" if cable else ""
        self.event(328, "INFO", f"Link [{_object(one)}]", f"Link is up: {one} - {other}{serial}")

    def flap(self, one: End, other: End, cable: str = "") -> None:
        """Write that a link went down and up again."""
        self.link_down(one, other, cable)
        self.link_up(one, other, cable)

    def threshold(self, number: int, port: SwitchPort, counter: str, value: int, limit: int = 0) -> None:
        """Write that a counter exceeded its threshold (events 110 to 121)."""
        message = f"{counter} counter threshold exceeded. Threshold is {limit}, received value is {value}."
        self.event(number, "WARNING", f"IBPort [{_object(port)}] [dev_id: {port.guid}]", message)

    def unhealthy(self, port: SwitchPort, peer: SwitchPort, why: str = "FLAPPING") -> None:
        """Write that a peer port is unhealthy (event 702)."""
        message = f"Peer Port {peer.switch}:{peer.label} is considered by SM as unhealthy due to {why}."
        self.event(702, "WARNING", f"IBPort [{_object(port)}] [dev_id: {port.guid}]", message)

    def switch_down(self, switch: str) -> None:
        """Write that a switch is down (event 907)."""
        self.event(907, "CRITICAL", f"Switch [default / Switch: {switch}]", f"Switch {switch} is down.")

    def suppressed(self, message: str = "Non-critical events are suppressed.") -> None:
        """Write that events are suppressed (event 603)."""
        self.event(603, "WARNING", "Grid [Grid]", message)

    def report(self, lines: int = 5) -> None:
        """Write a fabric health report over many lines (event 517)."""
        body = "".join(f"\n  check {index}: passed" for index in range(lines))
        self.event(517, "INFO", "Grid [Grid]", f"Fabric Health Report: completed{body}")

    def rotate(self) -> None:
        """Rename the file and start a new one, as UFM does; older ones are renumbered."""
        self._move_on()
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self.path.touch()

    def copy_and_truncate(self) -> None:
        """Copy and truncate the file, as logrotate's ``copytruncate`` does."""
        self._move_on()
        shutil.copy2(self.path, self.path.with_name(f"{self.path.name}.1"))
        os.truncate(self.path, 0)

    def _move_on(self) -> None:
        for index in range(30, 0, -1):
            old = self.path.with_name(f"{self.path.name}.{index}")
            if old.exists():
                old.rename(self.path.with_name(f"{self.path.name}.{index + 1}"))


def _object(end: End) -> str:
    if isinstance(end, SwitchPort):
        return f"default / Switch: {end.switch} / {end.label}"
    return f"default / Computer: {end.host} {end.device} / {end.number}"
