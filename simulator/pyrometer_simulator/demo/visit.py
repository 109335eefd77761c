"""After the scenario: what was shown and where, signs of life until Ctrl-C, and where to go on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from pyrometer_simulator.demo.addresses import Addresses
from pyrometer_simulator.demo.boards import Boards
from pyrometer_simulator.demo.breaking import FAULTS
from pyrometer_simulator.demo.director import Director
from pyrometer_simulator.demo.scenario import HOT_NODE
from pyrometer_simulator.demo.topology import CHANNEL, RUN
from pyrometer_simulator.demo.verdict import Report

PROGRESS_SECONDS = 60.0
# By then the boards show the fault clearly, and it lasts: a message came 8 to 11 s into the 28 s of heat.
_AFTER_MESSAGE_SECONDS = 10.0
# Which boards show a fault best, of those that scenario.py plays.
_BOARDS_OF = {"heat": ("overview", "training-run", "throttling"), "third flap": ("fabric",), "hang": ("collectives",)}
_NEXT = (
    "beside the Prometheus that you have: docs/howto/existing-stack.md",
    "on a GPU node: docs/howto/gpu-node.md; in a training job: docs/howto/training-job.md",
    "how it works: docs/architecture.md; every alert: docs/alerts.md",
)
Say = Callable[[str], None]


@dataclass
class Visit:
    """One visit to the demo: its addresses, boards and pictures."""

    where: Addresses
    boards: Boards
    browser: str
    folder: Path
    since: float = field(default_factory=time.monotonic)

    def pages(self, report: Report) -> dict[str, str]:
        """Return the boards' addresses by name, each at the time of the fault that it shows best."""
        named = {each.fault: each.named_at + _AFTER_MESSAGE_SECONDS for each in report.findings if each.named_at}
        return {
            name: url
            for fault, names in _BOARDS_OF.items()
            for name in names
            if fault in named and (url := self.boards.url(name, named[fault]))
        }

    def tell(self, report: Report, say: Say) -> None:
        """Say what was shown, and where it can still be seen."""
        say(f"the messages: {self.where.url(self.where.slack)}; the boards as they were then:")
        for name, url in self.pages(report).items():
            print(f"    {name:<44} {url}", flush=True)
        say("now break something yourself, in another terminal; the answer is the channel's:")
        program = os.path.relpath(Path(sys.executable).with_name("pyrometer-demo"))
        for name, fault in FAULTS.items():
            print(f"    {f'{program} {name} {HOT_NODE}':<44} {fault.help}", flush=True)
        say("the cluster trains on until Ctrl-C")

    def stay(self, director: Director, say: Say) -> NoReturn:
        """Keep the cluster alive until Ctrl-C, with a line each minute."""
        last = time.monotonic()
        while True:
            director.idle()
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                say(f"{self._state(director)}; Ctrl-C ends it")

    def leave(self, director: Director, say: Say) -> None:
        """Say what there was, and where to go on."""
        say(f"ending: {self._state(director)}. Where to go on:")
        for line in _NEXT:
            say(f"  {line}")

    def _state(self, director: Director) -> str:
        minutes = (time.monotonic() - self.since) / 60
        steps = director.prometheus.value(f'max(pyrometer_train_steps_total{{run="{RUN}"}})')
        mfu = director.prometheus.value(f'max(last_over_time(pyrometer_train_batch_mfu_ratio{{run="{RUN}"}}[1m]))')
        parts = [f"up for {minutes:.0f} min"]
        parts += [f"{steps:,.0f} steps"] if steps is not None else []
        parts += [f"MFU {100 * mfu:.0f} %"] if mfu is not None else []
        parts += [f"{len(director.slack.messages(CHANNEL))} messages in the channel"]
        return ", ".join(parts)
