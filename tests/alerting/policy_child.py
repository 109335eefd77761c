"""Kills the policy's look with SIGKILL at each of its steps in turn, lets the next one finish, and prints what is true.

A step is before, inside and after each change of the database, and before and after the effect of each call to the
scheduler. One line of JSON for each kill: what was called, the state of the node, and of the records.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import Any

from pyrometer_alerting.incidents.storage.actions import Action
from pyrometer_alerting.incidents.storage.store import Store, Transaction
from pyrometer_alerting.policy import drain_webhook
from pyrometer_alerting.policy.executor import SETTLE_SECONDS
from pyrometer_alerting.policy.rules import Back, WebhookSettings
from pyrometer_simulator.http_server import HttpServer, Request, Response

_spec = util.spec_from_file_location("alerting_policy_fakes", Path(__file__).with_name("policy_fakes.py"))
assert _spec is not None
assert _spec.loader is not None
fakes = util.module_from_spec(_spec)
sys.modules["alerting_policy_fakes"] = fakes
_spec.loader.exec_module(fakes)

START = 1_795_300_000.0


class Clock:
    def __init__(self, now: float) -> None:
        self.time = now

    def wall(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


class Points:
    def __init__(self, last: int) -> None:
        self._left = last

    def passed(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def look(folder: Path, now: float, kill_at: int, play: str) -> bool:
    """Look once in a child of its own; return whether it lived."""
    child = os.fork()
    if child == 0:
        _look(folder, now, Points(kill_at), play)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _look(folder: Path, now: float, points: Points, play: str) -> None:
    transaction = Store.transaction

    @contextmanager
    def watched(store: Store) -> Iterator[Transaction]:
        points.passed()
        with transaction(store) as tx:
            yield tx
            points.passed()
        points.passed()

    Store.transaction = watched  # type: ignore[method-assign]
    scheduler = fakes.FileScheduler(folder / "truth")
    scheduler.point = points.passed
    found = fakes.Findings(["n3"] if play != "return" else [])
    if play == "return":
        found.passed["n3"] = START + 1000
    chosen = fakes.policy(back=Back(("nccl",), "return"))
    if play == "webhook":
        desk = WebhookSettings((folder / "desk").read_text())
        chosen = replace(fakes.policy(do="webhook"), webhook=desk)
        post = drain_webhook.post

        def watched_post(settings: WebhookSettings, action: Action) -> None:
            points.passed()
            post(settings, action)
            points.passed()

        drain_webhook.post = watched_post
    store = Store(folder / "store")
    fakes.worker_of(store, scheduler, found, Clock(now), chosen).step()


def played(kill_at: int, play: str) -> tuple[dict[str, Any], bool]:
    """Play one kill; return what is true afterwards, and whether the look was over before that step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scheduler = fakes.FileScheduler(folder / "truth", count=20)
        told: list[str] = []

        def take(request: Request) -> Response:
            told.append(request.headers["Idempotency-Key"])
            return Response(b"")

        server = HttpServer(take).start()
        (folder / "desk").write_text(f"{server.url}/")
        now = START
        if play == "return":
            assert look(folder, now, 0, "drain")
            now += 2000
        is_over = look(folder, now, kill_at, play)
        if play == "resumed":  # by a person, while the service is down
            scheduler.by_hand("n3", held=False)
        for _ in range(4):
            now += SETTLE_SECONDS + 1
            assert look(folder, now, 0, play)
        store = Store(folder / "store")
        with store.snapshot() as tx:
            # One that never reached the scheduler was decided on again.
            kept = [each for each in reversed(tx.actions.newest()) if each.state != "lost"]
            records = [(each.kind, each.state) for each in kept]
            posts = [each.body or "" for each in tx.outbox.due()]
        store.close()
        server.stop()
        truth = {
            "at": kill_at, "drains": scheduler.calls(), "resumes": scheduler.calls("resume"), "records": records,
            "held": scheduler.nodes()["n3"].held, "posts": len(posts), "over": is_over,
            "told": told,
        }  # fmt: skip
        return truth, is_over


def main() -> None:
    for kill_at in range(1, 200):
        truth, is_over = played(kill_at, sys.argv[1])
        sys.stdout.write(json.dumps(truth) + "\n")
        if is_over:
            return


if __name__ == "__main__":
    main()
