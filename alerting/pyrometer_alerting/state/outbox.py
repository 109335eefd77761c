"""The outbox table: what must be said in the channel, and how far each saying got.

One `root` row per incident is its message: `wanted` counts the changes, `sent` the last one delivered, so any number of
changes in between collapse into one call that shows the newest state. `reply` rows are thread replies with fixed text.

    ready -> sending -> done          the call had a clear answer
             sending -> lookup        nobody knows whether Slack has it: look before saying it again
             lookup  -> done | ready  found | not found twice
             sending -> dead          Slack will never take it, not even as plain text
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

_COLUMNS = (
    "op_id, incident_id, kind, state, since, not_before, wanted, sent, attempts, lookups, sent_at, posted_at,"
    " degrade, channel, ts, shown, body, error, target"
)


@dataclass(frozen=True)
class Operation:
    """One row. `shown` is the digest of what Slack shows, `degrade` how much was dropped to make Slack take it."""

    op_id: str
    incident_id: str
    kind: str
    state: str
    since: float
    not_before: float
    wanted: int
    sent: int
    attempts: int
    lookups: int
    sent_at: float | None
    posted_at: float | None
    degrade: int
    channel: str | None
    ts: str | None
    shown: str | None
    body: str | None
    error: str | None
    target: str

    @property
    def metadata(self) -> dict[str, str]:
        """What goes with the message, to find it again by."""
        return {"op_id": self.op_id, "incident_id": self.incident_id}


@dataclass(frozen=True)
class DuplicateCheck:
    """An operation that was posted twice, maybe: `ts` is the known one, `thread` the root's ts of a reply."""

    op_id: str
    channel: str
    ts: str
    thread: str | None
    oldest: float
    due: float


