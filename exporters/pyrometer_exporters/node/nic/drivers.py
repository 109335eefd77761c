"""List what each driver has in ``hw_counters/``: which names have a family of their own, which are driver counters.

The names are the drivers' own (drivers/infiniband/hw/{mlx5/counters.c, mlx4/main.c, hfi1/verbs.c,
bnxt_re/hw_counters.c, irdma/verbs.c, efa/efa_verbs.c, mana/counters.c}). A counter that means the same as one of mlx5
is served in that family; Broadcom's later drivers use mlx5's names for its older ones, hence their mapping here.
Names that are not listed are not served: hfi1 alone has hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pyrometer_exporters.framework.metrics import Families
from pyrometer_exporters.node.nic.counters import HARDWARE, PMA, PORT_LABELS, Counter

# fmt: off
FAMILIES = Families(*PORT_LABELS)
DRIVER_COUNTER = FAMILIES.counter("pyrometer_nic_driver_counter_total",
    "A counter of the driver's own, under the driver's name for it; port is empty for those of the whole device. "
    "hw_counters/<counter>, ethtool -S.", "counter")
DRIVER_VALUE = FAMILIES.gauge("pyrometer_nic_driver_value",
    "A value of the driver's own that goes up and down, under the driver's name for it. hw_counters/<value>, ethtool.",
    "value")
# fmt: on


@dataclass(frozen=True)
class Driver:
    """The counters to read of a driver's devices.

    Attributes:
        port: the files of ``ports/<n>/hw_counters``, by name.
        device: those of the device's own ``hw_counters``.
        link_is_constant: whether state and rate are always the same, whatever the link does.
    """

    port: Mapping[str, Counter]
    device: Mapping[str, Counter]
    link_is_constant: bool = False

    @cached_property
    def of_port(self) -> tuple[Counter, ...]:
        """The counters of ``port``."""
        return tuple(self.port.values())

    @cached_property
    def of_device(self) -> tuple[Counter, ...]:
        """The counters of ``device``."""
        return tuple(self.device.values())

    @cached_property
    def repeats_pma(self) -> bool:
        """True if ``hw_counters/`` may repeat the traffic that ``counters/`` has."""
        return "tx_bytes" in self.port


def rest(names: Iterable[str], bits: int = 64) -> dict[str, Counter]:
    """Define counters of the driver's own, by name."""
    return {name: Counter(name, DRIVER_COUNTER, bits, labels=(name,)) for name in names}


def values(names: Iterable[str]) -> dict[str, Counter]:
    """Define gauges of the driver's own, by name."""
    return {name: Counter(name, DRIVER_VALUE, 64, labels=(name,)) for name in names}


def _efa(name: str, text: str) -> Counter:
    return Counter(name, FAMILIES.counter(f"pyrometer_nic_{name}_total", f"{text} (EFA). hw_counters/{name}."), 64)


# EFA's own: no other driver has their like.
EFA_FAMILIES = (
    _efa("rx_drops", "Packets dropped on receipt"),
    _efa("retrans_pkts", "Packets sent again"),
    _efa("retrans_bytes", "Bytes sent again"),
    _efa("retrans_timeout_events", "Times that traffic timed out and took another path"),
    _efa("unresponsive_remote_events", "Times that a remote side did not respond"),
    _efa("impaired_remote_conn_events", "Times that a connection became impaired"),
)


_BY_FILE = {counter.file: counter for counter in (*PMA, *HARDWARE)}


def _meaning(names: Mapping[str, str], bits: int = 64) -> dict[str, Counter]:
    """Map files to the family of the mlx5 or PMA file that means the same; bytes are bytes here, not words."""
    return {name: Counter(name, _BY_FILE[same].family, bits) for name, same in names.items()}


_MLX5_PORT = {counter.file: counter for counter in HARDWARE} | rest(
    # Off until enabled: rdma statistic set link mlx5_0/1 optional-counters ...
    ("cc_rx_ce_pkts", "cc_rx_cnp_pkts", "cc_tx_cnp_pkts", "rdma_tx_packets", "rdma_tx_bytes", "rdma_rx_packets",
     "rdma_rx_bytes"),
) | {
    # Representors of switchdev mode.
    f"vport_{counter.file}": Counter(f"vport_{counter.file}", DRIVER_COUNTER, 32, labels=(f"vport_{counter.file}",))
    for counter in HARDWARE
    if counter.bits == 32
}  # fmt: skip
# mlx5's names at 64 bits: Broadcom's later drivers.
_WIDE = {counter.file: replace(counter, bits=64) for counter in HARDWARE}
_BYTES_AND_PACKETS = {
    "tx_bytes": "port_xmit_data", "rx_bytes": "port_rcv_data",
    "tx_pkts": "port_xmit_packets", "rx_pkts": "port_rcv_packets",
}  # fmt: skip

MLX5 = Driver(_MLX5_PORT, {})  # its device-level files repeat those of port 1

