"""The cluster of a world: nodes in racks, rails and leaf switches, and the place of each rank of the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyrometer_simulator import vocabulary

GPUS = 8
RACK_NODES = 4
LEAF_NODES = 16
_NAMES = ("gpu-{:03d}", "node-a{:03d}", "hgx{:04d}", "dgx-{:02d}-h100")
_RUNS = ("llama3-70b", "dense-70b-v3", "moe-8x22b", "sft-13b", "pretrain-405b", "vlm-34b")


@dataclass(frozen=True)
class Gpu:
    """A GPU by the index of its node and its own."""

    node: int
    gpu: int


@dataclass(frozen=True)
class Layout:
    """The cluster and its run: the run uses `run_nodes` nodes from `first` on; the others do something else.

    Attributes:
        step: seconds of a healthy step.
        mfu: ratio that a healthy batch has.
        tensor, stages: sizes of the tensor-parallel groups and number of pipeline stages.
        interval: seconds between scrapes, and between evaluations of the rules.
    """

    cluster: str
    names: tuple[str, ...]
    run: str
    first: int
    run_nodes: int
    ports: int
    tensor: int
    stages: int
    step: float
    mfu: float
    interval: float
    fabric: bool
    hosts: bool

    @property
    def ranks(self) -> int:
        """The number of ranks: one for each GPU of the run."""
        return self.run_nodes * GPUS

    @property
    def members(self) -> range:
        """The indexes of the run's nodes."""
        return range(self.first, self.first + self.run_nodes)

    @property
    def strangers(self) -> list[int]:
        """The indexes of the other nodes."""
        return [node for node in range(len(self.names)) if node not in self.members]

    def rack(self, node: int) -> str:
        """Return the name of a node's rack."""
        return f"r{node // RACK_NODES + 1:02d}"

    def rack_nodes(self, node: int) -> list[int]:
        """Return the nodes in the same rack."""
        first = node // RACK_NODES * RACK_NODES
        return list(range(first, min(first + RACK_NODES, len(self.names))))

    def switch(self, node: int, rail: int) -> str:
        """Return the name of the leaf switch of a port: one for each rail and pod of nodes."""
        return f"leaf-{node // LEAF_NODES * self.ports + rail + 1:02d}"

    def gpu_of(self, rank: int) -> Gpu:
        """Return the GPU of a rank."""
        return Gpu(self.first + rank // GPUS, rank % GPUS)

    def rank_of(self, gpu: Gpu) -> int:
        """Return the rank on a GPU of the run."""
        return (gpu.node - self.first) * GPUS + gpu.gpu

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of a rank: stages are the outermost dimension, as in Megatron."""
        return rank * self.stages // self.ranks

    def replica(self, rank: int) -> int:
        """Return the data-parallel index of a rank; a tensor-parallel group shares it."""
        return rank % (self.ranks // self.stages) // self.tensor

    def gpu_name(self, gpu: Gpu) -> str:
        """Return a GPU in the channel's notation."""
        return f"{self.names[gpu.node]} GPU {gpu.gpu}"

    def port_name(self, node: int, port: int) -> str:
        """Return a port in the channel's notation."""
        return f"{self.names[node]} mlx5_{port}/1"

    def target(self, node: int, job: str = "node") -> dict[str, str]:
        """Return the labels of a node's target."""
        port = 9100 if job == "host" else 9935
        return vocabulary.target(self.cluster, self.names[node], self.rack(node), port, job)


def draw(random: np.random.Generator, cluster: str, interval: float, nodes: int | None = None) -> Layout:
    """Return a random cluster of 4 to 64 nodes, most of them small."""
    size = nodes or int(random.choice([4, 6, 8, 12, 16, 24, 32, 64], p=[0.2, 0.2, 0.25, 0.17, 0.1, 0.05, 0.02, 0.01]))
    spare = int(random.integers(1, max(size // 3, 1) + 1))
    run_nodes = max(size - spare, 3)
    tensor = int(random.choice([1, 2, 4, 8]))
    stages = int(random.choice([each for each in (1, 2, 4) if run_nodes % each == 0]))
    pattern = _NAMES[random.integers(len(_NAMES))]
    base = int(random.integers(1, 30))
    return Layout(
        cluster=cluster,
        names=tuple(pattern.format(base + number) for number in range(size)),
        run=str(random.choice(_RUNS)),
        first=int(random.integers(0, size - run_nodes + 1)),
        run_nodes=run_nodes,
        ports=int(random.choice([4, 8])),
        tensor=tensor,
        stages=stages,
        step=float(random.choice([0.6, 1.1, 1.8, 2.6, 5.0, 9.0], p=[0.2, 0.25, 0.25, 0.15, 0.1, 0.05])),
        mfu=float(random.uniform(0.33, 0.52)),
        interval=interval,
        fabric=bool(random.random() < 0.7),
        hosts=bool(random.random() < 0.85),
    )
