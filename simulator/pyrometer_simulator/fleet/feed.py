"""A target that answers for a whole cluster: ``python -m pyrometer_simulator.fleet.feed --port=9930 --nodes=511``.

Scrape it with ``honor_labels: true``: ``/metrics`` has all series at present, ``/batches`` the batches since the last
request, with timestamps.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from pyrometer_simulator.fleet.openmetrics import all_families, scrape
from pyrometer_simulator.fleet.plan import HEALTHY, Plan, planted, single_faults
from pyrometer_simulator.fleet.training_metrics import batches
from pyrometer_simulator.http_server import HttpServer, Request, Response


class Feed:
    """The scrapes of planned clusters."""

    def __init__(self, *plans: Plan) -> None:
        self._plans = plans
        # A fault ends series that must have existed before.
        self._families = [[all_families(each) for each in (replace(plan, faults=HEALTHY), plan)] for plan in plans]
        self._last_request = time.time()
        self._lock = Lock()

    def respond(self, request: Request) -> Response:
        """Answer ``/batches`` with the new batches, everything else with all series."""
        text = self.batches() if request.path.startswith("/batches") else self.metrics()
        return Response(text.encode(), content_type="text/plain; version=0.0.4")

    def metrics(self) -> str:
        """Return all series at present."""
        now = time.time()
        present = [each[now >= plan.faults.since] for plan, each in zip(self._plans, self._families, strict=True)]
        return "".join(line for families in present for line in scrape(families, now))

    def batches(self) -> str:
        """Return the batches since the last call."""
        with self._lock:
            start, self._last_request = self._last_request, time.time()
            samples = [each for plan in self._plans for each in batches(plan, start, self._last_request)]
            ordered = sorted(samples, key=lambda each: each[0])
            return "".join(f"{series} {value} {at * 1000:.0f}\n" for series, value, at in ordered)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted.

    Raises:
        OSError: the port is taken.
    """
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.fleet.feed", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one, which the first line names")
    parser.add_argument("--nodes", type=int, default=511)
    parser.add_argument("--healthy", action="store_true", help="no faults")
    parser.add_argument(
        "--alone", type=int, default=0, metavar="NODES", help="add a cluster of this size for each fault on its own"
    )
    parser.add_argument("--faults-after", type=float, default=180.0, metavar="SECONDS", help="when the faults begin")
    flags = parser.parse_args(argv)
    since = time.time() + flags.faults_after
    faults = HEALTHY if flags.healthy else planted(flags.nodes, since)
    plans = [Plan(nodes=flags.nodes, faults=faults)]
    if flags.alone:
        clusters = single_faults(flags.alone, since)
        plans += [Plan(flags.alone, cluster=name, faults=each) for name, each in clusters.items()]
    server = HttpServer(Feed(*plans).respond, port=flags.port)
    print(f"{sum(plan.nodes for plan in plans)} nodes on http://127.0.0.1:{server.server_port}/metrics", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