class Outbox:
    """Reads and writes of the table, inside the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def request(self, incident_id: str, now: float, not_before: float, target: str = "") -> None:
        """The incident changed: its message must be posted (in `target`) or edited, not before that time."""
        if self.root(incident_id) is None:
            self._insert(incident_id, "root", "done", now, not_before, wanted=0, body=None, target=target)
        self._db.execute(
            "UPDATE outbox SET wanted = wanted + 1,"
            " since = CASE WHEN state IN ('done', 'dead') THEN ? WHEN attempts = 0 THEN min(since, ?) ELSE since END,"
            " not_before = CASE WHEN state IN ('done', 'dead') THEN ? WHEN state = 'ready' AND attempts = 0"
            " THEN min(not_before, ?) ELSE not_before END,"
            " attempts = CASE WHEN state IN ('done', 'dead') THEN 0 ELSE attempts END,"
            " state = CASE WHEN state IN ('done', 'dead') THEN 'ready' ELSE state END"
            " WHERE incident_id = ? AND kind = 'root'",
            (not_before, not_before, not_before, not_before, incident_id),
        )

    def post_once(self, name: str, body: str, now: float) -> None:
        """Post a message of its own with fixed text, once: the same name is never said again."""
        if self.root(name) is None:
            self._insert(name, "root", "ready", now, now, wanted=1, body=body, target="")

    def edit_posted(self, op_id: str, body: str, now: float) -> None:
        """Edit a message of its own that the channel has: it says something else now."""
        self._db.execute(
            "UPDATE outbox SET body = ?, wanted = wanted + 1, state = 'ready', since = ?, not_before = ?, degrade = 0"
            " WHERE op_id = ? AND state = 'done'",
            (body, now, now, op_id),
        )

    def posted_since(self, time: float) -> list[Operation]:
        """Messages of their own that the channel has since then."""
        found = "kind = 'root' AND body IS NOT NULL AND state = 'done' AND ts IS NOT NULL AND posted_at >= ?"
        return list(self._select(found, time))

    def reply(self, incident_id: str, body: str, now: float) -> None:
        """Say something in the thread; replaces a reply that nobody has tried to send yet (last write wins)."""
        self._db.execute(
            "DELETE FROM outbox WHERE incident_id = ? AND kind = 'reply' AND state = 'ready' AND attempts = 0",
            (incident_id,),
        )
        root = self.root(incident_id)
        target = "" if root is None else root.target
        self._insert(incident_id, "reply", "ready", now, now, wanted=1, body=body, target=target)

    def _insert(
        self,
        incident_id: str,
        kind: str,
        state: str,
        since: float,
        not_before: float,
        *,
        wanted: int,
        body: str | None,
        target: str,
    ) -> None:
        self._db.execute(
            "INSERT INTO outbox (op_id, incident_id, kind, state, since, not_before, wanted, sent, attempts, lookups,"
            " degrade, body, target) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, ?, ?)",
            (uuid.uuid4().hex, incident_id, kind, state, since, not_before, wanted, body, target),
        )

    def due(self) -> list[Operation]:
        """What is to do, oldest first: the root of a message before its replies, and one reply of a thread at a time.

        At most 500: the loop comes back for the rest.
        """
        rows = self._select(
            "state IN ('ready', 'lookup') AND (kind = 'root' OR (EXISTS (SELECT 1 FROM outbox AS root"
            " WHERE root.incident_id = outbox.incident_id AND root.kind = 'root' AND root.ts IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM outbox AS older WHERE older.incident_id = outbox.incident_id"
            " AND older.kind = 'reply' AND older.seq < outbox.seq AND older.state IN ('ready', 'sending', 'lookup'))))"
            " ORDER BY not_before, seq LIMIT 500"
        )
        return list(rows)

    def root(self, incident_id: str) -> Operation | None:
        """The message of an incident."""
        return next(self._select("incident_id = ? AND kind = 'root'", incident_id), None)

    def is_posted(self, incident_id: str) -> bool:
        """Whether the channel has the incident's message, or may have it."""
        root = self.root(incident_id)
        return root is not None and (root.ts is not None or root.state in ("sending", "lookup"))

    def get(self, op_id: str) -> Operation | None:
        """One operation."""
        return next(self._select("op_id = ?", op_id), None)

    def start(self, op_id: str, now: float, target: str) -> None:
        """About to call Slack for that channel. Committed before the call, so that a crash in it is known afterwards.

        The first time counts: what is looked for later may be as old as that.
        """
        self._db.execute(
            "UPDATE outbox SET state = 'sending', sent_at = CASE WHEN ts IS NULL THEN coalesce(sent_at, ?) ELSE ? END,"
            " attempts = attempts + 1, target = ? WHERE op_id = ?",
            (now, now, target, op_id),
        )

    def finish(self, operation: Operation, channel: str, ts: str, shown: str, now: float) -> None:
        """Slack has the state `operation.wanted`; ready again at once if more has changed since."""
        self._db.execute(
            "UPDATE outbox SET sent = ?, state = CASE WHEN wanted > ? THEN 'ready' ELSE 'done' END, channel = ?,"
            " ts = ?, shown = ?, posted_at = coalesce(posted_at, ?), attempts = 0, lookups = 0, not_before = ?,"
            " since = CASE WHEN wanted > ? THEN ? ELSE since END, error = NULL WHERE op_id = ?",
            (operation.wanted, operation.wanted, channel, ts, shown, now, now, operation.wanted, now, operation.op_id),
        )

    def adopt(self, operation: Operation, channel: str, ts: str, now: float) -> None:
        """Our message was found in the channel. A root is edited once more: it may show an older state."""
        done = operation.kind == "reply"
        self._db.execute(
            "UPDATE outbox SET state = ?, channel = ?, ts = ?, posted_at = coalesce(posted_at, ?), shown = NULL,"
            " attempts = 0, lookups = 0, not_before = ?, error = NULL WHERE op_id = ?",
            ("done" if done else "ready", channel, ts, now, now, operation.op_id),
        )

    def postpone(self, op_id: str, until: float) -> None:
        """It may not be said before then (quiet hours): that is no waiting for Slack."""
        self._db.execute(
            "UPDATE outbox SET not_before = ?, since = ?, error = 'quiet hours' WHERE op_id = ?", (until, until, op_id)
        )

    def retry_at(self, op_id: str, not_before: float, error: str, *, refund: bool = False) -> None:
        """Try again then; `refund` when the attempt does not count (rate limits)."""
        self._db.execute(
            "UPDATE outbox SET state = 'ready', not_before = ?, error = ?, attempts = attempts - ? WHERE op_id = ?",
            (not_before, error, int(refund), op_id),
        )

    def look_up_at(self, op_id: str, not_before: float, error: str, lookups: int) -> None:
        """Look for the message in the channel then; `lookups` were done already."""
        self._db.execute(
            "UPDATE outbox SET state = 'lookup', not_before = ?, error = ?, lookups = ? WHERE op_id = ?",
            (not_before, error, lookups, op_id),
        )

    def degrade(self, op_id: str, level: int, error: str, now: float) -> None:
        """Slack refused the content: try with less of it."""
        self._db.execute(
            "UPDATE outbox SET state = 'ready', degrade = ?, error = ?, not_before = ? WHERE op_id = ?",
            (level, error, now, op_id),
        )

    def restore(self, op_id: str) -> None:
        """What was dropped may be shown again: it is known now what Slack would not take."""
        self._db.execute("UPDATE outbox SET degrade = 0 WHERE op_id = ?", (op_id,))

    def give_up(self, op_id: str, error: str) -> None:
        """Give up on this content; a later change of the incident tries again."""
        self._db.execute("UPDATE outbox SET state = 'dead', error = ?, degrade = 0 WHERE op_id = ?", (error, op_id))

    def renew(self, operation: Operation, now: float) -> None:
        """The message was deleted in the channel: post it anew, under a new id."""
        self._db.execute(
            "UPDATE outbox SET op_id = ?, state = 'ready', ts = NULL, shown = NULL, not_before = ?, lookups = 0"
            " WHERE op_id = ?",
            (uuid.uuid4().hex, now, operation.op_id),
        )

    def drop_replies(self, incident_id: str) -> None:
        """The message is being posted with the newest state: older news for its thread is no news."""
        self._db.execute(
            "UPDATE outbox SET state = 'done' WHERE incident_id = ? AND kind = 'reply' AND state = 'ready'",
            (incident_id,),
        )

    def hasten(self, incident_id: str, now: float) -> None:
        """Do not wait any longer for a diagnosis before the first post."""
        self._db.execute(
            "UPDATE outbox SET not_before = min(not_before, ?) WHERE incident_id = ? AND kind = 'root'"
            " AND state = 'ready' AND attempts = 0",
            (now, incident_id),
        )

    def cap_waits(self, now: float, later_than: float) -> None:
        """Nothing waits for a time later than that."""
        self._db.execute(
            "UPDATE outbox SET not_before = ? WHERE state IN ('ready', 'lookup') AND not_before > ?", (now, later_than)
        )

    def abandon(self, channel: str) -> None:
        """Messages of that channel are out of reach: what is still to say is said anew elsewhere."""
        self._db.execute("UPDATE outbox SET channel = NULL, ts = NULL, shown = NULL WHERE channel = ?", (channel,))

    def plan_duplicate_check(self, op_id: str, channel: str, ts: str, oldest: float, due: float) -> None:
        """Look then whether this operation is in the channel twice; the one with this ts is the known one."""
        thread = self._db.execute(
            "SELECT root.ts FROM outbox JOIN outbox AS root ON root.incident_id = outbox.incident_id"
            " AND root.kind = 'root' WHERE outbox.op_id = ? AND outbox.kind = 'reply'",
            (op_id,),
        ).fetchone()
        self._db.execute(
            "INSERT OR REPLACE INTO sweep VALUES (?, ?, ?, ?, ?, ?)",
            (op_id, channel, ts, thread[0] if thread else None, oldest, due),
        )

    def duplicate_checks(self) -> list[DuplicateCheck]:
        """What is to be looked through, soonest first."""
        rows = self._db.execute("SELECT op_id, channel, ts, thread, oldest, due FROM sweep ORDER BY due")
        return [DuplicateCheck(*row) for row in rows]

    def repeat_duplicate_check(self, op_id: str, due: float) -> None:
        """It could not be looked through."""
        self._db.execute("UPDATE sweep SET due = ? WHERE op_id = ?", (due, op_id))

    def finish_duplicate_check(self, op_id: str) -> None:
        """It is in the channel once."""
        self._db.execute("DELETE FROM sweep WHERE op_id = ?", (op_id,))

    def dead(self) -> list[Operation]:
        """What Slack refused for good, oldest first."""
        return list(self._select("state = 'dead' ORDER BY seq"))

    def replay(self, op_id: str, now: float) -> bool:
        """Try a dead operation again from the start; whether there was one."""
        changed = self._db.execute(
            "UPDATE outbox SET state = 'ready', not_before = ?, since = ?, attempts = 0, degrade = 0, lookups = 0"
            " WHERE op_id = ? AND state = 'dead'",
            (now, now, op_id),
        )
        return changed.rowcount > 0

    def interrupted(self) -> list[Operation]:
        """What was being sent when the process died."""
        return list(self._select("state = 'sending'"))

    def depth(self) -> tuple[int, float | None, int]:
        """(operations open, since when the oldest waits, operations dead)."""
        count, oldest = self._db.execute(
            "SELECT count(*), min(since) FROM outbox WHERE state IN ('ready', 'sending', 'lookup')"
        ).fetchone()
        dead = self._db.execute("SELECT count(*) FROM outbox WHERE state = 'dead'").fetchone()[0]
        return int(count), oldest, int(dead)

    def _select(self, condition: str, *values: str | float) -> Iterator[Operation]:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM outbox WHERE {condition}", values)  # noqa: S608 - our own text
        return (Operation(*row) for row in rows)
