"""Parse a line of UFM's event log, ``/opt/ufm/log/event.log``.

    2026-01-20 07:46:24.442 [12345] [329] WARNING [Hardware] Link [default / Switch: leaf-12 / 1/17/1]: Link went down:
    (Switch:leaf-12:1/17/1)9c0591030090e000:33 - (Computer:gpu-174 mlx5_5)b8cef6030012aa00:1, cable S/N: MT2330FT09118

(one line in the log). Syslog puts a head of its own before it, and a site may follow the severity. An event may
continue over further lines, which don't begin like an event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

_STAMP = r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
# Syslog's head is its time, the machine and the program, and then `WARNING - ` in some versions.
_SYSLOG = r"(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) \S+ [^\s:]+: (?:[A-Z]+ - )?"
_START = re.compile(rf"(?:{_SYSLOG})?{_STAMP} \[")
_EVENT = re.compile(
    rf"(?:{_SYSLOG})?{_STAMP} \[\d+\] \[(?P<number>\d{{1,6}})\] (?P<severity>[A-Z]+) (?:Site \[[^\]]*\] )?"
    r"\[(?P<topic>[^\]]*)\] (?P<kind>\w+) \[(?P<object>.*?)\](?: \[dev_id: (?P<dev_id>\w+)\])?: (?P<message>.*)$",
    re.DOTALL,
)
_SYSLOG_ONLY = re.compile(_SYSLOG)
# A longer event is a report, and its subject is at its beginning.
MAX_EVENT = 8192
# Events that are logged out of order, in seconds; the hour that happens twice goes back by 3,600.
_DISORDER = 1800.0


@dataclass(frozen=True)
class Event:
    """An event; ``stamp`` is the server's local time, without its zone."""

    stamp: datetime
    number: int
    severity: str
    kind: str
    """The kind of its subject: IBPort, Computer, Switch, Module, Link, Site, Grid."""
    object: str
    dev_id: str
    message: str

    def and_more(self, line: str) -> Event:
        """Return the event with a further line of its text."""
        return self if len(self.message) > MAX_EVENT else replace(self, message=f"{self.message} {line.strip()}")


def begins(line: str) -> bool:
    """Return whether a line begins an event, well-formed or not; all others continue the one before."""
    return _START.match(line) is not None or _SYSLOG_ONLY.match(line) is not None


def event(line: str) -> Event | None:
    """Return the event that a line begins, or None if it begins none."""
    match = _EVENT.match(line[:MAX_EVENT])
    if match is None:
        return None
    try:
        stamp = datetime.fromisoformat(_six_digits(match["stamp"].replace(",", ".")))
    except ValueError:  # the 31st of February
        return None
    return Event(
        stamp,
        int(match["number"]),
        match["severity"],
        match["kind"],
        match["object"],
        match["dev_id"] or "",
        match["message"],
    )


def unix_time(stamp: datetime, zone: tzinfo | None, latest: float) -> float:
    """Return a local time as Unix seconds.

    Args:
        stamp: the local time.
        zone: its time zone; None for this machine's.
        latest: the previous event's time, which decides in the hour that occurs twice in autumn.
    """
    local = stamp.replace(tzinfo=zone)
    try:
        first, second = local.timestamp(), local.replace(fold=1).timestamp()
    except (OverflowError, OSError, ValueError):  # the year 1, as of a machine without a clock
        return 0.0
    return second if first < latest - _DISORDER <= second else first


def _six_digits(stamp: str) -> str:
    """Pad a fraction to six digits: before Python 3.11 it had to have three or six."""
    head, dot, fraction = stamp.partition(".")
    return f"{head}{dot}{fraction:0<6}" if dot else head
