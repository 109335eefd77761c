"""Measure how long news takes from the webhook to the channel: python benchmarks/bench_told.py.

Each kind is played twenty times against the whole service with a simulated Slack: alone, and in the message of a run
that is slow already and has come and gone three times. It prints the first, the median and the worst, in seconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bench_storm

from pyrometer_alerting.app.service import WEBHOOK_PATH, Service
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.http_message import Request
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

TIMES, PATIENCE_SECONDS = 20, 60.0
LIMITS = RateLimits(post_per_second=1000, post_burst=1000, tier3_per_minute=60_000, tier3_burst=1000)


def alert(name: str, run: str, *, severity: str = "critical", over: bool = False) -> dict[str, Any]:
    """Return an alert of a run as Alertmanager delivers it."""
    now = time.time()
    labels = {"cluster": f"of {run}", "component": "train", "run": run, "severity": severity}
    told = bench_storm.alert(name, now, now if over else None, **labels)
    return told | {"annotations": {"summary": f"{name} of {run}", "description": "measured"}}


class Channel:
    """Runs the service on a channel; `tell` delivers alerts and returns the seconds until the channel shows it."""

    def __init__(self, folder: Path, slack: FakeSlack) -> None:
        self._slack, self._number = slack, 0
        web = WebSlack("xoxb-fake-token", slack.url)
        self._service = Service(Store(folder), web, "#gpu-alerts", prometheus=None, style=Style(), clock=SystemClock())
        self._webhook = self._service.routes()[WEBHOOK_PATH].handler
        self._service.start()

    def stop(self) -> None:
        """End the service."""
        self._service.stop()

    def tell(self, alerts: list[dict[str, Any]], shown: Callable[[Mapping[str, Any]], bool]) -> float:
        """Deliver and wait until a call to Slack shows it.

        Raises:
            TimeoutError: none did within a minute.
        """
        self._number += 1
        first = len(self._slack.calls)
        document = {"version": "4", "groupKey": str(self._number), "receiver": "pyrometer", "alerts": alerts}
        began = time.time()
        self._webhook(Request("POST", WEBHOOK_PATH, {}, json.dumps(document).encode()))
        while time.time() - began < PATIENCE_SECONDS:
            for call in self._slack.calls[first:]:
                if call.method in ("chat.postMessage", "chat.update") and shown(call.args):
                    return call.time - began
            time.sleep(0.005)
        raise TimeoutError(str(alerts))


def says(*words: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return whether a call's text has all these words."""
    return lambda args: all(word in str(args.get("text")) for word in words)


def slow_for_long(channel: Channel, run: str) -> None:
    """Let a run be slow, come and go three times, and be slow again."""
    for turn in range(3):
        channel.tell([alert("TrainMfuDropped", run, severity="warning")], says(run))
        channel.tell([alert("TrainMfuDropped", run, severity="warning", over=True)], says(run, "\u2705"))
        time.sleep(0.05 * turn)
    channel.tell([alert("TrainMfuDropped", run, severity="warning")], says(run))


def death(channel: Channel, run: str) -> float:
    """Let a run die."""
    return channel.tell([alert("TrainRunDied", run)], says("TrainRunDied of " + run))


def hang(channel: Channel, run: str) -> float:
    """Let a run hang."""
    return channel.tell([alert("TrainStalled", run)], says("TrainStalled of " + run))


def worsening(channel: Channel, run: str) -> float:
    """Let a run that is slow raise a critical alert of its slowness."""
    return channel.tell([alert("TrainMfuLow", run)], says("Worse"))


def end(channel: Channel, run: str) -> float:
    """Let a slow run recover."""
    return channel.tell([alert("TrainMfuDropped", run, severity="warning", over=True)], says(run, "\u2705"))


def main() -> int:
    """Play everything and print the table."""
    with tempfile.TemporaryDirectory() as folder, FakeSlack(limits=LIMITS) as slack:
        channel = Channel(Path(folder) / "store", slack)
        print("| what | state of the run before | first, s | median, s | worst of twenty, s |\n|---|---|---|---|---|")
        for play, beside in ((death, 0), (death, 1), (hang, 0), (hang, 1), (worsening, 1), (end, 1)):
            seconds = []
            for number in range(TIMES):
                run = f"{play.__name__}-{beside}-{number}"
                if beside:
                    slow_for_long(channel, run)
                seconds.append(play(channel, run))
            before = "slow, came and went three times" if beside else "no incident"
            figures = seconds[0], statistics.median(seconds), max(seconds)
            print(f"| {play.__name__} | {before} | {' | '.join(f'{figure:.2f}' for figure in figures)} |", flush=True)
        channel.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
