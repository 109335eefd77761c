"""Kill the service with SIGKILL a thousand times at random points of its outbox, while Slack misbehaves.

Slack enforces its limits (scaled: 10 posts/s, 1,200 other calls/min, bursts of 10 and 50), and at three deliveries in
ten a call fails in one of eight ways: Slack's own errors, 5xx, rate limits, broken connections, no answer.
Run: .venv/bin/python benchmarks/bench_chaos.py [kills] [seed]   (some minutes; tests/alerting/test_chaos.py is short)
     ... --storage postgresql --replicas 2   two services on PostgreSQL and its standby; half an hour for a thousand
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import exit_on_signals

from pyrometer_simulator.postgres import Pair
from pyrometer_simulator.slack import FakeSlack
from pyrometer_simulator.slack_channel import RateLimits

TESTS = Path(__file__).parents[1] / "tests" / "alerting"


def load(name: str) -> Any:  # noqa: ANN401 - a module
    """Import a test module by its path, under the name that others import it by, as the tests are not a package."""
    spec = importlib.util.spec_from_file_location(f"alerting_{name}", TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"alerting_{name}"] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    flags = argparse.ArgumentParser(description="The service killed at random points of its outbox.")
    flags.add_argument("kills", nargs="?", type=int, default=1000, help="(%(default)s)")
    flags.add_argument("seed", nargs="?", type=int, default=1, help="of the dice (%(default)s)")
    flags.add_argument("--storage", choices=("sqlite", "postgresql"), default="sqlite", help="(%(default)s)")
    flags.add_argument("--replicas", type=int, choices=(1, 2), default=1, help="2 with postgresql (%(default)s)")
    flags.add_argument(
        "--minutes", type=float, default=600.0, help="stop after so many, with fewer kills (%(default)s)"
    )
    options = flags.parse_args()
    if (options.storage == "postgresql") is not (options.replicas == 2):
        flags.error("two replicas share PostgreSQL, and one has SQLite: --storage postgresql --replicas 2")
    exit_on_signals()
    _fakes, chaos = load("fakes"), load("chaos")
    limits = RateLimits(post_per_second=10, post_burst=10, tier3_per_minute=1200, tier3_burst=50)
    with (
        contextlib.ExitStack() as stack,
        tempfile.TemporaryDirectory(prefix="pyrometer-chaos-") as folder,
        FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test", limits=limits) as slack,  # noqa: S106 - made up
    ):
        if options.replicas == 2:
            pair = stack.enter_context(Pair(standby=True))
            run = load("chaos_replicas").Replicas(Path(folder), slack, options.seed, pair)
        else:
            run = chaos.Chaos(Path(folder), slack, options.seed)
        started = time.monotonic()
        try:
            while run.kills < options.kills and time.monotonic() - started < 60 * options.minutes:
                run.play(min(run.kills + 10, options.kills))
                if run.kills % 100 == 0:
                    print(f"{run.kills} kills after {time.monotonic() - started:.0f} s", flush=True)
            verdict = run.settle(seconds=300)
        finally:
            log = (Path(folder) / "service.log").read_text(errors="replace")
            (Path(tempfile.gettempdir()) / "bench_chaos.log").write_text(log[-4_000_000:])
            run.close()
    for kind, seconds in sorted(getattr(run, "blind", {}).items()):
        middle, longest = statistics.median(seconds), max(seconds)
        measured = f"nobody led for {middle:.1f} s, at most {longest:.1f} s ({len(seconds)} measured)"
        print(f"{kind}: {run.faults[kind]} times; {measured}")
    print(verdict)
    return 1 if verdict.lost or verdict.wrong or verdict.duplicates else 0


if __name__ == "__main__":
    sys.exit(main())
