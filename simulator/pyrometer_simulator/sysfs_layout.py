"""Constants of a simulated node's sysfs: addresses, ids and the names of counter files.

Addresses, device ids and files as on a node with 8 H100 SXM and 8 ConnectX-7.
"""

from __future__ import annotations

# The addresses of the simulated NVML's GPUs.
GPU_ADDRESSES = (
    "0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0",
    "0000:9a:00.0", "0000:ab:00.0", "0000:ba:00.0", "0000:db:00.0",
)  # fmt: skip
# Each HCA is next to the GPU whose traffic it carries; the last two carry storage.
HCA_ADDRESSES = (
    "0000:19:00.0", "0000:2b:00.0", "0000:3b:00.0", "0000:5e:00.0",
    "0000:9b:00.0", "0000:ac:00.0", "0000:bb:00.0", "0000:dc:00.0",
    "0000:41:00.0", "0000:c1:00.0",
)  # fmt: skip
ETHERNET_ADDRESSES = ("0000:4b:00.0", "0000:4b:00.1", "0000:4c:00.0", "0000:4c:00.1")

CPU_FUNCTION = {"vendor": "0x8086", "device": "0x09a2", "class": "0x060000", "numa_node": "0"}
_LINK_GEN5 = {
    "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
    "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "numa_node": "0",
}  # fmt: skip
GPU_FUNCTION = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "driver": "nvidia", **_LINK_GEN5}
HCA_FUNCTION = {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700", "driver": "mlx5_core", **_LINK_GEN5}
ETHERNET_FUNCTION = {"vendor": "0x15b3", "device": "0x101d", "class": "0x020000", "driver": "mlx5_core", **_LINK_GEN5}

# counters/: file and the value at which it saturates (IBTA PortCounters, drivers/infiniband/core/sysfs.c).
_16_BITS, _8_BITS, _4_BITS, _32_BITS = 0xFFFF, 0xFF, 0xF, 0xFFFFFFFF
PMA_MAXIMA: dict[str, int | None] = {
    "symbol_error": _16_BITS,
    "link_error_recovery": _8_BITS,
    "link_downed": _8_BITS,
    "port_rcv_errors": _16_BITS,
    "port_rcv_remote_physical_errors": _16_BITS,
    "port_rcv_switch_relay_errors": _16_BITS,
    "port_xmit_discards": _16_BITS,
    "port_xmit_constraint_errors": _8_BITS,
    "port_rcv_constraint_errors": _8_BITS,
    "local_link_integrity_errors": _4_BITS,
    "excessive_buffer_overrun_errors": _4_BITS,
    "VL15_dropped": _16_BITS,
    "port_xmit_wait": _32_BITS,
    "port_xmit_data": None,
    "port_rcv_data": None,
    "port_xmit_packets": None,
    "port_rcv_packets": None,
    "unicast_xmit_packets": None,
    "unicast_rcv_packets": None,
    "multicast_xmit_packets": None,
    "multicast_rcv_packets": None,
}
# hw_counters/ of mlx5 (drivers/infiniband/hw/mlx5/counters.c); 32 bits, wrapping to 0.
HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence",
    "packet_seq_err", "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors",
    "req_remote_invalid_request", "req_rnr_retries_exceeded", "req_transport_retries_exceeded", "resp_cqe_error",
    "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err",
    "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans",
    "rx_atomic_requests", "rx_dct_connect", "rx_read_requests", "rx_write_requests",
)  # fmt: skip
INTERFACE_STATISTICS = (
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
    "rx_crc_errors",
)  # fmt: skip


def guid_of(index: int) -> str:
    """Return the GUID of an HCA, such as ``a088:c203:00f1:0000``."""
    return f"a088:c203:00f1:{index:04x}"


def mac_of(index: int) -> str:
    """Return the MAC address of an interface."""
    return f"a0:88:c2:f1:00:{index:02x}"
