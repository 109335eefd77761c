"""Measure how fast the alerting service answers while much is wrong: 5,000 alerts at once, a message of 2,000 members.

Run: .venv/bin/python benchmarks/bench_large_incidents.py   (a minute)

In turn, on one service: Alertmanager delivers 5,000 alerts of 1,250 nodes; the status page is fetched until all is
applied, and its slowest answer counts; all resolve. The message is built in this process, from a delivery's alerts.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator

from bench_storm import alert, applied, deliver, each_node, service, settled
from harness import exit_on_signals

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.messages import build
from pyrometer_alerting.incidents.alertmanager_payload import parse
from pyrometer_alerting.incidents.lifecycle import fold

ALERTS, MEMBERS, RUNS = 5000, 2000, 5


def answers(runs: int) -> Iterator[tuple[float, float]]:
    """Yield the seconds until a delivery is taken, and those of the slowest page until it is applied."""
    with service() as (_, port):
        for run in range(runs):
            make, began = each_node(ALERTS // 4, f"r{run}n"), time.time()
            taken = deliver(port, make(began, None))
            page = applied(port)
            yield taken, page
            deliver(port, make(began, time.time()))
            applied(port)
            settled(port)


def message_seconds(runs: int) -> list[float]:
    """Return the seconds that it takes to build the message of an incident with 2,000 members, each the median of 5."""
    began = time.time()
    raw = [alert("NicLinkDown", began, node=f"n{n}", device="mlx5_0", port="1") for n in range(MEMBERS)]
    document = {"version": "4", "groupKey": "{}", "receiver": "p", "status": "firing", "alerts": raw}
    change = fold(None, parse(json.dumps(document).encode()).alerts, 0, began)
    assert change is not None
    found = []
    for _ in range(runs):
        took = []
        for _ in range(5):
            begins = time.perf_counter()
            build(change.incident, Style())
            took.append(time.perf_counter() - begins)
        found.append(statistics.median(took))
    return found


def rows(runs: int) -> dict[str, list[float]]:
    """Return the table's rows: a value of each run by name."""
    taken, page = zip(*answers(runs), strict=True)
    return {
        f"webhook of {ALERTS:,} alerts, answer, s (goal 1)": [*taken],
        "status page, slowest until they are applied, s (goal 1)": [*page],
        f"message of {MEMBERS:,} members, ms (goal 50)": [1e3 * seconds for seconds in message_seconds(runs)],
    }


def main() -> int:
    exit_on_signals()
    for name, values in rows(RUNS).items():
        print(f"{name}: {min(values):.2f}, {statistics.median(values):.2f}, {max(values):.2f} (min, median, max)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
