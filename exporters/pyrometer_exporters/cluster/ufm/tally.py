"""What has been counted of the event log, and what it told about who is connected to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, NamedTuple

from pyrometer_exporters.cluster.ufm.catalogue import LINK_DOWN, LINK_UP, PLACED, SUPPRESSION, UNHEALTHY
from pyrometer_exporters.cluster.ufm.ends import End, cable, ends, labelled, unhealthy_reason
from pyrometer_exporters.cluster.ufm.lines import Event, unix_time

# Imbue's fabric of 4,088 GPUs has 12,000 links. Beyond these a log is full of names that are none.
MAX_PLACES = 20_000
MAX_CABLES = 20_000
MAX_LINKS = 40_000
MAX_NUMBERS = 500
# What ends a suppression by its wording; the event is the same.
_OVER = ("stop", "end", "off", "disabl", "resum", "finish")


class Place(NamedTuple):
    """Where an event of a kind happened: a switch port, a host port, or the link between the two."""

    number: int
    reason: str
    switch: str
    switch_port: str
    node: str
    device: str
    port: str


class Link(NamedTuple):
    """The far end of a host's port."""

    switch: str
    switch_port: str
    cable: str


@dataclass
class Tally:
    """Counts and links; a clock that is set back or a log that is read again changes none that it had."""

    numbers: Counter[int] = field(default_factory=Counter)
    places: Counter[Place] = field(default_factory=Counter)
    cables: Counter[tuple[int, str]] = field(default_factory=Counter)
    links: dict[End, Link] = field(default_factory=dict)
    """By the host's end; a later event about the same port replaces what was known."""
    two_port_switches: set[str] = field(default_factory=set)
    """Switches whose ports are labelled 17/1: where one is given by number, it is translated."""
    last_event: float = 0.0
    suppressed_at: float = 0.0
    suppressing: bool = False

    def learn(self, event: Event, zone: tzinfo | None) -> list[End]:
        """Take links and times from an event without counting it; the ends that it is about."""
        self.last_event = unix_time(event.stamp, zone, self.last_event)
        if event.number == SUPPRESSION:
            self.suppressed_at = self.last_event
            self.suppressing = not any(word in event.message.lower() for word in _OVER)
        found = [self._normal(end) for end in ends(event)]
        if event.number in (LINK_UP, LINK_DOWN):
            self._link(found, cable(event))
        return found

    def count(self, event: Event, zone: tzinfo | None) -> None:
        """Count an event, once, where it happened."""
        found = self.learn(event, zone)
        if event.number in self.numbers or len(self.numbers) < MAX_NUMBERS:
            self.numbers[event.number] += 1
        if event.number not in PLACED:
            return
        reason = unhealthy_reason(event.message) if event.number == UNHEALTHY else ""
        for place in _places(event.number, reason, found):
            if place in self.places or len(self.places) < MAX_PLACES:
                self.places[place] += 1
        serial = cable(event)
        if serial and ((event.number, serial) in self.cables or len(self.cables) < MAX_CABLES):
            self.cables[event.number, serial] += 1

    def encoded(self) -> dict[str, Any]:
        """As JSON, for :func:`decoded`."""
        return {
            "numbers": list(self.numbers.items()),
            "places": [[*place, count] for place, count in self.places.items()],
            "cables": [[*key, count] for key, count in self.cables.items()],
            "links": [[end.node, end.device, end.port, end.guid, *link] for end, link in self.links.items()],
            "two_port_switches": sorted(self.two_port_switches),
            "last_event": self.last_event,
            "suppressed_at": self.suppressed_at,
            "suppressing": self.suppressing,
        }

    def _normal(self, end: End) -> End:
        if not end.switch:
            return end
        if "/" in end.port:
            self.two_port_switches.add(end.switch)
        elif end.switch in self.two_port_switches and end.port.isdecimal() and int(end.port) > 0:
            return replace(end, port=labelled(end.port))
        return end

    def _link(self, found: list[End], serial: str) -> None:
        hosts, switches = [end for end in found if end.node], [end for end in found if end.switch]
        if len(hosts) == len(switches) == 1 and (hosts[0] in self.links or len(self.links) < MAX_LINKS):
            known = self.links.get(hosts[0])
            same_place = known is not None and known[:2] == (switches[0].switch, switches[0].port)
            # An event without a serial says nothing about the cable; one at another port says that it was moved.
            kept = known.cable if known is not None and same_place and not serial else serial
            self.links[hosts[0]] = Link(switches[0].switch, switches[0].port, kept)


def decoded(data: Mapping[str, Any]) -> Tally:
    """The tally that was :meth:`Tally.encoded`. Raises ValueError, KeyError or TypeError."""
    return Tally(
        numbers=Counter({int(number): int(count) for number, count in data["numbers"]}),
        places=Counter({Place(int(n), *map(str, rest)): int(count) for n, *rest, count in data["places"]}),
        cables=Counter({(int(number), str(serial)): int(count) for number, serial, count in data["cables"]}),
        links={
            End(node=str(node), device=str(device), port=str(port), guid=str(guid)): Link(*map(str, link))
            for node, device, port, guid, *link in data["links"]
        },
        two_port_switches=set(map(str, data["two_port_switches"])),
        last_event=float(data["last_event"]),
        suppressed_at=float(data["suppressed_at"]),
        suppressing=bool(data["suppressing"]),
    )


def _places(number: int, reason: str, found: list[End]) -> list[Place]:
    """One place for a host's link, both ends in it; one for each end of a link between switches."""
    hosts, switches = [end for end in found if end.node], [end for end in found if end.switch]
    if hosts and switches:
        pairs = [(switches[0], hosts[0])]
    else:
        pairs = [(end, End()) for end in switches] + [(End(), end) for end in hosts]
    return [Place(number, reason, s.switch, s.port, h.node, h.device, h.port) for s, h in pairs]
