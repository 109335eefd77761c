"""Simulated nodes with the real node exporter, and a run on each whose batches come in pairs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pyrometer
from pyrometer_simulator.demo.hardware import Node, exporter_flags
from pyrometer_simulator.demo.processes import Processes
from pyrometer_simulator.ports import free_port
from pyrometer_simulator.shipped import target

# A batch each 200 ms, and a second one right after it.
STEP_SECONDS = 0.2
GPUS = 8
STEPS = "pyrometer_train_batch_step"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Training(threading.Thread):
    """One run on each node, whose batches come in pairs that are a millisecond or two apart."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.runs = {
            f"run-{node}": pyrometer.start(f"run-{node}", rings=str(folder / node / "rings"), rank=0, world_size=1)
            for node in nodes
        }
        self._stopped = threading.Event()

    def run(self) -> None:
        """Train until stopped."""
        while not self._stopped.wait(STEP_SECONDS):
            for run in self.runs.values():
                for _ in range(2):
                    with run.step():
                        run.record(loss=1.0)

    def stop(self) -> None:
        """End the loop and the runs."""
        self._stopped.set()
        if self.is_alive():
            self.join()
        for run in self.runs.values():
            run.close()


class TrainingNodes:
    """Nodes and their exporters; ``training.start()`` begins to train.

    Attributes:
        nodes: the hardware of each node.
        targets: the exporters as a list for ``file_sd_configs``.
        training: the runs, named ``run-NODE``.
    """

    def __init__(
        self, folder: Path, processes: Processes, names: Sequence[str], idle: Sequence[str], cluster: str
    ) -> None:
        """Start the exporters.

        Args:
            folder: empty.
            processes: take the exporters, each under its node's name.
            names: nodes that train.
            idle: nodes that don't.
            cluster: the label of all targets.
        """
        every = (*names, *idle)
        self._folder = folder
        self._processes = processes
        self.nodes = {node: Node(folder / node, number, GPUS) for number, node in enumerate(every, 1)}
        self.targets: list[dict[str, object]] = [
            target(self._exporter(node), cluster=cluster, node=node, rack="r01") for node in every
        ]
        self.training = Training(folder, names)

    def _exporter(self, node: str) -> int:
        folder, port = self._folder / node, free_port()
        command = [
            sys.executable, "-m", "pyrometer_simulator.node", *exporter_flags(folder, f"127.0.0.1:{port}"),
            "--collector.checks.interval=3600", "--no-collector.nccl",
        ]  # fmt: skip
        self._processes.start(node, command, ONE_THREAD)
        self._processes.wait_until_ready({node: f"http://127.0.0.1:{port}/-/ready"})
        return port
