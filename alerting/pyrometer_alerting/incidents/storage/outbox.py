"""The outbox table: what must be posted to the channel, and how far each operation got.

One `root` row per incident is its message: `wanted` counts the changes, `sent` the last one delivered, so any number of
changes in between collapse into one call that shows the newest state. `reply` rows are thread replies with fixed text;
the one without a text is the thread's first, with the evidence, which follows the message and is edited as it is.
Other outlets (a pager, e-mail) have roots of their own in the same table, requested in the same transaction; `outlet`
is empty for Slack.

    ready -> sending -> done          the call had a clear answer
             sending -> lookup        unknown whether Slack has it: look it up before posting again
             lookup  -> done | ready  found | not found twice
             sending -> dead          Slack refused it for good, even as plain text
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from pyrometer_alerting.incidents.storage.engine import Connection
from pyrometer_alerting.incidents.storage.operation import COLUMNS, OUR_LIMIT, QUIET, DuplicateCheck, Operation

# A message and the replies in its thread ping people: this many of them in ten minutes, what comes beyond waits. Edits
# ping nobody and don't count, and what must be told at once never waits. Five seconds more, as one call may take longer
# to arrive than another. An outlet's notices all ping, and it gets MOST_NOTICES.
MOST_PINGS, MOST_NOTICES, CALLS_SECONDS = 3, 6, 605.0
# A reply that need not be kept and that no attempt was made to send. `|| ''`: by the incident's index, not through all
# that is ready, of which there may be thousands.
_DROPPABLE = (
    "incident_id = ? AND kind = 'reply' AND state || '' = 'ready' AND attempts = 0 AND body NOT LIKE '%\"kept\": true%'"
)
# An operation that Slack did not refuse waits since it may be sent: edits are spaced, held replies wished for before.
_IS_HELD = f"coalesce(error, '') IN ('{QUIET}', '{OUR_LIMIT}')"
_IS_OURS = f"(sent_at IS NULL OR error IS NULL OR {_IS_HELD})"
_WAITS_SINCE = f"CASE WHEN {_IS_OURS} AND not_before > since THEN not_before ELSE since END"


class Outbox:
    """Reads and writes of one outlet's rows, Slack's by default, inside the caller's transaction."""

    def __init__(self, connection: Connection, others: Iterable[str] = (), outlet: str = "") -> None:
        """Pass on what is requested of messages to the `others`."""
        self._db, self._outlet = connection, outlet
        self._others = tuple(Outbox(connection, outlet=name) for name in others)

    def request(self, incident_id: str, now: float, not_before: float, target: str = "") -> None:
        """Request that the changed incident's message is posted (in `target`) or edited, not before that time."""
        if self.root(incident_id) is None:
            self._insert(incident_id, "root", "done", now, not_before, wanted=0, body=None, target=target)
        self._db.execute(
            "UPDATE outbox SET wanted = wanted + 1,"
            " since = CASE WHEN state IN ('done', 'dead') OR attempts = 0 AND since > ? THEN ? ELSE since END,"
            " not_before = CASE WHEN state IN ('done', 'dead') OR state = 'ready' AND attempts = 0 AND not_before > ?"
            " THEN ? ELSE not_before END,"
            " attempts = CASE WHEN state IN ('done', 'dead') THEN 0 ELSE attempts END,"
            " state = CASE WHEN state IN ('done', 'dead') THEN 'ready' ELSE state END"
            " WHERE incident_id = ? AND kind = 'root' AND outlet = ?",
            (not_before, not_before, not_before, not_before, incident_id, self._outlet),
        )
        self.request_others(incident_id, now, not_before)

    def request_others(self, incident_id: str, now: float, not_before: float) -> None:
        """Request that all outlets but this one report the changed incident, not before that time."""
        for other in self._others:
            other.request(incident_id, now, not_before)

    def refresh(self, incident_id: str, now: float, spacing: float, target: str = "") -> None:
        """Request an edit that nobody waits for: so many seconds after the last call on the message at the earliest."""
        root = self.root(incident_id)
        last = root.sent_at if root is not None and root.sent_at is not None else now - spacing
        self.request(incident_id, now, max(min(last, now) + spacing, now), target)

    def follow(self, incident_id: str, now: float, wait: float = 0.0) -> None:
        """Have the evidence in the thread posted, or compared with what it shows: the message was just delivered.

        The first time it waits for so many seconds.
        """
        root = self.root(incident_id)
        shown = next(self._select("incident_id = ? AND kind = 'reply' AND body IS NULL", incident_id), None)
        if shown is None:
            target = "" if root is None else root.target
            self._insert(incident_id, "reply", "ready", now, now + wait, wanted=1, body=None, target=target)
            return
        self._db.execute(
            "UPDATE outbox SET wanted = wanted + 1,"
            " since = CASE WHEN state IN ('done', 'dead') THEN ? ELSE since END,"
            " not_before = CASE WHEN state IN ('done', 'dead') THEN ? ELSE not_before END,"
            " state = CASE WHEN state IN ('done', 'dead') THEN 'ready' ELSE state END"
            " WHERE incident_id = ? AND kind = 'reply' AND body IS NULL AND outlet = ?",
            (now, max(now, shown.edit_again_at), incident_id, self._outlet),
        )

    def discard(self, incident_id: str) -> None:
        """Forget the message of an incident that nobody has seen."""
        self._db.execute("DELETE FROM outbox WHERE incident_id = ? AND outlet = ?", (incident_id, self._outlet))

    def free_at(self, incident_id: str, now: float) -> float:
        """Return when one more ping about an incident is within the limit of CALLS_SECONDS."""
        most = MOST_NOTICES if self._outlet else MOST_PINGS
        rows = self._db.execute(
            "SELECT at FROM slack_call WHERE incident_id = ? AND at > ? AND at <= ? ORDER BY at DESC LIMIT ?",
            (self._budget(incident_id), now - CALLS_SECONDS, now, most),
        )
        made = [float(at) for (at,) in rows]
        return now if len(made) < most else made[-1] + CALLS_SECONDS

    def note_call(self, incident_id: str, now: float) -> None:
        """Record a call that pings people: a post, a reply, or a notice of an outlet."""
        self._db.execute("DELETE FROM slack_call WHERE at <= ?", (now - CALLS_SECONDS,))
        self._db.execute("INSERT INTO slack_call (incident_id, at) VALUES (?, ?)", (self._budget(incident_id), now))

    def _budget(self, incident_id: str) -> str:
        return f"{self._outlet}/{incident_id}" if self._outlet else incident_id

    def post_once(self, name: str, body: str, now: float, target: str = "") -> None:
        """Post a standalone message with fixed text, in `target`; a name that was used before is ignored."""
        if self.root(name) is None:
            self._insert(name, "root", "ready", now, now, wanted=1, body=body, target=target)

    def edit_posted(self, op_id: str, body: str, now: float) -> None:
        """Replace the text of a standalone message that was posted."""
        self._db.execute(
            "UPDATE outbox SET body = ?, wanted = wanted + 1, state = 'ready', since = ?, not_before = ?, degrade = 0"
            " WHERE op_id = ? AND state = 'done'",
            (body, now, now, op_id),
        )

    def posted_since(self, time: float) -> list[Operation]:
        """Return the standalone messages posted since then."""
        condition = "kind = 'root' AND body IS NOT NULL AND state = 'done' AND ts IS NOT NULL AND posted_at >= ?"
        return list(self._select(condition, time))

    def reply(self, incident_id: str, body: str, now: float, not_before: float = 0.0) -> None:
        """Add a reply to the thread, now or at a later time; until then it does not count as waiting for Slack.

        It replaces a reply that no attempt was made to send yet (last write wins), but none that must be told.
        """
        since = min([now, *(reply.since for reply in self._select(_DROPPABLE, incident_id))])
        self.drop_waiting(incident_id)
        root = self.root(incident_id)
        target = "" if root is None else root.target
        at = max(now, not_before)
        self._insert(incident_id, "reply", "ready", since, at, wanted=1, body=body, target=target)

    def drop_waiting(self, incident_id: str) -> bool:
        """Drop a reply that need not be kept and that no attempt was made to send; return whether there was one."""
        dropped = self._db.execute(f"DELETE FROM outbox WHERE {_DROPPABLE}", (incident_id,))  # noqa: S608 - a constant
        return dropped.rowcount > 0

    def tells(self, incident_id: str) -> bool:
        """Return whether a reply that must be told is about to be sent."""
        return any(self._select(_DROPPABLE.replace("NOT LIKE", "LIKE"), incident_id))

    def held(self, now: float) -> list[Operation]:
        """Return what our own limit or quiet hours hold back, by when it was first wished for."""
        is_reply = "kind = 'reply' AND attempts = 0 AND body IS NOT NULL"
        held = f"state = 'ready' AND not_before > ? AND ({is_reply} OR {_IS_HELD})"
        return sorted(self._select(held, now), key=lambda operation: operation.since)

    def reasons(self, now: float) -> list[str]:
        """Return why the last attempts of what waits have failed, by code, three at most."""
        waiting = f"state IN ('ready', 'lookup') AND error IS NOT NULL AND {_WAITS_SINCE} <= ?"
        query = f"SELECT DISTINCT error FROM outbox WHERE outlet = ? AND {waiting} ORDER BY error LIMIT 3"  # noqa: S608
        rows = self._db.execute(query, (self._outlet, now))
        return [str(error) for (error,) in rows]

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
            " degrade, body, target, outlet) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, ?, ?, ?)",
            (uuid.uuid4().hex, incident_id, kind, state, since, not_before, wanted, body, target, self._outlet),
        )

    def due(self) -> list[Operation]:
        """Return the pending operations, oldest first: a root before its replies, one reply of a thread at a time.

        At most 500: the loop comes back for the rest.
        """
        rows = self._select(
            "state IN ('ready', 'lookup') AND (kind = 'root' OR (EXISTS (SELECT 1 FROM outbox AS root"
            " WHERE root.incident_id = outbox.incident_id AND root.kind = 'root' AND root.outlet = outbox.outlet"
            " AND root.ts IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM outbox AS older WHERE older.incident_id = outbox.incident_id"
            " AND older.kind = 'reply' AND older.body IS NOT NULL AND older.seq < outbox.seq"
            " AND older.state IN ('ready', 'sending', 'lookup'))))"
            " ORDER BY not_before, seq LIMIT 500"
        )
        return list(rows)

    def root(self, incident_id: str) -> Operation | None:
        """Return the operation of an incident's message."""
        return next(self._select("incident_id = ? AND kind = 'root'", incident_id), None)

    def is_posted(self, incident_id: str) -> bool:
        """Return whether the channel has the incident's message, or may have it."""
        root = self.root(incident_id)
        return root is not None and (root.ts is not None or root.state in ("sending", "lookup"))

    def is_reported(self, incident_id: str) -> bool:
        """Return whether any other outlet has heard of the incident, or may have."""
        roots = (other.root(incident_id) for other in self._others)
        return any(root is not None and root.sent_at is not None for root in roots)

    def get(self, op_id: str) -> Operation | None:
        """Return one operation."""
        return next(self._select("op_id = ?", op_id), None)

    def start(self, op_id: str, now: float, target: str) -> None:
        """Mark it as being sent to that channel; commit this before the call, so that a crash during it is known.

        The first time is kept: a later lookup must go back that far.
        """
        self._db.execute(
            f"UPDATE outbox SET state = 'sending', since = {_WAITS_SINCE},"  # noqa: S608 - a constant
            " sent_at = CASE WHEN ts IS NULL THEN coalesce(sent_at, ?) ELSE ? END,"
            " attempts = attempts + 1, target = ? WHERE op_id = ?",
            (now, now, target, op_id),
        )

    def finish(self, operation: Operation, channel: str, ts: str, shown: str, now: float) -> None:
        """Record that Slack has the state `operation.wanted`; it is ready again at once if more has changed since."""
        self._db.execute(
            "UPDATE outbox SET sent = ?, state = CASE WHEN wanted > ? THEN 'ready' ELSE 'done' END, channel = ?,"
            " ts = ?, shown = ?, posted_at = coalesce(posted_at, ?), attempts = 0, lookups = 0, not_before = ?,"
            " since = CASE WHEN wanted > ? THEN ? ELSE since END, error = NULL WHERE op_id = ?",
            (operation.wanted, operation.wanted, channel, ts, shown, now, now, operation.wanted, now, operation.op_id),
        )

    def adopt(self, operation: Operation, channel: str, ts: str, now: float) -> None:
        """Record that our message was found in the channel; a root is edited once more, it may show an older state."""
        done = operation.kind == "reply" and not operation.is_evidence
        self._db.execute(
            "UPDATE outbox SET state = ?, channel = ?, ts = ?, posted_at = coalesce(posted_at, ?), shown = NULL,"
            " attempts = 0, lookups = 0, not_before = ?, error = NULL WHERE op_id = ?",
            ("done" if done else "ready", channel, ts, now, now, operation.op_id),
        )

    def skip(self, operation: Operation) -> None:
        """Record that the outlet need not be sent the state `operation.wanted`; what changed since is looked at."""
        self._db.execute(
            "UPDATE outbox SET sent = ?, state = CASE WHEN wanted > ? THEN 'ready' ELSE 'done' END, attempts = 0,"
            " error = NULL WHERE op_id = ?",
            (operation.wanted, operation.wanted, operation.op_id),
        )

    def postpone(self, op_id: str, until: float, why: str) -> None:
        """Hold it for QUIET or OUR_LIMIT until then; that time does not count as waiting for Slack."""
        self._db.execute("UPDATE outbox SET not_before = ?, error = ? WHERE op_id = ?", (until, why, op_id))

    def retry_at(self, op_id: str, not_before: float, error: str, *, refund: bool = False) -> None:
        """Retry it at that time; `refund` if the attempt does not count (rate limits)."""
        self._db.execute(
            "UPDATE outbox SET state = 'ready', not_before = ?, error = ?, attempts = attempts - ? WHERE op_id = ?",
            (not_before, error, int(refund), op_id),
        )

    def look_up_at(self, op_id: str, not_before: float, error: str, lookups: int) -> None:
        """Look for the message in the channel at that time; `lookups` were done already."""
        self._db.execute(
            "UPDATE outbox SET state = 'lookup', not_before = ?, error = ?, lookups = ? WHERE op_id = ?",
            (not_before, error, lookups, op_id),
        )

    def degrade(self, op_id: str, level: int, error: str, now: float) -> None:
        """Retry with less content, since Slack refused it."""
        self._db.execute(
            "UPDATE outbox SET state = 'ready', degrade = ?, error = ?, not_before = ? WHERE op_id = ?",
            (level, error, now, op_id),
        )

    def restore(self, op_id: str) -> None:
        """Show everything again, now that the reason of the refusal is known."""
        self._db.execute("UPDATE outbox SET degrade = 0 WHERE op_id = ?", (op_id,))

    def give_up(self, op_id: str, error: str) -> None:
        """Give up on this content; a later change of the incident tries again."""
        self._db.execute("UPDATE outbox SET state = 'dead', error = ?, degrade = 0 WHERE op_id = ?", (error, op_id))

    def renew(self, operation: Operation, now: float) -> None:
        """Post the message again under a new id, since it was deleted in the channel; its thread is gone with it."""
        self._db.execute(
            "UPDATE outbox SET op_id = ?, state = 'ready', ts = NULL, shown = NULL, not_before = ?, lookups = 0"
            " WHERE op_id = ?",
            (uuid.uuid4().hex, now, operation.op_id),
        )
        if operation.kind == "root":
            self._db.execute(
                "DELETE FROM outbox WHERE incident_id = ? AND kind = 'reply' AND body IS NULL AND outlet = ?",
                (operation.incident_id, self._outlet),
            )

    def drop_replies(self, incident_id: str) -> None:
        """Drop pending replies: the message is about to be posted with the newest state."""
        self._db.execute(
            "UPDATE outbox SET state = 'done' WHERE incident_id = ? AND kind = 'reply' AND state || '' = 'ready'"
            " AND body IS NOT NULL",
            (incident_id,),
        )

    def hasten(self, incident_id: str, now: float) -> None:
        """Stop waiting for a diagnosis before the first post."""
        self._db.execute(
            "UPDATE outbox SET not_before = ? WHERE incident_id = ? AND kind = 'root' AND not_before > ?"
            " AND state || '' = 'ready' AND attempts = 0 AND ts IS NULL",  # of Slack and of all outlets
            (now, incident_id, now),
        )

    def cap_waits(self, now: float, later_than: float) -> None:
        """Cap all waiting times at `later_than`."""
        self._db.execute(
            "UPDATE outbox SET not_before = ? WHERE outlet = ? AND state IN ('ready', 'lookup') AND not_before > ?",
            (now, self._outlet, later_than),
        )

    def abandon(self, channel: str) -> None:
        """Post again elsewhere whatever is pending for messages of this channel, which is out of reach."""
        self._db.execute("UPDATE outbox SET channel = NULL, ts = NULL, shown = NULL WHERE channel = ?", (channel,))

    def plan_duplicate_check(self, op_id: str, channel: str, ts: str, oldest: float, due: float) -> None:
        """Plan a check whether this operation was posted twice; the post with this ts is the known one."""
        thread = self._db.execute(
            "SELECT root.ts FROM outbox JOIN outbox AS root ON root.incident_id = outbox.incident_id"
            " AND root.kind = 'root' AND root.outlet = outbox.outlet WHERE outbox.op_id = ? AND outbox.kind = 'reply'",
            (op_id,),
        ).fetchone()
        self._db.execute(
            "INSERT INTO sweep (op_id, channel, ts, thread, oldest, due) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (op_id) DO UPDATE SET channel = excluded.channel, ts = excluded.ts, thread = excluded.thread,"
            " oldest = excluded.oldest, due = excluded.due",
            (op_id, channel, ts, thread[0] if thread else None, oldest, due),
        )

    def note_stray(self, operation: Operation, ts: str, now: float) -> None:
        """Note a call that came after another process had taken over: its post may be a second one, its edit old."""
        current = self.get(operation.op_id)
        if current is None or current.ts is None:
            return  # it is being looked up, and found
        if operation.ts is not None:
            self._db.execute("UPDATE outbox SET shown = NULL WHERE op_id = ?", (operation.op_id,))
            self.request(operation.incident_id, now, now, operation.target)
        elif current.ts != ts:
            oldest = min(filter(None, (operation.sent_at, current.sent_at)), default=now)
            self.plan_duplicate_check(operation.op_id, current.channel or "", current.ts, oldest, now)

    def duplicate_checks(self) -> list[DuplicateCheck]:
        """Return the planned checks, soonest first."""
        rows = self._db.execute("SELECT op_id, channel, ts, thread, oldest, due FROM sweep ORDER BY due")
        return [DuplicateCheck(*row) for row in rows]

    def repeat_duplicate_check(self, op_id: str, due: float) -> None:
        """Repeat a check that failed."""
        self._db.execute("UPDATE sweep SET due = ? WHERE op_id = ?", (due, op_id))

    def finish_duplicate_check(self, op_id: str) -> None:
        """Remove a check that is done."""
        self._db.execute("DELETE FROM sweep WHERE op_id = ?", (op_id,))

    def dead(self) -> list[Operation]:
        """Return what Slack or another outlet refused for good, oldest first."""
        rows = self._db.execute(f"SELECT {COLUMNS} FROM outbox WHERE state = 'dead' ORDER BY seq")  # noqa: S608
        return [Operation(*row) for row in rows]

    def replay(self, op_id: str, now: float) -> bool:
        """Retry a dead operation from the start; return False if there was none."""
        changed = self._db.execute(
            "UPDATE outbox SET state = 'ready', not_before = ?, since = ?, attempts = 0, degrade = 0, lookups = 0"
            " WHERE op_id = ? AND state = 'dead'",
            (now, now, op_id),
        )
        return changed.rowcount > 0

    def interrupted(self) -> list[Operation]:
        """Return what was being sent when the process died."""
        return list(self._select("state = 'sending'"))

    def depth(self) -> tuple[int, float | None, int]:
        """Return (open operations, time since which the oldest waits, dead operations)."""
        count, oldest = self._db.execute(
            f"SELECT count(*), min({_WAITS_SINCE}) FROM outbox"  # noqa: S608 - a constant
            " WHERE outlet = ? AND state IN ('ready', 'sending', 'lookup')",
            (self._outlet,),
        ).fetchone()
        query = "SELECT count(*) FROM outbox WHERE outlet = ? AND state = 'dead'"
        return int(count), oldest, int(self._db.execute(query, (self._outlet,)).fetchone()[0])

    def _select(self, condition: str, *values: str | float) -> Iterator[Operation]:
        query = f"SELECT {COLUMNS} FROM outbox WHERE outlet = ? AND {condition}"  # noqa: S608 - our own text
        rows = self._db.execute(query, (self._outlet, *values))
        return (Operation(*row) for row in rows)
