"""Thanos above a pair, started with the commands of docs/howto/thanos.md."""

from __future__ import annotations

import contextlib
import time
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path

from pyrometer_kit.http_client import get_json
from pyrometer_simulator.alerts_told import Notifications, start_notifier
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.pair.history import SECONDS, History
from pyrometer_simulator.pair.pages import blocks
from pyrometer_simulator.pair.pair import REPLICAS, Pair
from pyrometer_simulator.shipped import project_folder
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.training_nodes import STEPS

PAGE = "docs/howto/thanos.md"
HTTP, GRPC = 10902, 10901
# In the order in which they start; "compact" runs once, when somebody asks.
PARTS = ("sidecar a", "sidecar b", "store", "query", "rule")
# By default the gateway looks for new blocks each 15 minutes.
SYNC = "--sync-block-duration=5s"


class Thanos:
    """A pair and all parts of Thanos, started in an empty folder; ``close`` ends them.

    Attributes:
        pair: the Prometheis, their nodes and their Alertmanager.
        query: what boards ask.
        other: the same with the other deduplication, to compare.
        told: what the ruler's Alertmanager told of; on the page it is the same one.
        bucket: the object store.
    """

    def __init__(self, folder: Path, stack: Stack, program: Path) -> None:
        self._program, self._stack = program, stack
        self._page = blocks(project_folder() / PAGE)
        names = ("sidecar-a", "sidecar-b", "store", "query", "rule", "compact", "other")
        with contextlib.ExitStack() as starting:
            self.told = starting.enter_context(contextlib.closing(Notifications()))
            self.pair = starting.enter_context(contextlib.closing(Pair(folder, stack, self._page, names)))
            self._teller = start_notifier(folder / "alertmanager-rule", stack, self.pair.processes, self.told)
            self.bucket = folder / "thanos/bucket"
            self.bucket.mkdir(parents=True)
            bucket = self.pair.hosts.local(self._page["bucket.yaml"], self._folders())
            (folder / "thanos/bucket.yaml").write_text(bucket)
            for part in PARTS:
                self._start(part)
            self._start("query", "other", lambda text: text.replace("=chain", "=penalty").replace("query:", "other:"))
            self.query, self.other = (self._prometheus(name) for name in ("query", "other"))
            self._ending = starting.pop_all()

    def close(self) -> None:
        """End everything."""
        self._ending.close()

    def command(self, part: str) -> list[str]:
        """Return the page's command for a part, with what is here for what it names."""
        return self._local(self._page[part])

    def lost_in_bucket(self, query: Prometheus, history: History) -> int:
        """Return how many of a history's batches are lost or twice in a query of the gateway to the bucket alone."""
        store = f'{{__address__="127.0.0.1:{self.pair.hosts.port("store", GRPC)}"}}'
        parameters = {
            "query": f'{STEPS}{{run="{history.run}"}}[{SECONDS + 60}s]',
            "time": f"{history.end:.3f}", "storeMatch[]": store,
        }  # fmt: skip
        try:
            found = get_json(f"{query.url}/api/v1/query?{urllib.parse.urlencode(parameters)}")["data"]["result"]
        except OSError:
            return history.count
        steps = [int(float(value)) for series in found for _, value in series["values"]]
        return len(set(range(history.count)) - set(steps)) + len(steps) - len(set(steps))

    def lost_by_deduplication(self, histories: Sequence[History], seconds: float) -> tuple[list[int], list[int]]:
        """Write histories that one replica has with a gap, and wait until both queries see them in the bucket.

        Returns:
            How many batches of each history ``query`` loses, and how many ``other``; after ``seconds`` at the latest.
        """
        for each in histories:
            for name in REPLICAS:
                each.write(self._stack.promtool, self.pair.data(name), gap=name == REPLICAS[0])
        deadline = time.monotonic() + seconds
        while True:
            kept, eaten = ([self.lost_in_bucket(by, each) for each in histories] for by in (self.query, self.other))
            # Each query asks the gateway for its time range every few seconds, and does not ask it outside of that.
            seen = all(lost < each.count for lost, each in zip(eaten, histories, strict=True))
            if (seen and not any(kept)) or time.monotonic() > deadline:
                return kept, eaten
            time.sleep(3.0)

    def counters(self) -> list[str]:
        """Return the names of all counters of the nodes."""
        parameters = urllib.parse.urlencode({"match[]": '{job="node"}'})
        names = get_json(f"{self.query.url}/api/v1/label/__name__/values?{parameters}")["data"]
        return [name for name in names if name.endswith("_total")]

    def _start(self, part: str, name: str = "", change: Callable[[str], str] = str) -> None:
        host = name or part.replace(" ", "-")
        command = [*self._local(change(self._page[part])), *([SYNC] if part == "store" else [])]
        self.pair.run(host, command, f"http://127.0.0.1:{self.pair.hosts.port(host, HTTP)}/-/ready")

    def _prometheus(self, name: str) -> Prometheus:
        return Prometheus(f"http://127.0.0.1:{self.pair.hosts.port(name, HTTP)}")

    def _folders(self) -> dict[str, Path]:
        folder = self.pair.folder
        here = {f"/prometheus-{name}": self.pair.data(name) for name in ("a", "b")}
        return {**here, "/thanos/": folder / "thanos", "/etc/pyrometer/rules": project_folder() / "alert_rules"}

    def _local(self, text: str) -> list[str]:
        text = text.replace("http://alertmanager:9093", f"http://127.0.0.1:{self._teller}")
        _, *flags = self.pair.hosts.command(text, self._folders())
        return [str(self._program), *flags, "--log.level=warn"]
