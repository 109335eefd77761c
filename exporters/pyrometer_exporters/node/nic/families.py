"""Define the metric families of links and devices; counters have theirs in ``counters``, ``drivers``, ``ethernet``."""

from __future__ import annotations

from pyrometer_exporters.framework.metrics import Families
from pyrometer_exporters.node.nic import counters, drivers, ethernet, pcie, temperatures

# fmt: off
_ROWS = Families("device")
UP = _ROWS.gauge("pyrometer_nic_up",
    "1 if the device answered within its deadline, else 0. class/infiniband, class/net.")
INFO = _ROWS.gauge("pyrometer_nic_info",
    "1; the port's identity: its interface, PCI function and driver, GUID, board, NUMA node and the PCI address of "
    "the nearest GPU (empty where none shares a root port). An interface without RDMA has no port.",
    "port", "netdev", "pci_bus_id", "guid", "link_layer", "driver", "firmware", "board", "numa_node", "gpu")
LINK_UP = _ROWS.gauge("pyrometer_nic_link_up",
    "1 if the link is ACTIVE or ACTIVE_DEFER (an interface without RDMA: up), else 0. ports/<n>/state, operstate.",
    "port")
EXPECTED_UP = _ROWS.gauge("pyrometer_nic_expected_up",
    "1 if the link was up before and no administrator has disabled it, else 0.", "port")
SETTLING = _ROWS.gauge("pyrometer_nic_settling_info",
    "1 while the port's state is no evidence of a fault, else absent: until a minute after its link is up, at most 15"
    " minutes, after a boot, a driver_reload or as a new device (never_up); while switched off (admin); always for a "
    "virtual_function, of a usb interface, of a device with no_hardware (soft-RoCE) and of a function of the "
    "fabric_manager.", "port", "cause")
MISSING = _ROWS.gauge("pyrometer_nic_missing_info",
    "1 while an RDMA device is missing and was not removed on purpose, else absent: off_bus, no_driver, or "
    "no_rdma_device though its driver has the function. Forgotten after a week.", "pci_bus_id", "reason")
LINK_RATE = _ROWS.gauge("pyrometer_nic_link_rate_bits_per_second",
    "The link's rate while it is up, in bits per second; absent while down. ports/<n>/rate, speed.", "port")
LINK_RATE_MAX = _ROWS.gauge("pyrometer_nic_link_rate_max_bits_per_second",
    "The highest rate ever seen on the link, in bits per second.", "port")
LINK_DOWN_EVENTS = _ROWS.counter("pyrometer_nic_link_down_events_total",
    "Losses of the link since the port was first seen, restarts of the exporter included. The largest increase of "
    "link_downed, carrier_down_count and sampled states counts. Boots, driver reloads and administrators do not.",
    "port")
LAST_DOWN = _ROWS.gauge("pyrometer_nic_link_last_down_timestamp_seconds",
    "When the latest loss of the link was noticed; absent before the first.", "port")
LAST_DOWN_REASON = _ROWS.gauge("pyrometer_nic_link_last_down_info",
    "1; why the link was last lost, in the words of pyrometer_nic_link_down_reason_info; recovered_before_seen where "
    "it was up again at the next reading. Absent before the first loss.", "port", "reason")
DOWN_REASON = _ROWS.gauge("pyrometer_nic_link_down_reason_info",
    "1 while the link is down, with the reason: the kernel's (ethtool's extended state) or the physical state.",
    "port", "reason")
IGNORED = _ROWS.counter("pyrometer_nic_link_down_ignored_total",
    "Losses of the link that are not counted as events: within 15 minutes of a boot, after a driver reload, by an "
    "administrator, or of a port that was never up.", "port", "cause")
RESETS = _ROWS.counter("pyrometer_nic_resets_total",
    "How often counters of the port restarted: each wrap, each joint clear, reboots, driver reloads.", "port", "reason")
STATE_ID = _ROWS.gauge("pyrometer_nic_state_id",
    "The port's state: 1 down, 2 initialising, 3 armed, 4 active, 5 active and deferred. ports/<n>/state.", "port")
PHYSICAL_STATE_ID = _ROWS.gauge("pyrometer_nic_physical_state_id",
    "The port's physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 error recovery, 7 test. "
    "ports/<n>/phys_state.", "port")
MTU = _ROWS.gauge("pyrometer_nic_mtu_bytes", "The interface's largest packet, in bytes. mtu.", "port")
SETTING = _ROWS.gauge("pyrometer_nic_interface_setting",
    "A number that the port's interface is set to, under the file's name. class/net/<interface>/<setting>.",
    "port", "setting")
LIFESPAN = _ROWS.gauge("pyrometer_nic_lifespan_seconds",
    "For how long the kernel keeps hardware counters before it asks the device again. hw_counters/lifespan.", "port")
READ_AGE = _ROWS.gauge("pyrometer_nic_read_age_seconds",
    "How long ago the oldest value of this tier was read from the device. A tier's files are read once per interval.",
    "tier")
UNREADABLE = _ROWS.gauge("pyrometer_nic_unreadable_file_info",
    "1 while a file of the device can't be read, with the errno; retried with growing pauses of at most an hour.",
    "file", "reason")
SATURATED = _ROWS.gauge("pyrometer_nic_counter_saturated",
    "1 if the counter is at its maximum and can't count further errors (its rate is unknown), else 0.",
    "port", "counter")
FEC_MODE = _ROWS.gauge("pyrometer_nic_fec_info",
    "1; the forward error correction that the link uses: rs, baser, llrs, off. ethtool --show-fec.", "port", "mode")
# fmt: on

ALL = (
    *_ROWS, *(counter.family for counter in counters.ALL), *drivers.FAMILIES, *ethernet.FAMILIES, *pcie.FAMILIES,
    *temperatures.FAMILIES,
)  # fmt: skip
