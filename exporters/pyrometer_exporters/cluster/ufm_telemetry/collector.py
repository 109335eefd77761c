"""The collector ``ufm-telemetry``: temperatures of switches and modules, from UFM Telemetry's HTTP endpoint.

A sample line: ``pyrometer_ufm_switch_temperature_celsius{switch="leaf-12",sensor="asic"} 61``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from pyrometer_exporters.cluster.poller import Poller, seconds
from pyrometer_exporters.cluster.ufm.fabric import HostPort, host_ports
from pyrometer_exporters.cluster.ufm_telemetry.temperatures import Temperatures, rows, temperatures
from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Families, Sample
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_kit.clock import Clock
from pyrometer_kit.errors import HttpError
from pyrometer_kit.flags import place
from pyrometer_kit.prometheus import HttpPrometheus, Prometheus, prometheus_url

# The secondary telemetry looks at the fabric every 300 s: asked each minute, what it saw is known within one.
INTERVAL_SECONDS = 60.0
# An answer of 24,000 ports has some 20 MB.
ANSWER_SECONDS = 30.0
FIRST_SECONDS = 2.0

# fmt: off
_ROWS = Families()
MODULE = _ROWS.gauge("pyrometer_ufm_module_temperature_celsius",
    "Temperature of the module in a port, as UFM Telemetry reports it (Module_Temperature). A host's port has node, "
    "device and port, a switch's switch and switch_port (its label where UFM has one, else its number); a copper "
    "cable has no sensor and no series.", "node", "device", "port", "switch", "switch_port")
SENSOR = _ROWS.gauge("pyrometer_ufm_switch_temperature_celsius",
    "Temperature of a switch's own sensor, such as asic, as UFM Telemetry reports it (temp_fields: register MTMP).",
    "switch", "sensor")
NEWEST = _ROWS.gauge("pyrometer_ufm_telemetry_last_sample_timestamp_seconds",
    "Time of the newest row that UFM Telemetry served.", "source")
# fmt: on
FAMILIES = tuple(_ROWS)


class UfmTelemetryCollector:
    """Asks each address in a thread of its own; :meth:`collect` reads only memory."""

    def __init__(self, context: Context, prometheus: Prometheus | None = None) -> None:
        urls: Sequence[str] = getattr(context.flags, "collector.ufm-telemetry.url") or ()
        interval: float = getattr(context.flags, "collector.ufm-telemetry.interval")
        ports = prometheus or HttpPrometheus(getattr(context.flags, "prometheus.url"))
        self._sources = [_Source(url, interval, ports, context.clock) for url in dict.fromkeys(urls)]

    def collect(self, until: float) -> Iterable[Sample | Down]:
        """See :class:`~pyrometer_exporters.framework.collector.Collector`."""
        first = min(until, time.monotonic() + FIRST_SECONDS)
        answers: list[Temperatures] = []
        for source in self._sources:
            outcome = source.poller.latest(first - time.monotonic())
            if outcome.value is None:
                yield Down(source.name, outcome.reason or "", outcome.detail)
                continue
            yield from source.remarks(outcome.value)
            answers.append(outcome.value)
        yield from temperature_samples(answers)

    def close(self) -> None:
        """Stop asking."""
        for source in self._sources:
            source.poller.close()


class _Source:
    """One endpoint of UFM Telemetry."""

    def __init__(self, url: str, interval: float, prometheus: Prometheus, clock: Clock) -> None:
        parts = urlsplit(url)
        self.name = f"{place(parts)}{parts.path}"
        self._url, self._prometheus, self._clock = url, prometheus, clock
        self.poller = Poller(f"ufm-telemetry-{self.name}", interval, ANSWER_SECONDS, self._ask, clock)
        self.poller.start()

    def _ask(self) -> Temperatures:
        """Return the temperatures of an answer.

        Raises:
            PartError: no answer, or none with a table of ports or switches.
        """
        from pyrometer_kit.http_client import get  # noqa: PLC0415  only where an address is given

        try:
            body = get(self._url, "", seconds=ANSWER_SECONDS)
        except HttpError as error:
            raise PartError(f"http_{error.status}" if error.status else "no_answer", str(error)) from None
        now = self._clock.wall()
        answer = temperatures(rows(body), self._hosts(now), now)
        if not (answer.modules or answer.sensors or answer.newest or answer.stale):
            detail = f"{self.name}: no table of ports or switches (the address of a CSV, as csv/xcset/low_freq_debug?)"
            raise PartError("no_table", detail)
        return answer

    def _hosts(self, now: float) -> dict[str, HostPort]:
        """Return the hosts' ports by GUID; a GUID on two devices (bonded ports) is nobody's."""
        ports = host_ports(self._prometheus, now)
        devices = Counter(port.guid for port in ports if port.guid)
        return {port.guid: port for port in ports if devices[port.guid] == 1}

    def remarks(self, answer: Temperatures) -> Iterator[Sample | Down]:
        """Yield the time of the newest row, and what is left out."""
        if answer.newest:
            yield NEWEST.sample(answer.newest, self.name)
        if answer.stale and not (answer.modules or answer.sensors):
            age = f"{self._clock.wall() - answer.newest:.0f} s old"
            yield Down(self.name, "stale", f"its newest row is {age if answer.newest else 'of the future: its clock?'}")
        if answer.left_out:
            yield Down(self.name, "too_many", f"{answer.left_out} ports or sensors beyond the limit were left out")


def temperature_samples(answers: Iterable[Temperatures]) -> Iterator[Sample]:
    """Yield the temperatures of several answers; of what two of them have, the later one's."""
    modules: dict[tuple[str, ...], float] = {}
    sensors: dict[tuple[str, ...], float] = {}
    for answer in answers:
        modules.update(answer.modules.items())
        sensors.update(answer.sensors.items())
    for family, values in ((MODULE, modules), (SENSOR, sensors)):
        yield from (family.sample(value, *labels) for labels, value in values.items())


def _add_flags(parser: FlagGroup) -> None:
    add = parser.add_argument
    add("--collector.ufm-telemetry.url", dest="collector.ufm-telemetry.url", action="append", type=prometheus_url,
        metavar="URL", help="a CSV of UFM Telemetry, such as http://ufm:9002/csv/xcset/low_freq_debug; may be "
        "repeated (default: none)")  # fmt: skip
    add("--collector.ufm-telemetry.interval", dest="collector.ufm-telemetry.interval", type=seconds,
        default=INTERVAL_SECONDS, metavar="SECONDS", help="polling interval (default: %(default)s)")  # fmt: skip


COLLECTOR = CollectorSpec(
    name="ufm-telemetry",
    help="Temperatures of switches and of modules in their ports, from UFM Telemetry.",
    families=FAMILIES,
    build=UfmTelemetryCollector,
    add_flags=_add_flags,
)
