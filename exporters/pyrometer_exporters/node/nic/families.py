"""Define the metric families of links and devices; counters have theirs in ``counters``, ``drivers``, ``ethernet``."""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.nic import counters, drivers, ethernet, pcie, temperatures
from pyrometer_exporters.node.nic.counters import PORT_LABELS, SATURATED

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
    "1 if the link was up before and no administrator has disabled it, else 0.",
    PORT_LABELS,
)
SETTLING = Family(
    "pyrometer_nic_settling_info",
    "gauge",
    "1 while the port's state is no evidence of a fault, else absent: until a minute after its link is up, at most "
    "15 minutes, after a boot, a driver_reload or as a new device (never_up); while switched off (admin); always for a "
    "virtual_function.",
    (*PORT_LABELS, "cause"),
)
MISSING = Family(
    "pyrometer_nic_missing_info",
    "gauge",
    "1 while an RDMA device is missing and was not removed on purpose, else absent: off_bus, no_driver, or "
    "no_rdma_device though its "
    "driver has the function. Forgotten after a week.",
    ("device", "pci_bus_id", "reason"),
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
    "The highest rate ever seen on the link, in bits per second.",
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
    "1; why the link was last lost, in the words of pyrometer_nic_link_down_reason_info; recovered_before_seen where "
    "it was up again at the next reading. Absent before the first loss.",
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
    "How often counters of the port restarted: each wrap, each joint clear, reboots, driver reloads.",
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
    "1 while a file of the device can't be read, with the errno; retried with growing pauses of at most an hour.",
    ("device", "file", "reason"),
)

ALL = (
    UP, INFO, LINK_UP, EXPECTED_UP, SETTLING, MISSING, LINK_RATE, LINK_RATE_MAX, LINK_DOWN_EVENTS, LAST_DOWN,
    LAST_DOWN_REASON, DOWN_REASON, IGNORED, RESETS, STATE_ID,
    PHYSICAL_STATE_ID, MTU, SETTING, LIFESPAN, READ_AGE, UNREADABLE, SATURATED,
    FEC_MODE, *(counter.family for counter in counters.ALL), *drivers.FAMILIES, *ethernet.FAMILIES,
    *pcie.FAMILIES, *temperatures.FAMILIES,
)  # fmt: skip
