"""The demo's parts as containers: ``python -m pyrometer_simulator.demo.containers ROLE``, as compose.demo.yaml does.

``director`` makes the simulated hardware in a folder that all roles share, plays the scenario and then keeps the
machine room alive; ``node NAME`` is a real node exporter over that hardware; ``training`` the run; ``nccl-job``
the job that doesn't report; ``slack`` the stand-in for Slack. They may start in any order and be restarted at any time:
each waits for the hardware, and ends when
the director has replaced it, so that its restart policy puts it on the new one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pyrometer_simulator import node, slack
from pyrometer_simulator.demo import nccl_job, programs, topology, trainer
from pyrometer_simulator.demo.director import Director
from pyrometer_simulator.demo.hardware import Node, exporter_flags
from pyrometer_simulator.demo.main import tell
from pyrometer_simulator.demo.observe import Prometheus, RemoteSlack
from pyrometer_simulator.demo.processes import DemoError, Processes

# A monitoring host that pulls or builds its images while we are up already.
START_SECONDS = 900.0
LOOK_SECONDS = 1.0
RAS_PORT = 28028


class Room:
    """The folder with the hardware, ``<root>/<generation>/<node>``; ``<root>/current`` names the generation."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._current = root / "current"

    def make(self) -> dict[str, Node]:
        """Make new hardware, which takes the place of the old."""
        folder = self._root / f"hardware-{time.time_ns()}"
        nodes = {
            name: Node(folder / name, number, topology.GPUS_PER_NODE)
            for number, name in enumerate(topology.NODES, start=1)
        }
        programs.run_processes(nodes)
        old = self._generation()
        renamed = self._root / "current.new"
        renamed.write_text(folder.name)
        renamed.rename(self._current)
        if old:
            shutil.rmtree(self._root / old, ignore_errors=True)
        return nodes

    def wait(self) -> Path:
        """Wait for hardware and return its folder; from then on this process ends when the hardware is replaced."""
        while not (generation := self._generation()):
            time.sleep(LOOK_SECONDS)
        threading.Thread(target=self._end_with, args=(generation,), name="room", daemon=True).start()
        return self._root / generation

    def state(self, name: str) -> Path:
        """Return the folder of what a node keeps over its own restarts and the director's."""
        return self._root / "state" / name

    def _generation(self) -> str:
        try:
            return self._current.read_text()
        except FileNotFoundError:
            return ""

    def _end_with(self, generation: str) -> None:
        while self._generation() == generation:
            time.sleep(LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Play one role until SIGTERM; return 2, after one line on stderr, where it can't run."""
    flags = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container has no default action
    room = Room(flags.room)
    if flags.role == "slack":
        return slack.main([f"--listen={flags.listen}", f"--channel={topology.CHANNEL}"])
    if flags.role == "node":
        return _node(room, flags.name, flags.listen)
    if flags.role == "training":
        settings = trainer.Settings(topology.RUN, str(room.wait()), topology.TRAINING_NODES, topology.GPUS_PER_NODE)
        trainer.main(settings.json())
        return 0
    if flags.role == "nccl-job":
        nccl_job.main([programs.nccl_job_settings(str(room.wait()), "0.0.0.0", RAS_PORT).json()])  # noqa: S104
        return 0
    try:
        return _direct(room, flags)
    except DemoError as error:
        sys.stderr.write(f"director: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.demo.containers", allow_abbrev=False)
    parser.add_argument("--room", type=Path, default=Path("/var/lib/pyrometer"), metavar="DIR", help="shared by all")
    roles = parser.add_subparsers(dest="role", required=True, metavar="ROLE")
    for name, listen in (("slack", "0.0.0.0:9938"), ("node", ":9935")):
        role = roles.add_parser(name, allow_abbrev=False)
        role.add_argument("--listen", default=listen, metavar="HOST:PORT")
        if name == "node":
            role.add_argument("name", choices=topology.NODES)
    roles.add_parser("training", allow_abbrev=False)
    roles.add_parser("nccl-job", allow_abbrev=False)
    director = roles.add_parser("director", allow_abbrev=False)
    for name in ("prometheus", "alerting", "slack"):
        director.add_argument(f"--{name}.url", dest=f"{name}_url", required=True, metavar="URL")
    director.add_argument("--exit-after-scenario", action="store_true", help="0 if all was right, 1 if not")
    director.add_argument("--report", type=Path, metavar="FILE", help="write what was measured there, as JSON")
    return parser


def _node(room: Room, name: str, listen: str) -> int:
    folder = room.wait() / name
    return node.main([
        *exporter_flags(folder, listen, room.state(name)), f"--web.notice={programs.NODE_NOTICE}",
        *programs.nccl_flags(name, f"nccl-job:{RAS_PORT}"),
    ])  # fmt: skip


def _direct(room: Room, flags: argparse.Namespace) -> int:
    director = Director(
        room.make(), Prometheus(flags.prometheus_url), RemoteSlack(flags.slack_url), flags.alerting_url,
        Processes(flags.room), lambda line: print(line, flush=True), start_seconds=START_SECONDS,
    )  # fmt: skip
    report = director.play()
    if flags.report is not None:
        flags.report.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    tell(report)
    while not flags.exit_after_scenario:
        director.idle()
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
