"""The metrics of UFM's event log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyrometer_exporters.cluster.ufm.catalogue import LINK_DOWN, NAMES, name_of
from pyrometer_exporters.cluster.ufm.event_counts import EventCounts
from pyrometer_exporters.cluster.ufm.fabric import PORT_INFO
from pyrometer_exporters.framework.metrics import Families, Family, Sample

# fmt: off
_ROWS = Families()
EVENTS = _ROWS.counter("pyrometer_ufm_events_total",
    "Events in UFM's event log since the log was first followed, by UFM's number and our name for it.",
    "event", "event_id")
PORT_EVENTS = _ROWS.counter("pyrometer_ufm_port_events_total",
    "Events that someone may have to go to a port for, by where they happened: a host's link has both ends, one "
    "between switches counts at each end, a whole switch or host has no port. reason is that of port_unhealthy.",
    "event", "event_id", "reason", "node", "device", "port", "switch", "switch_port")
CABLE_EVENTS = _ROWS.counter("pyrometer_ufm_cable_events_total",
    "The same by the cable's serial number: a fault that follows a cable to another port is the cable's.",
    "event", "event_id", "cable")
LINES = _ROWS.counter("pyrometer_ufm_log_lines_total",
    "Lines of the event log: those that begin an event, those that continue one, and those that can't be parsed.",
    "result")
GAPS = _ROWS.counter("pyrometer_ufm_log_gaps_total",
    "How often the file that was read last had disappeared when the exporter returned to it: events may be missing.")
UNREAD = _ROWS.gauge("pyrometer_ufm_log_unread_bytes",
    "Bytes of the event log not yet read: 0 when everything is counted.")
LEFT_OUT = _ROWS.counter("pyrometer_ufm_events_left_out_total",
    "Events beyond a limit, by what there are too many of: place (a port), cable, link or number. They are in no "
    "count of that kind, and ports without an event are then absent rather than 0.", "what")
LAST_EVENT = _ROWS.gauge("pyrometer_ufm_last_event_timestamp_seconds",
    "Time of the newest event, by the log's own stamps (see --collector.ufm.timezone).")
SUPPRESSED = _ROWS.gauge("pyrometer_ufm_events_suppressed",
    "1 while UFM drops events itself (its event 603, for an hour after the last one), and counts here are too low.")
# fmt: on
FAMILIES = (*_ROWS, PORT_INFO)

RESULTS = ("event", "continuation", "unparsed")
LIMITED = ("number", "place", "cable", "link")
# UFM repeats the event while it lasts; after an hour without one it is over.
SUPPRESSED_SECONDS = 3600.0


def event_samples(counts: EventCounts, lines: Mapping[str, int], now: float) -> Iterator[Sample]:
    """Return the samples of all counts; ``now`` is the wall clock."""
    for number in sorted({*NAMES, *counts.numbers}):
        yield EVENTS.sample(counts.numbers[number], name_of(number), str(number))
    for place, count in counts.places.items():
        number, reason, switch, switch_port, node, device, port = place
        where = (node, device, port, switch, switch_port)
        yield PORT_EVENTS.sample(count, name_of(number), str(number), reason, *where)
    for (number, serial), count in counts.cables.items():
        yield CABLE_EVENTS.sample(count, name_of(number), str(number), serial)
    for result in RESULTS:
        yield LINES.sample(lines.get(result, 0), result)
    for what in LIMITED:
        yield LEFT_OUT.sample(counts.left_out[what], what)
    if counts.last_event:
        yield LAST_EVENT.sample(counts.last_event)
    recent = counts.suppressing and now - counts.suppressed_at < SUPPRESSED_SECONDS
    yield SUPPRESSED.sample(1 if recent else 0)


def at_zero(counts: EventCounts) -> Iterator[tuple[Family, tuple[str, ...]]]:
    """Return series that exist before anything happens there, so that a link's first loss is an increase.

    Once a place was left out, any place without a count may be that one: its number is unknown, which is not 0.
    """
    if not counts.all_placed:
        return
    for end, link in counts.links.items():
        where = (end.node, end.device, end.port, link.switch, link.switch_port)
        yield PORT_EVENTS, (name_of(LINK_DOWN), str(LINK_DOWN), "", *where)
        if link.cable:
            yield CABLE_EVENTS, (name_of(LINK_DOWN), str(LINK_DOWN), link.cable)


class CounterInit:
    """Serves each counter once at 0 before its first count, except those known from before a restart.

    ``increase()`` ignores the first value of a series, and would miss the first event.
    """

    def __init__(self, served: Iterable[tuple[str, tuple[str, ...]]] = ()) -> None:
        self._served = set(served)

    def served(
        self, samples: Iterable[Sample], zeros: Iterable[tuple[Family, tuple[str, ...]]] = ()
    ) -> Iterator[Sample]:
        """Return the samples, those of new counters at 0, and a 0 for each of ``zeros`` that has no sample."""
        now = set()
        for sample in samples:
            key = (sample.family.name, sample.labels)
            now.add(key)
            fresh = sample.family.type == "counter" and key not in self._served
            yield sample.family.sample(0, *sample.labels) if fresh else sample
        for family, labels in zeros:
            key = (family.name, labels)
            if key not in now:
                now.add(key)
                yield family.sample(0, *labels)
        self._served |= now
