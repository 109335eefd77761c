"""Turn readings of devices and ports, with what is remembered of them, into samples."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from pyrometer_exporters.framework.metrics import Columns, Family, Row, columns_of
from pyrometer_exporters.node.nic import families
from pyrometer_exporters.node.nic.link_down import CAUSES, CLEARED, NOBODYS, REBOOT, RELOAD, WRAP, PortMemory, Widening
from pyrometer_exporters.node.nic.pcie import SPEED, SPEED_MAX, WIDTH, WIDTH_MAX
from pyrometer_exporters.node.nic.readings import Counts, DeviceReading, PortReading
from pyrometer_exporters.node.nic.temperatures import CELSIUS, CRITICAL_CELSIUS

_NONE_IGNORED = dict.fromkeys(CAUSES, 0)
RESET_REASONS = (WRAP, CLEARED, REBOOT, RELOAD)


class CounterSamples:
    """The samples of counters: most of a node's samples, and those of a group that was not read since stay the same."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str, int], tuple[Counts, Widening, Columns]] = {}
        self._now = self._before

    def begin(self) -> None:
        """Begin a scrape; groups that it does not ask for are forgotten."""
        self._before, self._now = self._now, {}

    def of(self, device: str, port: str, group: int, counts: Counts, widening: Widening) -> Columns:
        """Return the samples of one group of a port's counters, or of a device's own, whose ``port`` is empty."""
        place = device, port, group
        kept = self._before.get(place)
        if kept is None or kept[0] is not counts or kept[1] is not widening:
            kept = counts, widening, columns_of(_counter_rows((device, port), counts, widening))
        self._now[place] = kept
        return kept[2]


def device_rows(device: DeviceReading) -> Iterator[Row]:
    """Yield the samples of a device without its ports and counters."""
    name = device.name
    for tier, age in device.ages.items():
        yield families.READ_AGE, (name, tier.name), age
    for file, number in device.failing:
        yield families.UNREADABLE, (name, file, errno.errorcode.get(number, str(number)).lower()), 1
    for sensor, celsius, critical in device.temperatures:
        yield from _present((name, sensor), ((CELSIUS, celsius), (CRITICAL_CELSIUS, critical)))
    for hop in device.hops:
        values = ((WIDTH, hop.width), (WIDTH_MAX, hop.width_max), (SPEED, hop.speed), (SPEED_MAX, hop.speed_max))
        yield from _present((name, hop.function), values)


def port_rows(
    device: DeviceReading, port: PortReading, memory: PortMemory, *, gpu: str, peers_up: bool
) -> Iterator[Row]:
    """Yield the samples of a port without its counters.

    Args:
        device: the device that the port belongs to.
        port: the latest reading of the port.
        memory: the port's memory, which already includes this reading.
        gpu: the PCI address of the nearest GPU; empty where there is none.
        peers_up: whether the links of all like ports of the node are up.
    """
    at = (device.name, port.port)
    for reason, times in memory.widening.take_restarts().items():
        memory.resets[reason] = memory.resets.get(reason, 0) + times
    pci = device.pci
    identity = (
        *at, port.netdev, pci.address, port.guid, port.link_layer, pci.driver, device.firmware, device.board,
        pci.numa_node, gpu,
    )  # fmt: skip
    yield families.INFO, identity, 1
    if port.fec_mode:
        yield families.FEC_MODE, (*at, port.fec_mode), 1
    if not device.link_is_constant:
        yield from _link_rows(at, port, memory, peers_up=peers_up)
    values = (
        (families.STATE_ID, port.state_id),
        (families.PHYSICAL_STATE_ID, port.physical_state_id),
        (families.MTU, port.mtu),
        (families.LIFESPAN, port.lifespan),
    )
    yield from _present(at, values)
    for name, number in port.settings:
        yield families.SETTING, (*at, name), number
    for reason in RESET_REASONS:
        yield families.RESETS, (*at, reason), memory.resets.get(reason, 0)


def _present(labels: tuple[str, ...], values: Iterable[tuple[Family, float | None]]) -> Iterator[Row]:
    return ((family, labels, value) for family, value in values if value is not None)


def _counter_rows(at: tuple[str, str], counts: Counts, widening: Widening) -> Iterator[Row]:
    for counter, raw in counts:
        yield counter.family, at + counter.labels, widening.value(counter, raw)
        if counter.saturates:
            yield families.SATURATED, (*at, counter.name), raw >= counter.maximum


def _link_rows(at: tuple[str, str], port: PortReading, memory: PortMemory, *, peers_up: bool) -> Iterator[Row]:
    if port.active is not None:
        yield families.LINK_UP, at, port.active
    expected = (memory.ever_active or peers_up) and not port.admin_down and memory.settling not in NOBODYS
    yield families.EXPECTED_UP, at, expected
    if port.rate:
        yield families.LINK_RATE, at, port.rate
    if memory.rate_max:
        yield families.LINK_RATE_MAX, at, memory.rate_max
    yield families.LINK_DOWN_EVENTS, at, memory.events
    if memory.settling:
        yield families.SETTLING, (*at, memory.settling), 1
    for cause, count in {**_NONE_IGNORED, **memory.ignored}.items():
        yield families.IGNORED, (*at, cause), count
    if memory.last_down is not None:
        yield families.LAST_DOWN, at, memory.last_down
        yield families.LAST_DOWN_REASON, (*at, memory.last_reason or "unknown"), 1
    if port.active is False:
        yield families.DOWN_REASON, (*at, port.down_reason or "unknown"), 1
