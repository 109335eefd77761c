"""The labels of series that the simulator writes without an exporter: of a fleet for boards, of incidents for rules.

A test holds both to the labels that the exporters define.
"""

from __future__ import annotations

from collections.abc import Mapping

MODEL, DRIVER = "NVIDIA H100 80GB HBM3", "580.82.07"
JOB = 4711
Labels = dict[str, str]


def text(labels: Mapping[str, str]) -> str:
    """Return labels as they stand between the braces of a series."""
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def target(cluster: str, node: str, rack: str, port: int = 9935, job: str = "node") -> Labels:
    """Return the labels of a node's target."""
    return {"cluster": cluster, "node": node, "rack": rack, "instance": f"{node}:{port}", "job": job}


def gpu(node: int, index: int) -> Labels:
    """Return the labels of a GPU by the number of its node, under our own names."""
    return {"gpu": str(index), "uuid": f"GPU-{node:08x}-0000-4000-8000-{index:012x}"}


def dcgm(node: int, index: int, host: str) -> Labels:
    """Return the labels of a GPU under dcgm-exporter's names."""
    return {
        "gpu": str(index), "UUID": gpu(node, index)["uuid"], "pci_bus_id": f"00000000:{0x18 + 16 * index:02X}:00.0",
        "device": f"nvidia{index}", "modelName": MODEL, "Hostname": host, "DCGM_FI_DRIVER_VERSION": DRIVER,
    }  # fmt: skip


def gpu_info(node: int, index: int) -> Labels:
    """Return what ``pyrometer_gpu_info`` says of a GPU."""
    return {
        **gpu(node, index), "pci_bus_id": f"0000:{0x18 + 16 * index:02x}:00.0", "model": MODEL,
        "serial": f"16549{node:05d}{index:02d}", "vbios": "96.00", "driver": DRIVER,
    }  # fmt: skip


def gpu_job(node: int, index: int, job: int) -> Labels:
    """Return what ``pyrometer_gpu_job_info`` says of a GPU."""
    return {**gpu(node, index), "job_id": str(job), "user": "ml", "job_name": ""}


def port(index: int) -> Labels:
    """Return the labels of a network port."""
    return {"device": f"mlx5_{index}", "port": "1"}


def nic_info(node: int, index: int) -> Labels:
    """Return what ``pyrometer_nic_info`` says of a port."""
    return {
        **port(index), "netdev": f"ib{index}", "pci_bus_id": f"0000:{0x1A + 16 * index:02x}:00.0",
        "guid": f"{node:04x}:{index}", "link_layer": "InfiniBand", "driver": "mlx5_core", "firmware": "28.39",
        "board": "MT_0000000838",
    }  # fmt: skip


def fabric_port(name: str, index: int, switch: str = "", switch_port: str = "") -> Labels:
    """Return what ``pyrometer_fabric_port_info`` says of a port; a switch that is not known is empty."""
    return {"node": name, **port(index), "rail": str(index), "switch": switch, "switch_port": switch_port, "cable": ""}


def rank(run: str, attempt: int, number: int, job: int = JOB) -> Labels:
    """Return the labels of a rank."""
    return {"run": run, "attempt": str(attempt), "rank": str(number), "job_id": str(job)}


def rank_place(node: int, index: int, stage: int, replica: int) -> Labels:
    """Return what ``pyrometer_train_rank_info`` adds to a rank: its GPU and its place in the run."""
    return {"local_rank": str(index), **gpu(node, index), "stage": str(stage), "replica": str(replica)}


def run_info(run: str, attempt: int, ranks: int, job: int = JOB, source: str = "client") -> Labels:
    """Return what ``pyrometer_train_run_info`` says of a run."""
    return {
        "run": run, "attempt": str(attempt), "model": run, "world_size": str(ranks), "convention": "palm",
        "dtype": "bf16", "gpu_model": MODEL, "global_batch_size": "1024", "micro_batch_size": "1",
        "sequence_length": "4096", "recompute": "none", "job_id": str(job), "user": "ml", "source": source,
    }  # fmt: skip
