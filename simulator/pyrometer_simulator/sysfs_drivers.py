"""RDMA devices of other drivers than mlx5, with exactly the files that those drivers create.

Every counter has a value of its own, so that a mix-up shows. Names are the drivers' (drivers/infiniband/hw/*).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyrometer_simulator.sysfs_layout import PMA_MAXIMA

PMA_OF_HFI1 = tuple(name for name in PMA_MAXIMA if "cast_" not in name)


@dataclass(frozen=True)
class PortFiles:
    """One port: its own files and those of its folders."""

    state: str = "4: ACTIVE"
    phys_state: str = "5: LinkUp"
    rate: str = "100 Gb/sec (4X EDR)"
    link_layer: str = "Ethernet"
    counters: tuple[str, ...] = ()
    counters_ext: tuple[str, ...] = ()
    hw_counters: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverFiles:
    """A device: the driver of its PCI function, its texts, its own counters and its ports."""

    name: str
    pci_driver: str
    texts: Mapping[str, str]
    ports: tuple[PortFiles, ...]
    hw_counters: tuple[str, ...] = field(default=())


_ROCE = {"node_type": "1: CA", "fw_ver": "1.2.3"}

MLX4 = DriverFiles(
    "mlx4_0",
    "mlx4_core",
    {**_ROCE, "node_guid": "0002:c903:00e5:0f50", "hca_type": "MT4099", "board_id": "SM_1141000001000"},
    (
        PortFiles(
            rate="40 Gb/sec (4X FDR10)", link_layer="InfiniBand", counters=tuple(PMA_MAXIMA)[:17],
            counters_ext=("port_xmit_data_64", "port_rcv_data_64", "port_xmit_packets_64", "port_rcv_packets_64",
                          "port_unicast_xmit_packets", "port_unicast_rcv_packets", "port_multicast_xmit_packets",
                          "port_multicast_rcv_packets"),
            hw_counters=("lifespan", "rq_num_dup", "rq_num_lle", "sq_num_oos", "sq_num_rnr", "sq_num_rree",
                         "sq_num_to", "sq_num_tree"),
        ),
        PortFiles(state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X)", link_layer="InfiniBand",
                  counters=tuple(PMA_MAXIMA)[:17]),
    ),
    hw_counters=("lifespan", "num_cqovf", "rq_num_udsdprd"),
)  # fmt: skip
HFI1 = DriverFiles(
    "hfi1_0",
    "hfi1",
    {"node_guid": "0011:7501:0101:67ab", "fw_ver": "1.27.0", "board_id": "Omni-Path 100", "node_type": "1: CA"},
    (PortFiles(link_layer="InfiniBand", counters=PMA_OF_HFI1),),
    hw_counters=("lifespan", "CceSdmaInt,32", "DcDroppedPkt", "DRIVER_CtxtsOpen", "DRIVER_ErrorIntr", "DRIVER_HW_Errs",
                 "DRIVER_Rcv_Errs", "RxTIDFullEr,32", "RxTidFLGMs,32", "SendSomethingNobodyLists"),
)  # fmt: skip
BNXT_RE = DriverFiles(
    "bnxt_re0",
    "bnxt_en",
    {**_ROCE, "node_guid": "be97:e1ff:fe4a:1200", "hca_type": "BCM57508"},
    (
        PortFiles(
            hw_counters=("lifespan", "active_qps", "active_mrs", "watermark_qps", "resize_cq_cnt", "rx_bytes",
                         "rx_pkts", "tx_bytes", "tx_pkts", "recoverable_errors", "max_retry_exceeded",
                         "to_retransmits", "seq_err_naks_rcvd", "rnr_naks_rcvd", "oos_drop_count", "dup_req",
                         "res_cmp_err", "rx_roce_discards", "tx_cnp_pkts", "rx_cnp_pkts", "rx_ecn_marked_pkts",
                         "pacing_alerts", "db_fifo_register"),
        ),
    ),
)  # fmt: skip
IRDMA = DriverFiles(
    "irdma0",
    "ice",
    {**_ROCE, "node_guid": "b696:91ff:fea8:5c10"},
    (
        PortFiles(
            hw_counters=("lifespan", "ip4InOctets", "ip4OutOctets", "cnpHandled", "cnpIgnored", "cnpSent", "RxECNMrkd",
                         "RNR received", "RNR sent", "Nak Sequence Error", "Nak Sequence Error Implied", "RTO",
                         "Rcvd Out of order packets", "CRC errors", "Rx atomics", "InRdmaReads", "RetransSegs"),
        ),
    ),
)  # fmt: skip
EFA = DriverFiles(
    "efa_0",
    "efa",
    {"node_guid": "0000:0000:0000:0000", "fw_ver": "0.0.0", "node_type": "6: unspecified"},
    (
        PortFiles(
            link_layer="Unknown",
            hw_counters=("lifespan", "rx_bytes", "rx_pkts", "tx_bytes", "tx_pkts", "rx_drops", "send_wrs", "send_bytes",
                         "rdma_read_wrs", "rdma_read_wr_err", "rdma_write_wrs", "retrans_bytes", "retrans_pkts",
                         "retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events"),
        ),
    ),
    hw_counters=("lifespan", "alloc_pd_err", "cmds_err", "completed_cmds", "submitted_cmds", "keep_alive_rcvd"),
)  # fmt: skip
MANA = DriverFiles(
    "mana_0",
    "mana",
    {"node_guid": "7c1e:52ff:fe00:0001", "fw_ver": "0.0.0", "node_type": "1: CA"},
    (
        PortFiles(
            rate="",  # its width is negative, so the kernel refuses to read the file: node_exporter issue 3810
            hw_counters=("lifespan", "requester_timeout", "requester_oos_nak", "requester_retries_exceeded",
                         "requester_rnr_nak_retries_exceeded", "responder_oos", "received_cnps", "current_rate",
                         "tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "rx_write_requests", "total_fatal_error"),
        ),
    ),
    hw_counters=("lifespan", "sent_cnps", "received_ecns", "rate_inc_events"),
)  # fmt: skip
DRIVERS = (MLX4, HFI1, BNXT_RE, IRDMA, EFA, MANA)


def write_text(path: Path, text: str) -> None:
    """Write a file with one line, creating its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def write_counters(folder: Path, names: tuple[str, ...]) -> None:
    """Write counters with the values 1, 2, 3, ...; no names create no folder."""
    for value, name in enumerate(names, 1):
        write_text(folder / name, "10" if name == "lifespan" else str(value))
