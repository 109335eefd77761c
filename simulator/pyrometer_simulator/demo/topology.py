"""The simulated cluster: its nodes, and the two jobs on them."""

from __future__ import annotations

NODES = tuple(f"gpu-{number:03d}" for number in range(1, 9))
GPUS_PER_NODE = 8
# Two jobs: one reports through the client, the other has nothing but NCCL.
TRAINING_NODES, NCCL_NODES = NODES[:6], NODES[6:]
RUN = "demo-mlp"
CLUSTER = "simulated"
CHANNEL = "gpu-alerts"
