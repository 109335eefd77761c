"""The table of what the policy did to nodes: each action is written here before it is done.

asked -> doing -> done              somebody pressed the button; the scheduler shows what was wanted
doing                               committed before the call: after a crash the scheduler is asked what is true
doing -> refused           the scheduler said no: nothing has changed
doing -> overtaken         it is in another state, which somebody else has brought about
doing -> unknown           a webhook that gave no answer to any of the tries with this id
doing -> lost              it never reached the scheduler: the next look decides again
asked -> ended             nobody has answered, or its ground has gone
would                               a dry run
done -> ended                       of a drain: the node is back, by the policy or by somebody else
"""

from __future__ import annotations

from dataclasses import dataclass

from pyrometer_alerting.incidents.storage.engine import Connection

DRAIN, RETURN, WEBHOOK, ASK, ASK_RETURN = "drain", "return", "webhook", "ask", "ask_return"
COMMON = "common"  # a question about a fault that many nodes have: it is about no single node
SERVICE = "policy"  # who did it, in the audit trail, if no person did
ASKED, DOING, DONE, WOULD, ENDED = "asked", "doing", "done", "would", "ended"
REFUSED, OVERTAKEN, UNKNOWN, LOST = "refused", "overtaken", "unknown", "lost"
_RETURNED = "returned by the policy"
# Those after which the node was, or may have been, changed by us: they count against the limit of an hour.
COUNTED = (DOING, DONE, ENDED, UNKNOWN, OVERTAKEN, WOULD)
_COLUMNS = "id, cluster, node, kind, state, rule, incident_id, reason, by_whom, planned_at, began_at, ended_at, detail"
_TOTAL = "policy_total:"


@dataclass(frozen=True)
class Action:
    """One row; times are Unix seconds, `began_at` and `ended_at` 0 where it has not.

    `detail` is what it is about (a check, alert or cause) until it has ended, then how it ended.
    """

    id: str
    cluster: str
    node: str
    kind: str
    state: str
    rule: str
    incident_id: str
    reason: str
    by_whom: str
    planned_at: float
    began_at: float = 0.0
    ended_at: float = 0.0
    detail: str = ""

    @property
    def mark(self) -> str:
        """The text by which the scheduler's own record of it is recognized."""
        return f"pyrometer:{self.id}"

    @property
    def leaves_open(self) -> bool:
        """True if its node may be taken out of service although this was planned for it a moment ago."""
        if self.kind in (DRAIN, RETURN, WEBHOOK) and self.state != LOST:
            is_by_us = self.by_whom == SERVICE and (self.kind, self.state) == (RETURN, DONE)
            return is_by_us or (self.kind, self.state, self.detail) == (DRAIN, ENDED, _RETURNED)
        return self.state != WOULD or self.kind == COMMON


class Actions:
    """Reads and writes of the table inside the caller's transaction."""

    def __init__(self, connection: Connection) -> None:
        self._db = connection

    def add(self, action: Action) -> None:
        """Record a new action."""
        marks = ", ".join("?" * 13)
        self._db.execute(
            f"INSERT INTO policy_action ({_COLUMNS}) VALUES ({marks})",  # noqa: S608 - constants
            tuple(vars(action).values()),
        )
        self._count(action.kind, action.state)

    def set_state(self, action: Action, state: str, now: float, detail: str = "") -> None:
        """Record how it ended."""
        self._db.execute(
            "UPDATE policy_action SET state = ?, ended_at = ?, detail = ? WHERE id = ?", (state, now, detail, action.id)
        )
        self._count(action.kind, state)

    def renew(self, action: Action, now: float) -> None:
        """Record that the same action is about to be tried again, or that somebody confirmed what was asked."""
        self._db.execute("UPDATE policy_action SET state = ?, began_at = ? WHERE id = ?", (DOING, now, action.id))

    def in_state(self, *states: str) -> list[Action]:
        """Return the actions in these states, oldest first."""
        return self._select(f"state IN ({_marks(states)}) ORDER BY number", *states)

    def newest(self, limit: int = 200) -> list[Action]:
        """Return the newest actions first."""
        return self._select("1 = 1 ORDER BY number DESC LIMIT ?", limit)

    def places_since(self, since: float, *, dry: bool) -> set[tuple[str, str]]:
        """Return (cluster, node) of those to leave alone: something was done since then, or said in a dry run."""
        planned = self._select("planned_at >= ?", since)
        return {
            (action.cluster, action.node)
            for action in planned
            if not action.leaves_open and (dry or action.state != WOULD)
        }

    def of_node(self, cluster: str, node: str, since: float) -> list[Action]:
        """Return what was planned for a node since then, newest first."""
        return self._select("cluster = ? AND node = ? AND planned_at >= ? ORDER BY number DESC", cluster, node, since)

    def drained(self) -> list[Action]:
        """Return the drains that hold, as far as is known: of each node the newest one."""
        return self._select("kind = 'drain' AND state = 'done' ORDER BY number")

    def begun_since(self, cluster: str, since: float) -> list[str]:
        """Return the nodes of a cluster's drains and webhooks that began since then, or may have, dry runs included."""
        begun = self._select(
            f"cluster = ? AND kind IN ('{DRAIN}', '{WEBHOOK}') AND state IN ({_marks(COUNTED)})"
            " AND (planned_at > ? OR began_at > ?)",
            *(cluster, *COUNTED, since, since),
        )
        return [action.node for action in begun]

    def return_node(self, action: Action, now: float) -> None:
        """Record of the drains that a return has ended that they are over."""
        detail = _RETURNED if action.by_whom == SERVICE else f"returned by {action.by_whom}"
        for drain in self.drained():
            if (drain.cluster, drain.node) == (action.cluster, action.node):
                self.set_state(drain, ENDED, now, detail)

    def taken(self, cluster: str, would_since: float) -> set[str]:
        """Return the nodes of a cluster that are being taken out, or were, or would be by a dry run since then.

        A scheduler that was asked a moment ago need not show it yet.
        """
        actions = self._select(
            "cluster = ? AND kind IN ('drain', 'webhook') AND (state = ? OR (state = ? AND kind = 'drain')"
            " OR (state = ? AND planned_at >= ?))",
            *(cluster, DOING, DONE, WOULD, would_since),
        )
        return {action.node for action in actions}

    def totals(self) -> dict[tuple[str, str], float]:
        """Return how many actions came to each result, ever: by (action, result)."""
        rows = self._db.execute("SELECT name, value FROM fact WHERE substr(name, 1, ?) = ?", (len(_TOTAL), _TOTAL))
        found = {tuple(str(name)[len(_TOTAL) :].split(":", 1)): float(value) for name, value in rows}
        return {(kind, result): value for (kind, result), value in found.items()}

    def forget(self, before: float) -> None:
        """Delete what is over since then; a drain that holds is kept."""
        self._db.execute(
            "DELETE FROM policy_action WHERE planned_at < ? AND state NOT IN (?, ?)", (before, DOING, DONE)
        )
        self._db.execute(
            "DELETE FROM policy_action WHERE planned_at < ? AND state = ? AND kind != ?", (before, DONE, DRAIN)
        )

    def _count(self, kind: str, result: str) -> None:
        self._db.execute(
            "INSERT INTO fact (name, value) VALUES (?, '1')"
            " ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(fact.value AS INTEGER) + 1 AS TEXT)",
            (f"{_TOTAL}{kind}:{result}",),
        )

    def _select(self, condition: str, *values: str | float) -> list[Action]:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM policy_action WHERE {condition}", values)  # noqa: S608 - our own text
        return [Action(*row) for row in rows]


def _marks(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
