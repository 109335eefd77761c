"""Read from ethtool's interfaces what no file of sysfs has: driver statistics, FEC, the reason of a link that is down.

``ethtool -S`` has thousands of untyped names on some hosts; the names of each driver that concern the link or
congestion are listed here with their types. Names: the kernel's documentation of mlx5's counters (counters.rst) and the
drivers' ``*_ethtool.c``.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.node.nic.counters import PORT_LABELS, Counter
from pyrometer_exporters.node.nic.drivers import rest, values
from pyrometer_exporters.node.nic.netlink import Fec, LinkState
from pyrometer_exporters.node.nic.readings import Counts, DeviceAccess
from pyrometer_exporters.node.nic.tiers import COUNTERS, LINK


def _counter(file: str, name: str, text: str) -> Counter:
    return Counter(file, Family(name, "counter", text, PORT_LABELS), 64)


# fmt: off
STORMS = (
    _counter("tx_pause_storm_warning_events", "pyrometer_nic_tx_pause_storm_warning_events_total",
             "Times that the port sent pause frames for so long that a storm is near. "
             "ethtool -S: tx_pause_storm_warning_events."),
    _counter("tx_pause_storm_error_events", "pyrometer_nic_tx_pause_storm_error_events_total",
             "Times that the port stopped sending pause frames to protect the fabric: drops follow. "
             "ethtool -S: tx_pause_storm_error_events."),
)
FEC_CORRECTED = _counter("fec_corrected", "pyrometer_nic_fec_corrected_blocks_total",
    "Blocks that forward error correction repaired. ethtool's FEC statistics.")
FEC_UNCORRECTABLE = _counter("fec_uncorrectable", "pyrometer_nic_fec_uncorrectable_blocks_total",
    "Blocks that forward error correction could not repair. ethtool's FEC statistics.")
# fmt: on
FAMILIES = tuple(counter.family for counter in (*STORMS, FEC_CORRECTED, FEC_UNCORRECTABLE))

# By priority: pause frames, how long they stopped us, packets lost for lack of buffer.
_PRIORITIES = [
    name
    for p in range(8)
    for name in (f"rx_prio{p}_pause", f"tx_prio{p}_pause", f"rx_prio{p}_pause_duration", f"rx_prio{p}_discards")
]
_MLX5 = (
    {counter.file: counter for counter in STORMS}
    | rest(("link_down_events_phy",), bits=32)
    | rest(
        ("total_success_recovery_phy", "rx_symbol_err_phy", "rx_crc_errors_phy", "rx_pcs_symbol_err_phy",
         "rx_corrected_bits_phy", "rx_bits_phy", "rx_err_lane_0_phy", "rx_err_lane_1_phy", "rx_err_lane_2_phy",
         "rx_err_lane_3_phy", "rx_discards_phy", "tx_discards_phy", "tx_errors_phy", "rx_out_of_buffer",
         "rx_steer_missed_packets", "dev_out_of_buffer", "rx_buffer_passed_thres_phy", "rx_global_pause",
         "tx_global_pause", "rx_global_pause_duration", "rx_pause_ctrl_phy", "tx_pause_ctrl_phy", "module_unplug",
         "module_bus_stuck", "module_high_temp", "module_bad_shorted", "rx_pci_signal_integrity",
         "tx_pci_signal_integrity", "outbound_pci_buffer_overflow", "outbound_pci_stalled_rd_events",
         "outbound_pci_stalled_wr_events", "rx_vport_rdma_unicast_packets", "rx_vport_rdma_unicast_bytes",
         "tx_vport_rdma_unicast_packets", "tx_vport_rdma_unicast_bytes", *_PRIORITIES),
    )
    # Percent of the last second.
    | values(("outbound_pci_stalled_rd", "outbound_pci_stalled_wr"))
)  # fmt: skip
_BY_PCI_DRIVER = {
    "mlx5_core": _MLX5,
    "bnxt_en": rest(
        ("link_down_events", "continuous_pause_events", "resume_pause_events", "continuous_roce_pause_events",
         "resume_roce_pause_events", "rx_fec_corrected_blocks", "rx_fec_uncorrectable_blocks", "rx_pcs_symbol_err",
         "rx_discard_packets_cos0", "rx_pause_frames", "tx_pause_frames", "rx_fcs_err_frames"),
    ),
    "ice": rest(
        ("mac_local_faults.nic", "mac_remote_faults.nic", "rx_crc_errors.nic", "rx_dropped.nic", "link_xon_rx.nic",
         "link_xoff_rx.nic", "link_xon_tx.nic", "link_xoff_tx.nic"),
    ),
    "i40e": rest(
        ("port.mac_local_faults", "port.mac_remote_faults", "port.rx_crc_errors", "port.rx_dropped",
         "port.link_xon_rx", "port.link_xoff_rx"),
    ),
    "ena": rest(
        ("bw_in_allowance_exceeded", "bw_out_allowance_exceeded", "pps_allowance_exceeded",
         "conntrack_allowance_exceeded", "linklocal_allowance_exceeded", "tx_timeout"),
    ),
    "mana": rest(("hc_tx_err_vport_disabled", "hc_rx_discards_no_wqe", "vf_tx_errors", "vf_rx_errors")),
}  # fmt: skip


class Ethernet(NamedTuple):
    """The kernel's answer about an interface."""

    counts: Counts
    fec_mode: str


NOTHING = Ethernet((), "")


def read_ethernet(access: DeviceAccess, interface: str, driver: str) -> Ethernet:
    """Read the listed statistics and FEC of an interface, every 30 s; nothing where the kernel isn't asked."""
    if not interface or access.kernel is None:
        return NOTHING
    return access.cache.get(COUNTERS, ("ethtool", interface), lambda: _read(access, interface, driver))


def why_down(access: DeviceAccess, interface: str) -> str:
    """Return why the link of an interface is down, in a word; empty where unknown."""
    if not interface or access.kernel is None:
        return ""
    return access.cache.get(COUNTERS, ("why", interface), lambda: _link_state(access, interface)).reason


def physical_downs(access: DeviceAccess, interface: str) -> int | None:
    """Return how often the physical link went down, in 32 bits, which don't stay at 255; None where unknown.

    Call it only where no file counts losses: it waits for the RTNL lock.
    """
    if not interface or access.kernel is None:
        return None
    return access.cache.get(LINK, ("downs", interface), lambda: _link_state(access, interface)).downs


def _read(access: DeviceAccess, interface: str, driver: str) -> Ethernet:
    kernel = access.kernel
    listed = _BY_PCI_DRIVER.get(driver)
    counts: Counts = ()
    if kernel is None:
        return NOTHING
    if listed:
        try:
            access.folders.reading(f"ethtool/{interface}")
            statistics = kernel.statistics(interface)
            counts = tuple((counter, statistics[name]) for name, counter in listed.items() if name in statistics)
        except OSError:
            counts = ()  # the driver has none, or the interface went away
    try:
        access.folders.reading(f"fec/{interface}")
        fec = kernel.fec(interface)
    except OSError:
        fec = Fec()
    blocks = ((FEC_CORRECTED, fec.corrected), (FEC_UNCORRECTABLE, fec.uncorrectable))
    return Ethernet(counts + tuple((counter, raw) for counter, raw in blocks if raw is not None), fec.mode)


def _link_state(access: DeviceAccess, interface: str) -> LinkState:
    if access.kernel is None:
        return LinkState()
    try:
        access.folders.reading(f"linkstate/{interface}")
        return access.kernel.link_state(interface)
    except OSError:
        return LinkState()
