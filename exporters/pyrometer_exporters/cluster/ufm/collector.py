"""The collector ``ufm``: events of links, ports and cables from UFM's log, and the fabric's topology.

A sample line: ``pyrometer_ufm_port_events_total{event="link_down",event_id="329",reason="",node="gpu-174",
device="mlx5_5",port="1",switch="leaf-12",switch_port="17/1"} 3``. A cluster without UFM has a reason, and still the
rails of its ports, which its node exporters report to Prometheus.
"""

from __future__ import annotations

import argparse
import time
import zoneinfo
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from pathlib import Path

from pyrometer_exporters.cluster.poller import Poller
from pyrometer_exporters.cluster.ufm.event_counts import MAX_PLACES
from pyrometer_exporters.cluster.ufm.fabric import fabric_samples, host_ports
from pyrometer_exporters.cluster.ufm.families import FAMILIES, GAPS, UNREAD, CounterInit, at_zero, event_samples
from pyrometer_exporters.cluster.ufm.reader import Reader
from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import Outcome, reason_of
from pyrometer_kit.prometheus import QUERY_SECONDS, HttpPrometheus, Prometheus
from pyrometer_kit.statefile import StateFile

DEFAULT_LOG = Path("/opt/ufm/log/event.log")
LOOK_SECONDS = 1.0
# For a file system that hangs; a new log of LEARNED_BYTES takes seconds.
READ_SECONDS = 30.0
# Ports come and go with nodes, which is not urgent.
PORTS_SECONDS = 60.0
FIRST_SECONDS = 2.0


class UfmCollector:
    """Follows the log in one thread and asks Prometheus in another; :meth:`collect` reads only memory."""

    def __init__(self, context: Context, prometheus: Prometheus | None = None) -> None:
        self._path: Path = getattr(context.flags, "collector.ufm.event-log")
        zone: tzinfo | None = getattr(context.flags, "collector.ufm.timezone")
        self._clock = context.clock
        self._reader = Reader(self._path, zone, StateFile(context.state, "ufm.json", version=1))
        self._counter_init = CounterInit(self._counted_before())
        source = prometheus or HttpPrometheus(getattr(context.flags, "prometheus.url"))
        self._log = Poller("ufm-log", LOOK_SECONDS, READ_SECONDS, self._reader.turn, context.clock)
        self._ports = Poller(
            "ufm-ports", PORTS_SECONDS, QUERY_SECONDS, lambda: host_ports(source, context.clock.wall()), context.clock
        )
        self._log.start()
        self._ports.start()

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """See :class:`~pyrometer_exporters.framework.collector.Collector`."""
        first = min(until, time.monotonic() + FIRST_SECONDS)
        yield from self._log_samples(self._log.latest(first - time.monotonic()))
        ports = self._ports.latest(first - time.monotonic())
        if ports.reason is not None:
            yield Down("ports", ports.reason, ports.detail)
        with self._reader.lock:
            yield from list(fabric_samples(ports.value or (), self._reader.counts.links))

    def close(self) -> None:
        """LinkEnd both threads."""
        self._log.close()
        self._ports.close()

    def _log_samples(self, outcome: Outcome[None]) -> Iterator[Sample | Down]:
        if outcome.reason is not None:
            yield self._why(outcome)
            return
        reader = self._reader
        with reader.lock:
            counted = list(event_samples(reader.counts, reader.lines, self._clock.wall()))
            yield from list(self._counter_init.served(counted, at_zero(reader.counts)))
            if not reader.counts.all_placed:
                yield Down(
                    "ports", "too_many", f"the log names more than {MAX_PLACES}: events of further ones are left out"
                )
        yield GAPS.sample(reader.gaps)
        yield UNREAD.sample(reader.unread)
        if reader.state_error is not None:
            yield Down("state", reason_of(reader.state_error), str(reader.state_error))

    def _why(self, outcome: Outcome[None]) -> Down:
        if outcome.reason == "enoent":
            detail = f"no {self._path}: nothing is known about the fabric; see --collector.ufm.event-log"
            return Down("event_log", "no_ufm", detail)
        return Down("event_log", outcome.reason or "", outcome.detail)

    def _counted_before(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Return the counters that were served before a restart."""
        reader = self._reader
        for sample in event_samples(reader.counts, reader.lines, 0.0) if reader.kept else ():
            yield sample.family.name, sample.labels


def _zone(text: str) -> tzinfo | None:
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"{text!r} is not a time zone such as UTC or America/Los_Angeles"
        raise argparse.ArgumentTypeError(msg) from None


def _add_flags(parser: FlagGroup) -> None:
    add = parser.add_argument
    add("--collector.ufm.event-log", dest="collector.ufm.event-log", type=Path, default=DEFAULT_LOG, metavar="FILE",
        help="UFM's event log; in a container /opt/ufm/files/log/event.log (default: %(default)s)")  # fmt: skip
    add("--collector.ufm.timezone", dest="collector.ufm.timezone", type=_zone, default=None, metavar="ZONE",
        help="time zone of the log's timestamps, which lack one, such as UTC (default: this machine's)")  # fmt: skip


COLLECTOR = CollectorSpec(
    name="ufm",
    help="The fabric, from UFM's event log and the ports that node exporters report.",
    families=FAMILIES,
    build=UfmCollector,
    add_flags=_add_flags,
)
