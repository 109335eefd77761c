"""Forks the real service again and again, as fast as a kill deserves, from a process that has imported it all already.

A line of JSON on stdin starts one: its arguments, and after how many points of the outbox it shall kill itself (before
and after each transaction, each file of the inbox and each call to Slack; 0 is never). The line `end` kills it and
answers when it is gone; `pause` and `go on` stop and continue it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyrometer_alerting.app import main
from pyrometer_alerting.channel import courier as outbox
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.inbox import Inbox, Letter, SharedInbox
from pyrometer_alerting.incidents.storage import outbox as operations
from pyrometer_alerting.incidents.storage.store import Store, Transaction

# As in the service, scaled: a look 0.2 s and another 0.5 s after a doubtful post instead of 2 s and 10 s.
TIMING = {
    "first_look": 0.2, "second_look": 0.5, "probe": 0.5, "backoff": 0.1, "backoff_limit": 0.5, "idle": 0.2, "sweep": 2,
}  # fmt: skip


CALLS_SECONDS = 1.0  # of a message's six calls, instead of ten minutes


class Points:
    """Counts the points of the outbox and dies at the one that was drawn."""

    def __init__(self, last: int) -> None:
        self._left = last

    def passed(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        transaction, call = Store.transaction, WebSlack._call

        @contextmanager
        def watched(store: Store, *, aside: bool = False) -> Iterator[Transaction]:
            self.passed()
            with transaction(store, aside=aside) as tx:
                yield tx
                self.passed()
            self.passed()

        def called(slack: WebSlack, ask: Any) -> Any:
            self.passed()
            answer = call(slack, ask)
            self.passed()
            return answer

        for post in (Inbox, SharedInbox):
            self.watch(post)
        Store.transaction = watched  # type: ignore[method-assign]
        WebSlack._call = called  # type: ignore[method-assign]

    def watch(self, post: Any) -> None:
        put, remove = post.put, post.remove

        def kept(inbox: Any, body: bytes, now: float) -> Letter:
            self.passed()
            letter = put(inbox, body, now)
            self.passed()
            return letter

        def removed(inbox: Any, letter: Letter) -> None:
            self.passed()
            remove(inbox, letter)
            self.passed()

        post.put, post.remove = kept, removed


def serve(request: dict[str, Any]) -> int:
    """In the child: the whole service, until it is killed."""
    os.close(0)
    outbox.Timing = partial(outbox.Timing, **TIMING)  # type: ignore[misc,assignment]
    operations.CALLS_SECONDS = CALLS_SECONDS
    Points(request["points"]).install()
    return main.run(request["arguments"], {"PYROMETER_SLACK_BOT_TOKEN": "xoxb-test", **request.get("environment", {})})


def loop() -> None:
    child = 0
    for line in sys.stdin:
        if line.strip() == "end":
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                child = 0
        elif line.strip() in ("pause", "go on"):
            if child:
                os.kill(child, signal.SIGSTOP if line.strip() == "pause" else signal.SIGCONT)
        else:
            child = os.fork()
            if child == 0:
                os._exit(serve(json.loads(line)))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    loop()
