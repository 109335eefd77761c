"""Turn readings of devices and ports, with what is remembered of them, into samples."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from pyrometer_exporters.framework.metrics import Columns, Family, Item, Row, Sample, columns_of
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
    SATURATED,
    SETTING,
    SETTLING,
    STATE_ID,
    UNREADABLE,
)
from pyrometer_exporters.node.nic.link_down import CAUSES, REBOOT, RELOAD, VIRTUAL, PortMemory
from pyrometer_exporters.node.nic.pcie import SPEED, SPEED_MAX, WIDTH, WIDTH_MAX
from pyrometer_exporters.node.nic.readings import Counts, DeviceReading, PortReading
from pyrometer_exporters.node.nic.temperatures import CELSIUS, CRITICAL_CELSIUS
from pyrometer_exporters.node.nic.widening import CLEARED, WRAP

_GROUPS = PortReading._fields.index("groups")  # the last one: counters
_NONE_IGNORED = dict.fromkeys(CAUSES, 0)
RESET_REASONS = (WRAP, CLEARED, REBOOT, RELOAD)


def device_samples(device: DeviceReading, memory: PortMemory | None) -> list[Item]:
    """Return the samples of a device without its ports; ``memory`` is that of the device's own counters, if any."""
    name = device.name
    samples: list[Item] = [READ_AGE.sample(age, name, tier.name) for tier, age in device.ages.items()]
    for file, number in device.failing:
        samples.append(UNREADABLE.sample(1, name, file, errno.errorcode.get(number, str(number)).lower()))
    for sensor, celsius, critical in device.temperatures:
        samples.append(CELSIUS.sample(celsius, name, sensor))
        if critical is not None:
            samples.append(CRITICAL_CELSIUS.sample(critical, name, sensor))
    for hop in device.hops:
        values = ((WIDTH, hop.width), (WIDTH_MAX, hop.width_max), (SPEED, hop.speed), (SPEED_MAX, hop.speed_max))
        samples += _present(values, name, hop.function)
    if memory is not None:
        samples.append(_counter_columns((name, ""), memory, 0, device.counts))
    return samples


def port_samples(
    device: DeviceReading, port: PortReading, memory: PortMemory, *, gpu: str, peers_up: bool
) -> list[Item]:
    """Return the samples of a port.

    Args:
        device: the device that the port belongs to.
        port: the latest reading of the port.
        memory: the port's memory, which already includes this reading.
        gpu: the PCI address of the nearest GPU; empty where there is none.
        peers_up: whether the links of all like ports of the node are up.
    """
    at = (device.name, port.port)
    counters: list[Item] = [_counter_columns(at, memory, group, counts) for group, counts in enumerate(port.groups)]
    for reason, times in memory.widening.settle().items():
        memory.resets[reason] = memory.resets.get(reason, 0) + times
    # Thirty samples of a port that hardly ever change: making them again takes longer than comparing what they show.
    shown = (
        at, gpu, peers_up, device.link_is_constant, device.pci, device.firmware, device.board, *port[:_GROUPS],
        memory.ever_active, memory.settling, memory.rate_max, memory.events, memory.last_down, memory.last_reason,
        *memory.ignored.items(), *memory.resets.items(),
    )  # fmt: skip
    known = memory.state_samples
    if known is None or known[0] != shown:
        rows = _state_samples(device, port, memory, gpu=gpu, peers_up=peers_up)
        known = memory.state_samples = shown, columns_of(rows)
    return [*counters, known[1]]


def _state_samples(
    device: DeviceReading, port: PortReading, memory: PortMemory, *, gpu: str, peers_up: bool
) -> list[Sample]:
    at = (device.name, port.port)
    samples: list[Sample] = [_info(device, port, gpu)]
    if port.fec_mode:
        samples.append(FEC_MODE.sample(1, *at, port.fec_mode))
    if not device.link_is_constant:
        samples += _link_samples(at, port, memory, peers_up=peers_up)
    values = (
        (STATE_ID, port.state_id),
        (PHYSICAL_STATE_ID, port.physical_state_id),
        (MTU, port.mtu),
        (LIFESPAN, port.lifespan),
    )
    samples += _present(values, *at)
    samples += [SETTING.sample(number, *at, name) for name, number in port.settings]
    samples += [RESETS.sample(memory.resets.get(reason, 0), *at, reason) for reason in RESET_REASONS]
    return samples


def _present(values: Iterable[tuple[Family, float | None]], *labels: str) -> list[Sample]:
    return [family.sample(value, *labels) for family, value in values if value is not None]


def _counter_columns(at: tuple[str, str], memory: PortMemory, group: int, counts: Counts) -> Columns:
    """Return the samples of a group of counters: those of the previous scrape if the group was not read since.

    Most groups are read at every second scrape only, and most of a node's samples are counters.
    """
    known = memory.counter_samples.get(group)
    if known is None or known[0] is not counts:
        known = memory.counter_samples[group] = counts, columns_of(_counter_rows(at, memory, counts))
    return known[1]


def _counter_rows(at: tuple[str, str], memory: PortMemory, counts: Counts) -> list[Row]:
    rows: list[Row] = []
    for counter, raw in counts:
        labels = at + counter.labels if counter.labels else at
        rows.append((counter.family, labels, memory.widening.value(counter, raw)))
        if counter.saturates:
            rows.append((SATURATED, (*at, counter.name), raw >= counter.maximum))
    return rows


def _info(device: DeviceReading, port: PortReading, gpu: str) -> Sample:
    pci = device.pci
    return INFO.sample(
        1, device.name, port.port, port.netdev, pci.address, port.guid, port.link_layer, pci.driver, device.firmware,
        device.board, pci.numa_node, gpu,
    )  # fmt: skip


def _link_samples(at: tuple[str, str], port: PortReading, memory: PortMemory, *, peers_up: bool) -> list[Sample]:
    expected = (memory.ever_active or peers_up) and not port.admin_down and memory.settling != VIRTUAL
    samples = [] if port.active is None else [LINK_UP.sample(port.active, *at)]
    samples.append(EXPECTED_UP.sample(expected, *at))
    if port.rate:
        samples.append(LINK_RATE.sample(port.rate, *at))
    if memory.rate_max:
        samples.append(LINK_RATE_MAX.sample(memory.rate_max, *at))
    samples.append(LINK_DOWN_EVENTS.sample(memory.events, *at))
    if memory.settling:
        samples.append(SETTLING.sample(1, *at, memory.settling))
    samples += [IGNORED.sample(count, *at, cause) for cause, count in {**_NONE_IGNORED, **memory.ignored}.items()]
    if memory.last_down is not None:
        samples.append(LAST_DOWN.sample(memory.last_down, *at))
        samples.append(LAST_DOWN_REASON.sample(1, *at, memory.last_reason or "unknown"))
    if port.active is False:
        samples.append(DOWN_REASON.sample(1, *at, port.down_reason or "unknown"))
    return samples
