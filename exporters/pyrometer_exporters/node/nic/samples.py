"""Turn readings of devices and ports, with what is remembered of them, into samples."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from pyrometer_exporters.framework.metrics import Sample, new_sample
from pyrometer_exporters.node.nic.counters import SATURATED
from pyrometer_exporters.node.nic.families import (
    DOWN_REASON,
    EXPECTED_UP,
    FEC_MODE,
    IGNORED,
    INFO,
    LAST_DOWN,
    LAST_DOWN_REASON,
    LIFESPAN,
    LINK_DOWN_EVENTS,
    LINK_RATE,
    LINK_RATE_MAX,
    LINK_UP,
    MTU,
    PHYSICAL_STATE_ID,
    READ_AGE,
    RESETS,
    SETTING,
    STATE_ID,
    UNREADABLE,
)
from pyrometer_exporters.node.nic.link_down import CAUSES, REBOOT, RELOAD, PortMemory
from pyrometer_exporters.node.nic.pcie import SPEED, SPEED_MAX, WIDTH, WIDTH_MAX
from pyrometer_exporters.node.nic.readings import Counts, DeviceReading, Hop, PortReading
from pyrometer_exporters.node.nic.temperatures import CELSIUS, CRITICAL_CELSIUS
from pyrometer_exporters.node.nic.widening import CLEARED, WRAP

RESET_REASONS = (WRAP, CLEARED, REBOOT, RELOAD)


def device_samples(device: DeviceReading, memory: PortMemory | None) -> Iterator[Sample]:
    """Yield the samples of a device without its ports; ``memory`` is that of the device's own counters, if any."""
    name = device.name
    for tier, age in device.ages.items():
        yield READ_AGE.sample(age, name, tier.name)
    for file, number in device.failing:
        yield UNREADABLE.sample(1, name, file, errno.errorcode.get(number, str(number)).lower())
    for sensor, celsius, critical in device.temperatures:
        yield CELSIUS.sample(celsius, name, sensor)
        if critical is not None:
            yield CRITICAL_CELSIUS.sample(critical, name, sensor)
    for hop in device.hops:
        yield from _hop_samples(name, hop)
    if memory is not None:
        yield from _counter_samples((name, ""), memory, device.counts)


def port_samples(
    device: DeviceReading, port: PortReading, memory: PortMemory, *, gpu: str, peers_up: bool
) -> Iterator[Sample]:
    """Yield the samples of a port.

    Args:
        device: the device that the port belongs to.
        port: the latest reading of the port.
        memory: the port's memory, which already includes this reading.
        gpu: the PCI address of the nearest GPU; empty where there is none.
        peers_up: whether the links of all like ports of the node are up.
    """
    at = (device.name, port.port)
    for group in port.groups:
        yield from _counter_samples(at, memory, group)
    for reason, times in memory.widening.settle().items():
        memory.resets[reason] = memory.resets.get(reason, 0) + times
    yield _info(device, port, gpu)
    if port.fec_mode:
        yield FEC_MODE.sample(1, *at, port.fec_mode)
    if not device.link_is_constant:
        yield from _link_samples(at, port, memory, peers_up=peers_up)
    yield from _state_samples(at, port)
    for reason in RESET_REASONS:
        yield RESETS.sample(memory.resets.get(reason, 0), *at, reason)


def _hop_samples(device: str, hop: Hop) -> Iterator[Sample]:
    values = ((WIDTH, hop.width), (WIDTH_MAX, hop.width_max), (SPEED, hop.speed), (SPEED_MAX, hop.speed_max))
    for family, value in values:
        if value is not None:
            yield family.sample(value, device, hop.function)


def _counter_samples(at: tuple[str, str], memory: PortMemory, counts: Counts) -> list[Sample]:
    # Not by Family.sample(), which checks: a node has a thousand counters, and their labels are right by construction.
    widened = memory.widening.value
    samples: list[Sample] = []
    for counter, raw in counts:
        labels = at + counter.labels if counter.labels else at
        samples.append(new_sample(counter.family, labels, widened(counter, raw)))
        if counter.saturates:
            samples.append(new_sample(SATURATED, (*at, counter.name), raw >= counter.maximum))
    return samples


def _info(device: DeviceReading, port: PortReading, gpu: str) -> Sample:
    pci = device.pci
    return INFO.sample(
        1, device.name, port.port, port.netdev, pci.address, port.guid, port.link_layer, pci.driver, device.firmware,
        device.board, pci.numa_node, gpu,
    )  # fmt: skip


def _state_samples(at: tuple[str, str], port: PortReading) -> Iterator[Sample]:
    for family, value in (
        (STATE_ID, port.state_id),
        (PHYSICAL_STATE_ID, port.physical_state_id),
        (MTU, port.mtu),
        (LIFESPAN, port.lifespan),
    ):
        if value is not None:
            yield family.sample(value, *at)
    for name, number in port.settings:
        yield SETTING.sample(number, *at, name)


def _link_samples(at: tuple[str, str], port: PortReading, memory: PortMemory, *, peers_up: bool) -> Iterator[Sample]:
    if port.active is not None:
        yield LINK_UP.sample(port.active, *at)
    yield EXPECTED_UP.sample((memory.ever_active or peers_up) and not port.admin_down, *at)
    if port.rate:
        yield LINK_RATE.sample(port.rate, *at)
    if memory.rate_max:
        yield LINK_RATE_MAX.sample(memory.rate_max, *at)
    yield LINK_DOWN_EVENTS.sample(memory.events, *at)
    for cause in CAUSES:
        yield IGNORED.sample(memory.ignored.get(cause, 0), *at, cause)
    if memory.last_down is not None:
        yield LAST_DOWN.sample(memory.last_down, *at)
        yield LAST_DOWN_REASON.sample(1, *at, memory.last_reason or "unknown")
    if port.active is False:
        yield DOWN_REASON.sample(1, *at, port.down_reason or "unknown")
