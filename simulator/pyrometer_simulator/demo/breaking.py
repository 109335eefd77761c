"""Break something in the demo that runs in another terminal, and print what its Slack channel says to it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyrometer_alerting.channel.terminal import render
from pyrometer_alerting.model.message import Message
from pyrometer_simulator.demo import faults
from pyrometer_simulator.demo.cluster import Cluster
from pyrometer_simulator.demo.hardware import Node
from pyrometer_simulator.demo.observe import RemoteSlack
from pyrometer_simulator.demo.orders import Orders
from pyrometer_simulator.demo.processes import DemoError
from pyrometer_simulator.demo.topology import CHANNEL, GPUS_PER_NODE, NODES, TRAINING_NODES

SECONDS = 60.0
PREFIX = "pyrometer-demo-"
_FILE = "running.json"
_NAME = "director"


@dataclass(frozen=True)
class Fault:
    """A fault that a user can plant; ``wait`` is how long the channel is watched for its answer."""

    help: str
    wait: float
    told: str


FAULTS = {
    "heat": Fault(
        "a GPU overheats for a minute and slows the run", SECONDS,
        "{node} GPU {gpu} overheats for a minute: its clock falls to 1200 MHz, and all ranks wait for it",
    ),
    "slow": Fault(
        "a GPU is slower than its peers for a minute, for no reason that its driver gives", SECONDS,
        "{node} GPU {gpu} falls to 1500 MHz for a minute, and its driver gives no reason",
    ),
    "flap": Fault(
        "a link goes down and up three times", 30.0,
        "{node} mlx5_{gpu} loses its link three times, a second each",
    ),
    "kill": Fault(
        "a rank crashes, and its job ends for two minutes", 90.0,
        "the rank on {node} GPU {gpu} crashes, and its job ends for two minutes; one that is back within a minute is "
        "no news",
    ),
    "drain": Fault(
        "Slurm drains a node, or takes it back: nobody is paged for it meanwhile", 20.0,
        "Slurm is told to drain {node}, or to take it back if it is drained: a drained node pages nobody, so no "
        "message is the right answer. Overview shows it, with its reason",
    ),
}  # fmt: skip


@dataclass
class Breaker:
    """The demo's side: takes the user's orders and plants their faults, while all else goes on."""

    folder: Path
    nodes: Mapping[str, Node]
    cluster: Cluster
    now: Callable[[], float] = time.monotonic
    _running: list[tuple[float, faults.Steps]] = field(default_factory=list)

    def open(self, slack: str) -> None:
        """Take orders from now on; ``slack`` is the address of the channel."""
        (self.folder / _FILE).write_text(json.dumps({"slack": slack, "pid": os.getpid()}))

    def look(self) -> None:
        """Take an order, and go on with the faults whose time has come."""
        if order := Orders(self.folder, _NAME).take().split():
            fault, node, gpu = order
            self._running.append((self.now(), self._steps(fault, node, int(gpu))))
        due = [steps for at, steps in self._running if at <= self.now()]
        self._running = [(at, steps) for at, steps in self._running if at > self.now()]
        for steps in due:
            pause = next(steps, None)
            if pause is not None:
                self._running.append((self.now() + pause, steps))

    def _steps(self, fault: str, node: str, gpu: int) -> faults.Steps:
        hardware = self.nodes[node]
        if fault == "heat":
            return faults.heat(hardware.gpus[gpu], SECONDS)
        if fault == "slow":
            return faults.slow(hardware.gpus[gpu], SECONDS)
        if fault == "flap":
            return faults.flap(hardware, node, f"mlx5_{gpu}", self.cluster)
        if fault == "kill":
            return faults.kill(hardware.folder.parent, node, gpu)
        self.cluster.drain(node)
        return iter(())


def main(argv: Sequence[str]) -> int:
    """Plant a fault in the running demo and print the channel's answer; return 0 once it came.

    Returns:
        1 if the channel said nothing, 2 if there is no demo to break.
    """
    flags = _parser().parse_args(argv)
    try:
        return _break(flags.fault, flags.node, flags.gpu, flags.channel)
    except DemoError as error:
        sys.stderr.write(f"pyrometer-demo: {error}\n")
        return 2


def _break(name: str, node: str, gpu: int, chosen: str) -> int:
    """Raise DemoError where no demo takes orders."""
    if name == "kill" and node not in TRAINING_NODES:
        raise DemoError(f"kill {node}: no rank of the run is there; take {TRAINING_NODES[0]} to {TRAINING_NODES[-1]}")
    folder, url = _demo(chosen)
    channel, fault = RemoteSlack(url), FAULTS[name]
    before = {key: text for key, text, _ in _messages(channel)}
    Orders(folder, _NAME).give(f"{name} {node} {gpu}")
    start = time.monotonic()
    print(f"{fault.told.format(node=node, gpu=gpu)}. The channel ({url}):", flush=True)
    answers = 0
    while time.monotonic() < start + fault.wait:
        for key, text, shown in _messages(channel):
            if before.get(key) != text:
                before[key] = text
                answers += 1
                print(f"\n  after {time.monotonic() - start:.0f} s:\n{shown}", flush=True)
        time.sleep(0.5)
    if name == "drain":
        return 0
    if not answers:
        print(f"  nothing in {fault.wait:.0f} s")
        return 1
    print("\nThe fault is over. Its message turns green once its rules have seen a minute or two of quiet.")
    return 0


def _messages(channel: RemoteSlack) -> Iterator[tuple[str, str, str]]:
    """Yield each message: its key, its header, and all of it for a terminal."""
    for message in channel.messages(CHANNEL):
        text = str(message["text"])
        shown = render(Message(text=text, blocks=message.get("blocks") or []))
        yield str(message["ts"]), text, "\n".join(f"  {line}" for line in shown.splitlines())


def _demo(chosen: str) -> tuple[Path, str]:
    """Return the folder and the channel of this user's demo. Raises DemoError unless exactly one takes orders."""
    running = {}
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            found = json.loads((folder / _FILE).read_text())
            os.kill(found["pid"], 0)
        except (OSError, ValueError):
            continue
        if os.access(folder, os.W_OK) and chosen in ("", found["slack"]):
            running[found["slack"]] = folder
    if len(running) > 1:
        raise DemoError(f"several demos run; choose one by its channel: --channel={' or --channel='.join(running)}")
    if not running:
        raise DemoError(
            "no demo takes orders now: start `make demo` in another terminal, and wait until it says that you can"
        )
    url, folder = running.popitem()
    return folder, url


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pyrometer-demo", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="fault", required=True, metavar="FAULT")
    for name, fault in FAULTS.items():
        command = commands.add_parser(name, help=fault.help, description=fault.help, allow_abbrev=False)
        command.add_argument("node", choices=NODES, metavar="NODE", help=f"{NODES[0]} to {NODES[-1]}")
        command.add_argument(
            "gpu", nargs="?", type=int, choices=range(GPUS_PER_NODE), default=5, metavar="NUMBER",
            help="of its GPU or link, 0 to 7 (default: 5)",
        )  # fmt: skip
        command.add_argument(
            "--channel", default="", metavar="URL", help="of the demo's Slack, where several demos run"
        )
    return parser
