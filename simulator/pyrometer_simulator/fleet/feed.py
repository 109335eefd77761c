"""A target that answers for a whole cluster: ``python -m pyrometer_simulator.fleet.feed --port=9930 --nodes=511``.

Scraped with ``honor_labels: true``; ``/metrics`` has everything at this moment, ``/batches`` what came since the last
request, with timestamps.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from pyrometer_simulator.fleet.batches import batches
from pyrometer_simulator.fleet.plan import HEALTHY, Plan, alone, planted
from pyrometer_simulator.fleet.write import families, moment


class Feed:
    """The answers of planned clusters."""

    def __init__(self, *plans: Plan) -> None:
        self._plans = plans
        # What is lost has to be seen once before.
        self._families = [[families(each) for each in (replace(plan, faults=HEALTHY), plan)] for plan in plans]
        self._told = time.time()
        self._lock = Lock()

    def metrics(self) -> str:
        """Everything at this moment."""
        now = time.time()
        told = [each[now >= plan.faults.since] for plan, each in zip(self._plans, self._families, strict=True)]
        return "".join(line for each in told for line in moment(each, now))

    def batches(self) -> str:
        """The batches since the last time this was asked."""
        with self._lock:
            start, self._told = self._told, time.time()
            told = [each for plan in self._plans for each in batches(plan, start, self._told)]
            found = sorted(told, key=lambda each: each[0])
            return "".join(f"{series} {value} {at * 1000:.0f}\n" for series, value, at in found)


class FeedServer(ThreadingHTTPServer):
    """Serves a feed on loopback."""

    daemon_threads = True

    def __init__(self, feed: Feed, port: int = 0) -> None:
        self.feed = feed
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: FeedServer

    def do_GET(self) -> None:  # http.server's name
        feed = self.server.feed
        body = (feed.batches() if self.path.startswith("/batches") else feed.metrics()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a scrape every 15 s is no news."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.fleet.feed", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=511)
    parser.add_argument("--healthy", action="store_true", help="without the planted faults")
    parser.add_argument(
        "--alone",
        type=int,
        default=0,
        metavar="NODES",
        help="beside it a cluster of that size for each fault",
    )
    parser.add_argument("--faults-after", type=float, default=180.0, metavar="SECONDS", help="when the faults begin")
    flags = parser.parse_args(argv)
    since = time.time() + flags.faults_after
    faults = HEALTHY if flags.healthy else planted(flags.nodes, since)
    plans = [Plan(nodes=flags.nodes, faults=faults)]
    if flags.alone:
        plans += [Plan(flags.alone, cluster=name, faults=each) for name, each in alone(flags.alone, since).items()]
    server = FeedServer(Feed(*plans), flags.port)
    print(f"{sum(plan.nodes for plan in plans)} nodes on http://127.0.0.1:{server.server_port}/metrics", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
