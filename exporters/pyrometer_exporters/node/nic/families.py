"""The families about links and devices, and how a reading becomes samples of them."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Family, Sample, new_sample
from pyrometer_exporters.node.nic import counters, drivers, ethernet, pcie, temperatures
from pyrometer_exporters.node.nic.counters import PORT_LABELS, SATURATED, Counter
from pyrometer_exporters.node.nic.link_down import CAUSES, REBOOT, RELOAD, PortMemory
from pyrometer_exporters.node.nic.pcie import SPEED, SPEED_MAX, WIDTH, WIDTH_MAX, Hop
from pyrometer_exporters.node.nic.readings import Counts, DeviceReading, PortReading
from pyrometer_exporters.node.nic.shown import Part, Parts, Shown
from pyrometer_exporters.node.nic.temperatures import CELSIUS, CRITICAL_CELSIUS, Temperature
from pyrometer_exporters.node.nic.widening import CLEARED, WRAP

RESET_REASONS = (WRAP, CLEARED, REBOOT, RELOAD)

UP = Family(
    "pyrometer_nic_up", "gauge", "1 if the device answered within its deadline, else 0. class/infiniband, class/net.",
    ("device",),
)  # fmt: skip
INFO = Family(
    "pyrometer_nic_info",
    "gauge",
    "1; the port's identity: its interface, PCI function and driver, GUID, board, NUMA node and the PCI address of the "
    "nearest GPU (empty where none shares a root port). An interface without RDMA has no port.",
    ("device", "port", "netdev", "pci_bus_id", "guid", "link_layer", "driver", "firmware", "board", "numa_node", "gpu"),
)
LINK_UP = Family(
    "pyrometer_nic_link_up",
    "gauge",
    "1 if the link is ACTIVE or ACTIVE_DEFER (an interface without RDMA: up), else 0. ports/<n>/state, operstate.",
    PORT_LABELS,
)
EXPECTED_UP = Family(
    "pyrometer_nic_expected_up",
    "gauge",
    "1 if the link was seen up before and no administrator has switched it off, else 0.",
    PORT_LABELS,
)
LINK_RATE = Family(
    "pyrometer_nic_link_rate_bits_per_second",
    "gauge",
    "The link's rate while it is up, in bits per second; absent while down. ports/<n>/rate, speed.",
    PORT_LABELS,
)
LINK_RATE_MAX = Family(
    "pyrometer_nic_link_rate_max_bits_per_second",
    "gauge",
    "The largest rate that the link was seen to have, in bits per second.",
    PORT_LABELS,
)
LINK_DOWN_EVENTS = Family(
    "pyrometer_nic_link_down_events_total",
    "counter",
    "Losses of the link since the port was first seen, restarts of the exporter included. The largest increase of "
    "link_downed, carrier_down_count and sampled states counts. Boots, driver reloads and administrators do not.",
    PORT_LABELS,
)
LAST_DOWN = Family(
    "pyrometer_nic_link_last_down_timestamp_seconds",
    "gauge",
    "When the latest loss of the link was noticed; absent before the first.",
    PORT_LABELS,
)

LAST_DOWN_REASON = Family(
    "pyrometer_nic_link_last_down_info",
    "gauge",
    "1; why the link was lost the last time, as pyrometer_nic_link_down_reason_info says it; recovered_before_seen "
    "where it was up again at the next look. Absent before the first loss.",
    (*PORT_LABELS, "reason"),
)
DOWN_REASON = Family(
    "pyrometer_nic_link_down_reason_info",
    "gauge",
    "1 while the link is down, with the reason: the kernel's (ethtool's extended state) or the physical state.",
    (*PORT_LABELS, "reason"),
)
IGNORED = Family(
    "pyrometer_nic_link_down_ignored_total",
    "counter",
    "Losses of the link that are not counted as events: within 15 minutes of a boot, after a driver reload, by an "
    "administrator, or of a port that was never up.",
    (*PORT_LABELS, "cause"),
)
RESETS = Family(
    "pyrometer_nic_resets_total",
    "counter",
    "How often counters of the port began again: each that wrapped, those cleared together once, reboots, driver "
    "reloads.",
    (*PORT_LABELS, "reason"),
)
FEC_MODE = Family(
    "pyrometer_nic_fec_info",
    "gauge",
    "1; the forward error correction that the link uses: rs, baser, llrs, off. ethtool --show-fec.",
    (*PORT_LABELS, "mode"),
)
STATE_ID = Family(
    "pyrometer_nic_state_id",
    "gauge",
    "The port's state: 1 down, 2 initialising, 3 armed, 4 active, 5 active and deferred. ports/<n>/state.",
    PORT_LABELS,
)
PHYSICAL_STATE_ID = Family(
    "pyrometer_nic_physical_state_id",
    "gauge",
    "The port's physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 error recovery, 7 test. "
    "ports/<n>/phys_state.",
    PORT_LABELS,
)
MTU = Family("pyrometer_nic_mtu_bytes", "gauge", "The interface's largest packet, in bytes. mtu.", PORT_LABELS)
SETTING = Family(
    "pyrometer_nic_interface_setting",
    "gauge",
    "A number that the port's interface is set to, under the file's name. class/net/<interface>/<setting>.",
    (*PORT_LABELS, "setting"),
)
LIFESPAN = Family(
    "pyrometer_nic_lifespan_seconds",
    "gauge",
    "For how long the kernel keeps hardware counters before it asks the device again. hw_counters/lifespan.",
    PORT_LABELS,
)
READ_AGE = Family(
    "pyrometer_nic_read_age_seconds",
    "gauge",
    "How long ago the oldest value of this tier was read from the device. A tier's files are read once per interval.",
    ("device", "tier"),
)
UNREADABLE = Family(
    "pyrometer_nic_unreadable_file_info",
    "gauge",
    "1 while a file of the device can't be read, with the errno; asked again later and later, at most after an hour.",
    ("device", "file", "reason"),
)

ALL = (
    UP, INFO, LINK_UP, EXPECTED_UP, LINK_RATE, LINK_RATE_MAX, LINK_DOWN_EVENTS, LAST_DOWN, LAST_DOWN_REASON,
    DOWN_REASON, IGNORED, RESETS, STATE_ID,
    PHYSICAL_STATE_ID, MTU, SETTING, LIFESPAN, READ_AGE, UNREADABLE, SATURATED,
    FEC_MODE, *(counter.family for counter in counters.ALL), *drivers.FAMILIES, *ethernet.FAMILIES,
    *pcie.FAMILIES, *temperatures.FAMILIES,
)  # fmt: skip


class Around(NamedTuple):
    """What a port is shown with.

    ``gpu`` is the PCI address of the nearest one, ``peers_up`` whether the links of all like ports of the node are up.
    """

    gpu: str
    peers_up: bool
    shown: Shown


class _Device(NamedTuple):
    """What is shown of a device as long as it is so: see :class:`DeviceReading`."""

    name: str
    failing: tuple[tuple[str, int], ...]
    temperatures: tuple[Temperature, ...]
    hops: tuple[Hop, ...]


class _Port(NamedTuple):
    """What is shown of a port beside its counters, as long as it is so.

    ``link`` is None where the driver reports a constant one.
    """

    info: tuple[str, ...]
    fec_mode: str
    state_id: int | None
    physical_state_id: int | None
    mtu: int | None
    lifespan: float | None
    settings: tuple[tuple[str, int], ...]
    resets: tuple[int, ...]
    link: _Link | None


class _Link(NamedTuple):
    """See :class:`PortReading` and :class:`PortMemory`."""

    active: bool | None
    expected_up: bool
    rate: int | None
    rate_max: int
    events: int
    ignored: tuple[int, ...]
    last_down: float | None
    last_reason: str
    down_reason: str


def show_device(device: DeviceReading, memory: PortMemory | None, shown: Shown) -> Iterable[Sample]:
    """Everything about a device that is no port's; ``memory`` is that of the whole device, where it has counters.

    What changes with every scrape is given at once.
    """
    name = device.name
    state = _Device(name, device.failing, device.temperatures, device.hops)

    def add(parts: Parts) -> None:
        parts.add("device", state, lambda state, _: list(_device_samples(state)))
        if memory is not None:
            parts.add("device counters", device.counts, partial(_counter_samples, (name, ""), memory))

    shown.show(name, _era(memory), (state, device.counts), add)
    return [new_sample(READ_AGE, (name, tier.name), age) for tier, age in device.ages.items()]


def show_port(device: DeviceReading, port: PortReading, memory: PortMemory, around: Around) -> None:
    """Everything about one port; ``memory`` has taken this reading into account."""
    at = (device.name, port.port)

    def add(parts: Parts) -> None:
        make = partial(_counter_samples, at, memory)
        for index, group in enumerate(port.groups):
            parts.add(index, group, make)
        for reason, times in memory.widening.settle().items():
            memory.resets[reason] = memory.resets.get(reason, 0) + times
        rest = _beside_counters(device, port, memory, around)
        parts.add("port", rest, lambda _, __: list(_port_samples(at, _port(device, port, memory, around))))

    # While no counter moves, none begins again.
    state = port.groups, _beside_counters(device, port, memory, around)
    around.shown.show(at, _era(memory), state, add)


def _era(memory: PortMemory | None) -> tuple[int, int] | None:
    """Of counters that began again, or of another device by this name, the same counts can be other values."""
    return None if memory is None else (id(memory), memory.widening.era)


def _beside_counters(
    device: DeviceReading, port: PortReading, memory: PortMemory, around: Around
) -> tuple[object, ...]:
    """All that a port's samples are made of but for those of its counters."""
    own = device.place, device.firmware, device.board, device.link_is_constant, around.gpu, around.peers_up
    link = memory.events, memory.ever_active, memory.rate_max, memory.last_down, memory.last_reason
    return port[:-1], own, link, dict(memory.ignored), dict(memory.resets)


