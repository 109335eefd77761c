"""A job of the demo that knows nothing of Pyrometer: all that is known of it comes from the RAS socket of its NCCL.

Sixteen ranks on two nodes, tensor parallel within a node and data parallel between them, launch their collectives until
the director lets one stop in its forward pass, as a rank does whose data loader never returns.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.demo.hardware import FIRST_PID, node_address
from pyrometer_simulator.demo.orders import Orders
from pyrometer_simulator.nccl.job import Job, Layout
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer

STEP_SECONDS = 0.5
GPUS_PER_NODE = 8
NAME = "nccl-job"


@dataclass(frozen=True)
class Settings:
    """The demo's settings for the job, as JSON in its only argument; ``nodes`` are numbers of simulated nodes."""

    folder: str
    nodes: tuple[int, ...]
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Read them from JSON."""
        found = json.loads(text)
        return cls(found["folder"], tuple(found["nodes"]), found["host"], int(found["port"]))

    def json(self) -> str:
        """Return them as JSON."""
        return json.dumps(vars(self))


def train(job: Job, orders: Orders, pause: Callable[[float], None] = time.sleep) -> None:
    """Make steps until the order ``end``; an order with a rank's number stops it, and those that wait for it."""
    stopped = False
    while (order := orders.latest()) != "end":
        if order and not stopped:
            stopped = True
            _stop_at_work(job, int(order))
        job.run()
        pause(STEP_SECONDS)


def _stop_at_work(job: Job, rank: int) -> None:
    """Let a rank stop in the forward pass of its next step."""
    program = job.programs[rank]
    place = next(at for at, operation in enumerate(program) if operation.do == "compute")
    job.stop(rank, (job.steps(rank) + 1) * len(program) + place)


def main(argv: Sequence[str]) -> None:
    """Train and answer on the RAS socket until the end of the job, or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = Settings.parse(argv[0])
    job = Job(Layout("demo", tensor=GPUS_PER_NODE, data=len(settings.nodes)))
    job.run()
    ras = RasJob(job, lambda index: node_address(settings.nodes[index]), first_pid=FIRST_PID)
    with RasServer(ras, settings.host, settings.port):
        train(job, Orders(Path(settings.folder), NAME))
    signal.pause()  # the demo takes a program that ends for a broken one


if __name__ == "__main__":
    main(sys.argv[1:])