_MLX4 = _meaning(
    {
        "sq_num_tree": "req_transport_retries_exceeded", "sq_num_rree": "req_rnr_retries_exceeded",
        "sq_num_to": "local_ack_timeout_err", "sq_num_oos": "packet_seq_err", "sq_num_rnr": "rnr_nak_retry_err",
        "rq_num_dup": "duplicate_request",
    },
    bits=32,
) | rest(
    ("rq_num_lle", "sq_num_lle", "rq_num_lqpoe", "sq_num_lqpoe", "rq_num_lpe", "sq_num_lpe", "rq_num_wrfe",
     "sq_num_wrfe", "sq_num_mwbe", "sq_num_bre", "sq_num_rire", "rq_num_rire", "sq_num_rae", "rq_num_rae",
     "sq_num_roe", "rq_num_rnr", "rq_num_oos", "num_cqovf", "rq_num_udsdprd"),
    bits=32,
)  # fmt: skip
MLX4 = Driver(_MLX4, _MLX4)

HFI1 = Driver(
    {},
    rest(
        ("DcDroppedPkt", "DRIVER_KernIntr", "DRIVER_ErrorIntr", "DRIVER_Tx_Errs", "DRIVER_Rcv_Errs", "DRIVER_HW_Errs",
         "DRIVER_NoPIOBufs", "DRIVER_RcvLen_Errs", "DRIVER_EgrBufFull", "DRIVER_EgrHdrFull", "RxTIDFullEr,32",
         "RxTidFLGMs,32", "CceSdmaInt,32"),
    )
    | values(("DRIVER_CtxtsOpen",)),
)  # fmt: skip

_BNXT_RE = (
    _WIDE
    | _meaning(_BYTES_AND_PACKETS)
    | _meaning(
        {
            "max_retry_exceeded": "req_transport_retries_exceeded", "to_retransmits": "local_ack_timeout_err",
            "seq_err_naks_rcvd": "packet_seq_err", "rnr_naks_rcvd": "rnr_nak_retry_err",
            "missing_resp": "implied_nak_seq_err", "dup_req": "duplicate_request", "oos_drop_count": "out_of_sequence",
            "remote_invalid_req_err": "req_remote_invalid_request", "remote_access_err": "req_remote_access_errors",
            "res_length_mismatch": "resp_local_length_error", "rx_atomic_req": "rx_atomic_requests",
            "rx_read_req": "rx_read_requests", "rx_write_req": "rx_write_requests",
            "rx_out_of_buffer": "out_of_buffer", "tx_cnp_pkts": "np_cnp_sent", "rx_cnp_pkts": "rp_cnp_handled",
            "rx_ecn_marked_pkts": "np_ecn_marked_roce_packets",
        }
    )
    | rest(
        ("recoverable_errors", "unrecoverable_err", "bad_resp_err", "local_qp_op_err", "local_protection_err",
         "mem_mgmt_op_err", "remote_op_err", "tx_roce_errors", "rx_roce_errors", "tx_roce_discards",
         "rx_roce_discards", "res_exceed_max", "res_exceeds_wqe", "res_opcode_err", "res_rx_invalid_rkey",
         "res_rx_domain_err", "res_rx_no_perm", "res_rx_range_err", "res_tx_invalid_rkey", "res_tx_domain_err",
         "res_tx_no_perm", "res_tx_range_err", "res_irrq_oflow", "res_unsup_opcode", "res_unaligned_atomic",
         "res_rem_inv_err", "res_mem_err", "res_srq_err", "res_cmp_err", "res_invalid_dup_rkey",
         "res_wqe_format_err", "res_cq_load_err", "res_srq_load_err", "res_tx_pci_err", "res_rx_pci_err",
         "tx_atomic_req", "tx_read_req", "tx_read_resp", "tx_write_req", "tx_send_req", "rx_read_resp",
         "rx_send_req", "pacing_reschedule", "pacing_complete", "pacing_alerts"),
    )
    | values(
        ("active_pds", "active_ahs", "active_qps", "active_rc_qps", "active_ud_qps", "active_srqs", "active_cqs",
         "active_mrs", "active_mws", "watermark_qps", "watermark_cqs", "watermark_mrs", "db_fifo_register",
         "resize_cq_cnt"),
    )
)  # fmt: skip
BNXT_RE = Driver(_BNXT_RE, {})

