"""The simulated cluster: its nodes, and the two jobs on them."""

from __future__ import annotations

NODES = tuple(f"gpu-{number:03d}" for number in range(1, 9))
GPUS_PER_NODE = 8
# Two jobs: one reports through the client, the other has nothing but NCCL.
TRAINING_NODES, NCCL_NODES = NODES[:6], NODES[6:]
# The run and its Slurm job, and the program that trains it.
RUN, JOB, TRAINER = "llama-8b", 4712, "trainer"
CLUSTER = "simulated"
CHANNEL = "gpu-alerts"
