"""Turn readings of devices and ports, with what is remembered of them, into samples."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from pyrometer_exporters.framework.metrics import Columns, Family, Row, Sample, columns_of
from pyrometer_exporters.node.nic import families
from pyrometer_exporters.node.nic.link_down import CAUSES, CLEARED, REBOOT, RELOAD, VIRTUAL, WRAP, PortMemory, Widening
from pyrometer_exporters.node.nic.pcie import SPEED, SPEED_MAX, WIDTH, WIDTH_MAX
from pyrometer_exporters.node.nic.readings import Counts, DeviceReading, PortReading
from pyrometer_exporters.node.nic.temperatures import CELSIUS, CRITICAL_CELSIUS

_NONE_IGNORED = dict.fromkeys(CAUSES, 0)
RESET_REASONS = (WRAP, CLEARED, REBOOT, RELOAD)


class CounterSamples:
    """The samples of counters: most of a node's samples, and those of a group that was not read since stay the same."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str, int], tuple[Counts, Widening, Columns]] = {}
        self._kept = self._before

    def begin(self) -> None:
        """Begin a scrape; groups that it does not ask for are forgotten."""
        self._before, self._kept = self._kept, {}

    def of(self, device: str, port: str, group: int, counts: Counts, widening: Widening) -> Columns:
        """Return the samples of one group of a port's counters, or of a device's own, whose ``port`` is empty."""
        place = device, port, group
        known = self._before.get(place)
        if known is None or known[0] is not counts or known[1] is not widening:
            known = counts, widening, columns_of(_counter_rows((device, port), counts, widening))
        self._kept[place] = known
        return known[2]


def device_samples(device: DeviceReading) -> Iterator[Sample]:
    """Yield the samples of a device without its ports and counters."""
    name = device.name
    for tier, age in device.ages.items():
        yield families.READ_AGE.sample(age, name, tier.name)
    for file, number in device.failing:
        yield families.UNREADABLE.sample(1, name, file, errno.errorcode.get(number, str(number)).lower())
    for sensor, celsius, critical in device.temperatures:
        yield from _present(((CELSIUS, celsius), (CRITICAL_CELSIUS, critical)), name, sensor)
    for hop in device.hops:
        values = ((WIDTH, hop.width), (WIDTH_MAX, hop.width_max), (SPEED, hop.speed), (SPEED_MAX, hop.speed_max))
        yield from _present(values, name, hop.function)


def port_samples(
    device: DeviceReading, port: PortReading, memory: PortMemory, *, gpu: str, peers_up: bool
) -> Iterator[Sample]:
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
    yield families.INFO.sample(
        1, *at, port.netdev, pci.address, port.guid, port.link_layer, pci.driver, device.firmware, device.board,
        pci.numa_node, gpu,
    )  # fmt: skip
    if port.fec_mode:
        yield families.FEC_MODE.sample(1, *at, port.fec_mode)
    if not device.link_is_constant:
        yield from _link_samples(at, port, memory, peers_up=peers_up)
    values = (
        (families.STATE_ID, port.state_id),
        (families.PHYSICAL_STATE_ID, port.physical_state_id),
        (families.MTU, port.mtu),
        (families.LIFESPAN, port.lifespan),
    )
    yield from _present(values, *at)
    for name, number in port.settings:
        yield families.SETTING.sample(number, *at, name)
    for reason in RESET_REASONS:
        yield families.RESETS.sample(memory.resets.get(reason, 0), *at, reason)


def _present(values: Iterable[tuple[Family, float | None]], *labels: str) -> Iterator[Sample]:
    return (family.sample(value, *labels) for family, value in values if value is not None)


def _counter_rows(at: tuple[str, str], counts: Counts, widening: Widening) -> Iterator[Row]:
    for counter, raw in counts:
        yield counter.family, at + counter.labels, widening.value(counter, raw)
        if counter.saturates:
            yield families.SATURATED, (*at, counter.name), raw >= counter.maximum


def _link_samples(at: tuple[str, str], port: PortReading, memory: PortMemory, *, peers_up: bool) -> Iterator[Sample]:
    expected = (memory.ever_active or peers_up) and not port.admin_down and memory.settling != VIRTUAL
    if port.active is not None:
        yield families.LINK_UP.sample(port.active, *at)
    yield families.EXPECTED_UP.sample(expected, *at)
    yield from _present(
        ((families.LINK_RATE, port.rate or None), (families.LINK_RATE_MAX, memory.rate_max or None)), *at
    )
    yield families.LINK_DOWN_EVENTS.sample(memory.events, *at)
    if memory.settling:
        yield families.SETTLING.sample(1, *at, memory.settling)
    for cause, count in {**_NONE_IGNORED, **memory.ignored}.items():
        yield families.IGNORED.sample(count, *at, cause)
    if memory.last_down is not None:
        yield families.LAST_DOWN.sample(memory.last_down, *at)
        yield families.LAST_DOWN_REASON.sample(1, *at, memory.last_reason or "unknown")
    if port.active is False:
        yield families.DOWN_REASON.sample(1, *at, port.down_reason or "unknown")
