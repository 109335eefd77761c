"""Define the counters to read: file, family, width, and what the device does at the maximum.

Names are node_exporter's (``node_infiniband_<counter>``) where it has one, else the kernel's file name. Widths are
those of drivers/infiniband/core/sysfs.c (PORT_PMA_ATTR, the same in every kernel) and hw/mlx5/counters.c beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pyrometer_exporters.framework.metrics import Family

PORT_LABELS = ("device", "port")
_TRAFFIC = frozenset(
    f"pyrometer_nic_{name}_total"
    for name in ("port_data_transmitted_bytes", "port_data_received_bytes", "rx_bytes", "tx_bytes")
)


@dataclass(frozen=True, eq=False)
class Counter:
    """A counter file, or one of the driver's gauges.

    Attributes:
        file: the name in sysfs, or in ethtool's list.
        family: the metric family it is served in.
        bits: the width of the device's counter.
        pins: True if it stays at its maximum (PMA), False if it wraps to 0.
        factor: multiplies the device's value.
        labels: values beyond the port's labels: the counter's name in a family of many counters.
    """

    file: str
    family: Family
    bits: int
    pins: bool = False
    factor: int = 1
    labels: tuple[str, ...] = ()

    @cached_property
    def maximum(self) -> int:
        """The largest value that the device can hold."""
        return (1 << self.bits) - 1

    @cached_property
    def saturates(self) -> bool:
        """True if the counter can be seen at its maximum; 64 bits never are."""
        return self.pins and self.bits < 64

    @cached_property
    def wraps(self) -> bool:
        """True if it wraps to 0 beyond its maximum; 64 bits never get there."""
        return not self.pins and self.bits < 64

    @cached_property
    def counts(self) -> bool:
        """True if it only ever grows, unless it is cleared."""
        return self.family.type == "counter"

    @cached_property
    def is_traffic(self) -> bool:
        """True if it counts bytes of the link; an InfiniBand interface's bytes are part of its port's."""
        return self.family.name in _TRAFFIC

    @cached_property
    def name(self) -> str:
        """The counter as its family spells it: the ``<counter>`` of ``pyrometer_nic_<counter>_total``."""
        return self.family.name.removeprefix("pyrometer_nic_").removesuffix("_total")


def _counter(file: str, name: str, text: str, bits: int, *, pins: bool = False, factor: int = 1) -> Counter:
    return Counter(file, Family(name, "counter", text, PORT_LABELS), bits, pins, factor)


def _pma(file: str, name: str, bits: int, text: str, factor: int = 1) -> Counter:
    where = f"counters/{file}, {bits} bits" + (", stays at its maximum." if bits < 64 else ".")
    return _counter(file, name, f"{text} {where}", bits, pins=True, factor=factor)


def _hardware(file: str, name: str, bits: int, text: str) -> Counter:
    where = f"hw_counters/{file}" + (", 32 bits on mlx5, widened to 64." if bits < 64 else ".")
    return _counter(file, name, f"{text} {where}", bits)


def _extended(file: str, name: str, text: str, factor: int = 1) -> Counter:
    where = f"counters_ext/{file}, 64 bits; kernels before 4.5, whose counters/ has 32."
    return _counter(file, name, f"{text} {where}", 64, pins=True, factor=factor)


def _interface(file: str, name: str, text: str) -> Counter:
    return _counter(file, name, f"{text} Of the port's interface; RDMA traffic is not in it. statistics/{file}.", 64)


def _carrier(file: str, text: str) -> Counter:
    return _counter(file, f"pyrometer_nic_{file}_total", f"{text} {file}.", 32)


# fmt: off
PMA = (
    _pma("symbol_error", "pyrometer_nic_symbol_error_total", 16, "Minor link errors on one or more lanes."),
    _pma("link_error_recovery", "pyrometer_nic_link_error_recovery_total", 8, "Link error recoveries that succeeded."),
    _pma("link_downed", "pyrometer_nic_link_downed_total", 8, "Link error recoveries that failed: the link went down."),
    _pma("port_rcv_errors", "pyrometer_nic_port_errors_received_total", 16, "Packets received with an error."),
    _pma("port_rcv_remote_physical_errors", "pyrometer_nic_port_receive_remote_physical_errors_total", 16,
         "Packets received with an error that happened upstream."),
    _pma("port_rcv_switch_relay_errors", "pyrometer_nic_port_receive_switch_relay_errors_total", 16,
         "Packets that could not be forwarded by the switch."),
    _pma("port_xmit_discards", "pyrometer_nic_port_discards_transmitted_total", 16, "Packets dropped outbound."),
    _pma("port_rcv_discards", "pyrometer_nic_port_discards_received_total", 16, "Packets dropped inbound."),
    _pma("port_xmit_constraint_errors", "pyrometer_nic_port_constraint_errors_transmitted_total", 8,
         "Packets not sent: partition or raw filter."),
    _pma("port_rcv_constraint_errors", "pyrometer_nic_port_constraint_errors_received_total", 8,
         "Packets discarded on receipt: partition or raw filter."),
    _pma("local_link_integrity_errors", "pyrometer_nic_local_link_integrity_errors_total", 4,
         "Times that local physical errors exceeded their threshold."),
    _pma("excessive_buffer_overrun_errors", "pyrometer_nic_excessive_buffer_overrun_errors_total", 4,
         "Times that consecutive buffer overruns exceeded their threshold."),
    _pma("VL15_dropped", "pyrometer_nic_vl15_dropped_total", 16, "Management packets dropped."),
    _pma("port_xmit_wait", "pyrometer_nic_port_transmit_wait_total", 32,
         "Ticks with data to send and no credit: congestion."),
    # In words of 4 octets, whatever the number of lanes.
    _pma("port_xmit_data", "pyrometer_nic_port_data_transmitted_bytes_total", 64, "Bytes sent, RDMA included.", 4),
    _pma("port_rcv_data", "pyrometer_nic_port_data_received_bytes_total", 64, "Bytes received, RDMA included.", 4),
    _pma("port_xmit_packets", "pyrometer_nic_port_packets_transmitted_total", 64, "Packets sent."),
    _pma("port_rcv_packets", "pyrometer_nic_port_packets_received_total", 64,
         "Packets received, those with errors included."),
    _pma("unicast_xmit_packets", "pyrometer_nic_unicast_packets_transmitted_total", 64, "Unicast packets sent."),
    _pma("unicast_rcv_packets", "pyrometer_nic_unicast_packets_received_total", 64, "Unicast packets received."),
    _pma("multicast_xmit_packets", "pyrometer_nic_multicast_packets_transmitted_total", 64, "Multicast packets sent."),
    _pma("multicast_rcv_packets", "pyrometer_nic_multicast_packets_received_total", 64, "Multicast packets received."),
)

HARDWARE = (
    _hardware("local_ack_timeout_err", "pyrometer_nic_local_ack_timeout_errors_total", 32,
              "Acknowledge timeouts, recovered: the first sign of a dying path."),
    _hardware("out_of_sequence", "pyrometer_nic_out_of_sequence_packets_received_total", 32,
              "Packets received out of order."),
    _hardware("packet_seq_err", "pyrometer_nic_packet_sequence_errors_total", 32,
              "Sequence error NAKs received, recovered."),
    _hardware("implied_nak_seq_err", "pyrometer_nic_implied_nak_seq_errors_total", 32,
              "Acknowledges beyond the expected packet."),
    _hardware("rnr_nak_retry_err", "pyrometer_nic_rnr_nak_retry_packets_received_total", 32,
              "Receiver-not-ready NAKs received, recovered."),
    _hardware("req_transport_retries_exceeded", "pyrometer_nic_req_transport_retries_exceeded_total", 32,
              "Transport retries exhausted: a connection died, NCCL error 12."),
    _hardware("req_rnr_retries_exceeded", "pyrometer_nic_req_rnr_retries_exceeded_total", 32,
              "Receiver-not-ready retries exhausted: a connection died."),
    _hardware("duplicate_request", "pyrometer_nic_duplicate_requests_packets_total", 32, "Requests received again."),
    _hardware("out_of_buffer", "pyrometer_nic_out_of_buffer_drops_total", 32,
              "Packets dropped for lack of a receive buffer."),
    _hardware("req_cqe_error", "pyrometer_nic_req_cqes_errors_total", 32,
              "Completions with an error at the requester."),
    _hardware("resp_cqe_error", "pyrometer_nic_resp_cqes_errors_total", 32,
              "Completions with an error at the responder."),
    _hardware("roce_adp_retrans", "pyrometer_nic_roce_adp_retransmits_total", 32, "Adaptive retransmissions."),
    _hardware("roce_adp_retrans_to", "pyrometer_nic_roce_adp_retransmits_timeout_total", 32,
              "Adaptive retransmissions that timed out."),
    _hardware("roce_slow_restart", "pyrometer_nic_roce_slow_restart_used_total", 32,
              "Times that slow restart was used."),
    _hardware("req_cqe_flush_error", "pyrometer_nic_req_cqes_flush_errors_total", 32,
              "Completions flushed at the requester: every end of a job does that."),
    _hardware("resp_cqe_flush_error", "pyrometer_nic_resp_cqes_flush_errors_total", 32,
              "Completions flushed at the responder: every end of a job does that."),
    _hardware("req_remote_access_errors", "pyrometer_nic_req_remote_access_errors_total", 32,
              "Remote access errors at the requester: wrong keys, a fault of software."),
    _hardware("req_remote_invalid_request", "pyrometer_nic_req_remote_invalid_request_errors_total", 32,
              "Invalid requests, as the remote side found."),
    _hardware("resp_remote_access_errors", "pyrometer_nic_resp_remote_access_errors_total", 32,
              "Remote access errors at the responder."),
    _hardware("resp_local_length_error", "pyrometer_nic_resp_local_length_errors_total", 32, "Wrong lengths received."),
    _hardware("rx_write_requests", "pyrometer_nic_rx_write_requests_total", 32, "RDMA writes received."),
    _hardware("rx_read_requests", "pyrometer_nic_rx_read_requests_total", 32, "RDMA reads received."),
    _hardware("rx_atomic_requests", "pyrometer_nic_rx_atomic_requests_total", 32, "Atomic requests received."),
    _hardware("rx_dct_connect", "pyrometer_nic_rx_dct_connect_requests_total", 32, "Dynamic connections asked for."),
    _hardware("roce_slow_restart_cnps", "pyrometer_nic_roce_slow_restart_cnps_total", 32,
              "Congestion notifications made by slow restart."),
    _hardware("roce_slow_restart_trans", "pyrometer_nic_roce_slow_restart_total", 32, "Transitions into slow restart."),
    _hardware("rp_cnp_handled", "pyrometer_nic_rp_cnp_packets_handled_total", 64,
              "Congestion notifications that slowed this sender."),
    _hardware("rp_cnp_ignored", "pyrometer_nic_rp_cnp_ignored_packets_received_total", 64,
              "Congestion notifications ignored."),
    _hardware("np_cnp_sent", "pyrometer_nic_np_cnp_packets_sent_total", 64, "Congestion notifications sent."),
    _hardware("np_ecn_marked_roce_packets", "pyrometer_nic_np_ecn_marked_roce_packets_received_total", 64,
              "RoCE packets received with a congestion mark."),
    _hardware("rx_icrc_encapsulated", "pyrometer_nic_rx_icrc_encapsulated_errors_total", 64,
              "RoCE packets received corrupted."),
)

EXTENDED = (
    _extended("port_xmit_data_64", "pyrometer_nic_legacy_data_transmitted_bytes_total", "Bytes sent.", 4),
    _extended("port_rcv_data_64", "pyrometer_nic_legacy_data_received_bytes_total", "Bytes received.", 4),
    _extended("port_xmit_packets_64", "pyrometer_nic_legacy_packets_transmitted_total", "Packets sent."),
    _extended("port_rcv_packets_64", "pyrometer_nic_legacy_packets_received_total", "Packets received."),
    _extended("port_unicast_xmit_packets", "pyrometer_nic_legacy_unicast_packets_transmitted_total",
              "Unicast packets sent."),
    _extended("port_unicast_rcv_packets", "pyrometer_nic_legacy_unicast_packets_received_total",
              "Unicast packets received."),
    _extended("port_multicast_xmit_packets", "pyrometer_nic_legacy_multicast_packets_transmitted_total",
              "Multicast packets sent."),
    _extended("port_multicast_rcv_packets", "pyrometer_nic_legacy_multicast_packets_received_total",
              "Multicast packets received."),
)

INTERFACE = (
    _interface("rx_bytes", "pyrometer_nic_rx_bytes_total", "Bytes received."),
    _interface("tx_bytes", "pyrometer_nic_tx_bytes_total", "Bytes sent."),
    _interface("rx_packets", "pyrometer_nic_rx_packets_total", "Packets received."),
    _interface("tx_packets", "pyrometer_nic_tx_packets_total", "Packets sent."),
    _interface("rx_errors", "pyrometer_nic_rx_errors_total", "Bad packets received."),
    _interface("tx_errors", "pyrometer_nic_tx_errors_total", "Packets that could not be sent."),
    _interface("rx_dropped", "pyrometer_nic_rx_dropped_total", "Packets received and dropped."),
    _interface("tx_dropped", "pyrometer_nic_tx_dropped_total", "Packets dropped before they were sent."),
    _interface("rx_crc_errors", "pyrometer_nic_rx_crc_errors_total", "Packets received with a wrong checksum."),
)
# fmt: on

CARRIER_DOWNS = _carrier(
    "carrier_down_count", "Times that the interface's carrier was lost, those by an administrator included."
)
CARRIER = (
    _carrier("carrier_up_count", "Times that the interface's carrier came."),
    _carrier("carrier_changes", "Times that the interface's carrier came or was lost."),
)

# Losses of the link and traffic: read every 5 s, the other counters every 30 s.
LINK_FILES = frozenset({"link_downed", "link_error_recovery", "port_xmit_data", "port_rcv_data"})
PMA_LINK = tuple(counter for counter in PMA if counter.file in LINK_FILES)
PMA_REST = tuple(counter for counter in PMA if counter.file not in LINK_FILES)

# Beside counters_ext/, which only kernels before 4.5 have, these have 32 bits and stay at their maximum.
_NARROW_FILES = frozenset({"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"})


def _narrow(table: tuple[Counter, ...]) -> tuple[Counter, ...]:
    return tuple(replace(counter, bits=32) if counter.file in _NARROW_FILES else counter for counter in table)


NARROW_LINK, NARROW_REST = _narrow(PMA_LINK), _narrow(PMA_REST)

ALL = (*PMA, *EXTENDED, *HARDWARE, *INTERFACE, CARRIER_DOWNS, *CARRIER)