def _port(device: DeviceReading, port: PortReading, memory: PortMemory, around: Around) -> _Port:
    info = (
        device.name, port.port, port.netdev, device.place.pci_bus_id, port.guid, port.link_layer, device.place.driver,
        device.firmware, device.board, device.place.numa_node, around.gpu,
    )  # fmt: skip
    resets = tuple(memory.resets.get(reason, 0) for reason in RESET_REASONS)
    link = None if device.link_is_constant else _link(port, memory, peers_up=around.peers_up)
    return _Port(
        info, port.fec_mode, port.state_id, port.physical_state_id, port.mtu, port.lifespan, port.settings, resets, link
    )


def _link(port: PortReading, memory: PortMemory, *, peers_up: bool) -> _Link:
    return _Link(
        port.active, (memory.ever_active or peers_up) and not port.admin_down, port.rate, memory.rate_max,
        memory.events, tuple(memory.ignored.get(cause, 0) for cause in CAUSES), memory.last_down, memory.last_reason,
        port.down_reason,
    )  # fmt: skip


def _device_samples(device: _Device) -> Iterable[Sample]:
    for file, number in device.failing:
        yield UNREADABLE.sample(1, device.name, file, errno.errorcode.get(number, str(number)).lower())
    for sensor, celsius, critical in device.temperatures:
        yield CELSIUS.sample(celsius, device.name, sensor)
        if critical is not None:
            yield CRITICAL_CELSIUS.sample(critical, device.name, sensor)
    for hop in device.hops:
        for family, value in (
            (WIDTH, hop.width),
            (WIDTH_MAX, hop.width_max),
            (SPEED, hop.speed),
            (SPEED_MAX, hop.speed_max),
        ):
            if value is not None:
                yield Sample(family, (device.name, hop.function), value)


