"""UFM's event log as a file: a writer of the lines that the fabric manager writes when the fabric has trouble."""

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
    """A port of a switch with two ports to a cage, by number: 33 is labelled 17/1."""

    switch: str
    number: int
    guid: str = "9c0591030090e000"

    def __str__(self) -> str:
        return f"(Switch:{self.switch}:{self.label}){self.guid}:{self.number}"

    @property
    def label(self) -> str:
        """As UFM writes it: board, cage, port."""
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
    """Appends to ``path``; stamps are those of ``wall`` in ``zone`` (None: this machine's)."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time, zone: tzinfo | None = None) -> None:
        self.path = path
        self._wall = wall
        self._zone = zone
        self._entry = 1000
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def write(self, text: str) -> None:
        """Whatever it is, as it is, in one write."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def line(self, number: int, severity: str, what: str, message: str, topic: str = "Hardware") -> str:
        """A line, not written; ``what`` such as ``Link [default / Switch: leaf-12 / 1/17/1]``."""
        stamp = datetime.fromtimestamp(self._wall(), self._zone).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        self._entry += 1
        return f"{stamp} [{self._entry}] [{number}] {severity} [{topic}] {what}: {message}\n"

    def event(self, number: int, severity: str, what: str, message: str) -> None:
        """Write an event of one line, or of several where the message has line ends."""
        self.write(self.line(number, severity, what, message))

    def link_down(self, one: End, other: End, cable: str = "") -> None:
        """Event 329."""
        serial = f", cable S/N: {cable}" if cable else ""
        self.event(329, "WARNING", f"Link [{_object(one)}]", f"Link went down: {one} - {other}{serial}")

    def link_up(self, one: End, other: End, cable: str = "") -> None:
        """Event 328."""
        serial = f", cable S/N: {cable}" if cable else ""
        self.event(328, "INFO", f"Link [{_object(one)}]", f"Link is up: {one} - {other}{serial}")

    def flap(self, one: End, other: End, cable: str = "") -> None:
        """Down and up again."""
        self.link_down(one, other, cable)
        self.link_up(one, other, cable)

    def threshold(self, number: int, port: SwitchPort, counter: str, value: int, limit: int = 0) -> None:
        """Events 110 to 121."""
        message = f"{counter} counter threshold exceeded. Threshold is {limit}, received value is {value}."
        self.event(number, "WARNING", f"IBPort [{_object(port)}] [dev_id: {port.guid}]", message)

    def unhealthy(self, port: SwitchPort, peer: SwitchPort, why: str = "FLAPPING") -> None:
        """Event 702."""
        message = f"Peer Port {peer.switch}:{peer.label} is considered by SM as unhealthy due to {why}."
        self.event(702, "WARNING", f"IBPort [{_object(port)}] [dev_id: {port.guid}]", message)

    def switch_down(self, switch: str) -> None:
        """Event 907."""
        self.event(907, "CRITICAL", f"Switch [default / Switch: {switch}]", f"Switch {switch} is down.")

    def suppressed(self, message: str = "Non-critical events are suppressed.") -> None:
        """Event 603."""
        self.event(603, "WARNING", "Grid [Grid]", message)

    def report(self, lines: int = 5) -> None:
        """Event 517, a fabric health report over many lines."""
        body = "".join(f"\n  check {index}: passed" for index in range(lines))
        self.event(517, "INFO", "Grid [Grid]", f"Fabric Health Report: completed{body}")

    def rotate(self) -> None:
        """Rename the file and begin a new one, as UFM does; older ones move on."""
        self._move_on()
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self.path.touch()

    def copy_and_truncate(self) -> None:
        """What logrotate's ``copytruncate`` does."""
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
