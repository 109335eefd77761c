"""Kill the service with SIGKILL a thousand times at random points of its outbox, while Slack misbehaves.

Slack enforces its limits (scaled: 10 posts/s, 1,200 other calls/min, bursts of 10 and 50), and at three deliveries in
ten a call fails in one of eight ways: Slack's own errors, 5xx, rate limits, broken connections, no answer.
Run: .venv/bin/python benchmarks/bench_chaos.py [kills] [seed]   (some minutes; tests/alerting/test_chaos.py is short)
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import exit_on_signals

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
    options = flags.parse_args()
    exit_on_signals()
    _fakes, chaos = load("fakes"), load("chaos")
    limits = RateLimits(post_per_second=10, post_burst=10, tier3_per_minute=1200, tier3_burst=50)
    with (
        tempfile.TemporaryDirectory(prefix="pyrometer-chaos-") as folder,
        FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test", limits=limits) as slack,  # noqa: S106 - made up
    ):
        run = chaos.Chaos(Path(folder), slack, options.seed)
        started = time.monotonic()
        try:
            for part in range(1, options.kills // 100 + 1):
                run.play(100 * part)
                print(f"{100 * part} kills after {time.monotonic() - started:.0f} s", flush=True)
            run.play(options.kills)
            verdict = run.settle(seconds=300)
        finally:
            run.close()
    print(verdict)
    return 1 if verdict.lost or verdict.wrong or verdict.duplicates else 0


if __name__ == "__main__":
    sys.exit(main())
