"""The families about links and devices, and how a reading becomes samples of them."""

from __future__ import annotations

from collections.abc import Iterable

from pyrometer_exporters.framework.metrics import Family, Sample
from pyrometer_exporters.node.nic import counters
from pyrometer_exporters.node.nic.counters import PORT_LABELS, SATURATED
from pyrometer_exporters.node.nic.link_down import PortMemory
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading

UP = Family(
    "pyrometer_nic_up", "gauge", "1 if the device answered within its deadline, else 0. class/infiniband, class/net.",
    ("device",),
)  # fmt: skip
INFO = Family(
    "pyrometer_nic_info",
    "gauge",
    "1; the port's identity: its interface, PCI function and driver, GUID. An interface without RDMA has no port.",
    ("device", "port", "netdev", "pci_bus_id", "guid", "link_layer", "driver", "firmware"),
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

ALL = (
    UP, INFO, LINK_UP, EXPECTED_UP, LINK_RATE, LINK_RATE_MAX, LINK_DOWN_EVENTS, LAST_DOWN, SATURATED,
    *(counter.family for counter in counters.ALL),
)  # fmt: skip


def port_samples(device: DeviceReading, port: PortReading, memory: PortMemory) -> Iterable[Sample]:
    """Everything about one port; ``memory`` has taken this reading into account."""
    at = (device.name, port.port)
    yield INFO.sample(
        1, *at, port.netdev, device.pci_bus_id, port.guid, port.link_layer, device.driver, device.firmware
    )
    if not device.link_is_constant:
        yield from _link_samples(at, port, memory)
    # Made directly: the check of Family.sample for each of a node's thousand counters is worth a fifth of a scrape.
    for counter, raw in port.counts:
        yield Sample(counter.family, at, memory.widening.value(counter, raw))
        if counter.saturates:
            yield Sample(SATURATED, (*at, counter.name), raw == counter.maximum)


def _link_samples(at: tuple[str, str], port: PortReading, memory: PortMemory) -> Iterable[Sample]:
    if port.active is not None:
        yield LINK_UP.sample(port.active, *at)
    yield EXPECTED_UP.sample(memory.ever_active and not port.admin_down, *at)
    if port.rate:
        yield LINK_RATE.sample(port.rate, *at)
    if memory.rate_max:
        yield LINK_RATE_MAX.sample(memory.rate_max, *at)
    yield LINK_DOWN_EVENTS.sample(memory.events, *at)
    if memory.last_down is not None:
        yield LAST_DOWN.sample(memory.last_down, *at)