# The hardware's are 24 to 48 bits wide; the driver adds them up to 64 (irdma_update_stats).
_IRDMA = _meaning(
    {
        "cnpHandled": "rp_cnp_handled", "cnpIgnored": "rp_cnp_ignored", "cnpSent": "np_cnp_sent",
        "RxECNMrkd": "np_ecn_marked_roce_packets", "Nak Sequence Error": "packet_seq_err",
        "Nak Sequence Error Implied": "implied_nak_seq_err", "RTO": "local_ack_timeout_err",
        "RNR received": "rnr_nak_retry_err", "Rcvd Out of order packets": "out_of_sequence",
        "CRC errors": "rx_icrc_encapsulated",
    }
) | rest(
    ("ip4InDiscards", "ip4InTruncatedPkts", "ip4OutNoRoutes", "ip6InDiscards", "ip6InTruncatedPkts", "ip6OutNoRoutes",
     "rxVlanErrors", "ip4InOctets", "ip4InPkts", "ip4OutOctets", "ip4OutPkts", "ip6InOctets", "ip6InPkts",
     "ip6OutOctets", "ip6OutPkts", "RxUDP", "TxUDP", "RNR sent", "ord limit count", "ird limit count",
     "Rx atomics", "Tx atomics", "InRdmaReads", "InRdmaSends", "InRdmaWrites", "OutRdmaReads", "OutRdmaSends",
     "OutRdmaWrites", "iwInRdmaReads", "iwInRdmaSends", "iwInRdmaWrites", "iwOutRdmaReads", "iwOutRdmaSends",
     "iwOutRdmaWrites", "RetransSegs", "InOptErrors", "InProtoErrors", "InSegs", "OutSegs", "tcpRetransSegs",
     "tcpInOptErrors", "tcpInProtoErrors", "tcpInSegs", "tcpOutSegs"),
)  # fmt: skip
IRDMA = Driver(_IRDMA, {})

EFA = Driver(
    _meaning(_BYTES_AND_PACKETS)
    | {counter.file: counter for counter in EFA_FAMILIES}
    | rest(
        ("send_bytes", "send_wrs", "recv_bytes", "recv_wrs", "rdma_read_wrs", "rdma_read_bytes", "rdma_read_wr_err",
         "rdma_read_resp_bytes", "rdma_write_wrs", "rdma_write_bytes", "rdma_write_wr_err", "rdma_write_recv_bytes"),
    ),
    rest(
        ("submitted_cmds", "completed_cmds", "cmds_err", "no_completion_cmds", "keep_alive_rcvd", "alloc_pd_err",
         "create_qp_err", "create_cq_err", "create_ah_err", "reg_mr_err", "alloc_ucontext_err", "mmap_err"),
    ),
    # Its driver answers ACTIVE, LinkUp and 100 Gb/sec whatever the link does (efa_verbs.c, efa_query_port).
    link_is_constant=True,
)  # fmt: skip

MANA = Driver(
    _meaning(
        {
            "requester_retries_exceeded": "req_transport_retries_exceeded",
            "requester_rnr_nak_retries_exceeded": "req_rnr_retries_exceeded",
            "requester_timeout": "local_ack_timeout_err", "requester_oos_nak": "packet_seq_err",
            "requester_rnr_nak": "rnr_nak_retry_err", "requester_implicit_nak": "implied_nak_seq_err",
            "responder_oos": "out_of_sequence", "responder_dup_request": "duplicate_request",
            "responder_local_len_error": "resp_local_length_error",
            "responder_rem_access_error": "resp_remote_access_errors", "received_cnps": "rp_cnp_handled",
            "rx_write_requests": "rx_write_requests", "rx_read_requests": "rx_read_requests",
            "tx_bytes": "port_xmit_data", "rx_bytes": "port_rcv_data",
            "tx_packets": "port_xmit_packets", "rx_packets": "port_rcv_packets",
        }
    )
    | rest(
        ("responder_rnr_nak", "requester_readresp_psn_mismatch", "nak_inv_req", "nak_access_error", "nak_opp_error",
         "nak_inv_read", "requestor_local_prot_error", "responder_local_qp_error", "responder_malformed_wqe",
         "general_hw_error", "total_fatal_error", "num_qps_congested", "rate_inc_events", "num_qps_recovered",
         "dup_rx_requests", "rx_send_requests"),
    )
    | values(("current_rate",)),
    rest(
        ("sent_cnps", "received_ecns", "received_cnp_count", "qp_congested_events", "qp_recovered_events",
         "rate_inc_events"),
    ),
)  # fmt: skip

# Another driver's counters with mlx5's names mean the same.
OTHER = Driver({counter.file: counter for counter in HARDWARE}, {})

# By the driver of the PCI function; irdma sits on those of Intel's network drivers.
_BY_PCI_DRIVER = {
    "mlx5_core": MLX5, "mlx4_core": MLX4, "hfi1": HFI1, "bnxt_en": BNXT_RE, "ice": IRDMA, "i40e": IRDMA, "idpf": IRDMA,
    "efa": EFA, "mana": MANA,
}  # fmt: skip
_BY_NAME = {
    "mlx5": MLX5, "mlx4": MLX4, "hfi1": HFI1, "bnxt_re": BNXT_RE, "irdma": IRDMA, "i40iw": IRDMA, "efa": EFA,
    "mana": MANA,
}  # fmt: skip


def driver_of(pci_driver: str, device: str) -> Driver:
    """Return the driver of a device, by its PCI function's driver, else by the kernel's name for the device.

    >>> driver_of("", "mlx5_0") is MLX5
    True
    """
    driver = _BY_PCI_DRIVER.get(pci_driver)
    named = (driver for prefix, driver in _BY_NAME.items() if device.startswith(prefix))
    return driver or next(named, OTHER)