def _port_samples(at: tuple[str, str], port: _Port) -> Iterable[Sample]:
    yield INFO.sample(1, *port.info)
    if port.fec_mode:
        yield FEC_MODE.sample(1, *at, port.fec_mode)
    if port.link is not None:
        yield from _link_samples(at, port.link)
    for family, value in (
        (STATE_ID, port.state_id),
        (PHYSICAL_STATE_ID, port.physical_state_id),
        (MTU, port.mtu),
        (LIFESPAN, port.lifespan),
    ):
        if value is not None:
            yield Sample(family, at, value)
    for name, number in port.settings:
        yield Sample(SETTING, (*at, name), number)
    for reason, times in zip(RESET_REASONS, port.resets, strict=True):
        yield Sample(RESETS, (*at, reason), times)


def _counter_samples(
    at: tuple[str, str], memory: PortMemory, counts: Counts, before: Part[Counts] | None
) -> list[Sample]:
    """Those of counters that say what they said ``before`` are the same objects."""
    known = {} if before is None else _by_count(before)
    samples = []
    for count in counts:
        samples += known.get(id(count)) or _of_counter(at, memory, *count)
    return samples


def _by_count(part: Part[Counts]) -> dict[int, list[Sample]]:
    """The samples of each count, by its id: those of a part live as long as it does."""
    samples = iter(part.samples)
    return {id(count): list(islice(samples, 1 + count[0].saturates)) for count in part.state}


def _of_counter(at: tuple[str, str], memory: PortMemory, counter: Counter, raw: int) -> list[Sample]:
    # Made directly: the check of Family.sample for each of a node's thousand counters is worth a fifth of a scrape.
    labels = at + counter.labels if counter.labels else at
    value = new_sample(counter.family, labels, memory.widening.value(counter, raw))
    return [value, new_sample(SATURATED, (*at, counter.name), raw >= counter.maximum)] if counter.saturates else [value]


def _link_samples(at: tuple[str, str], link: _Link) -> Iterable[Sample]:
    if link.active is not None:
        yield LINK_UP.sample(link.active, *at)
    yield EXPECTED_UP.sample(link.expected_up, *at)
    if link.rate:
        yield LINK_RATE.sample(link.rate, *at)
    if link.rate_max:
        yield LINK_RATE_MAX.sample(link.rate_max, *at)
    yield LINK_DOWN_EVENTS.sample(link.events, *at)
    for cause, times in zip(CAUSES, link.ignored, strict=True):
        yield Sample(IGNORED, (*at, cause), times)
    if link.last_down is not None:
        yield LAST_DOWN.sample(link.last_down, *at)
        yield LAST_DOWN_REASON.sample(1, *at, link.last_reason or "unknown")
    if link.active is False:
        yield DOWN_REASON.sample(1, *at, link.down_reason or "unknown")
