"""One row of the outbox: what must be posted or edited, and how far that got."""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = (
    "op_id, incident_id, kind, state, since, not_before, wanted, sent, attempts, lookups, sent_at, posted_at,"
    " degrade, channel, ts, shown, body, error, target, outlet"
)
QUIET, OUR_LIMIT = "quiet hours", "our limit of pings"  # why it is held; `since` stays when it was first wished for
# Between two edits of the evidence, which nobody waits for: twice its age, within these bounds.
LEAST_EVIDENCE_SECONDS, EVIDENCE_SECONDS = 60.0, 300.0


@dataclass(frozen=True)
class Operation:
    """One row. `shown` is the digest of what Slack shows, `degrade` how much was dropped to make Slack accept it.

    `since` is when somebody first wished for what waits; of a reply also for what it replaced, which was not told.
    """

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
    outlet: str = ""

    @property
    def is_evidence(self) -> bool:
        """True for the thread's first reply, which is built and edited as the message is."""
        return self.kind == "reply" and self.body is None

    @property
    def edit_again_at(self) -> float:
        """When the evidence may be edited again."""
        if self.sent_at is None or self.posted_at is None:
            return 0.0
        age = self.sent_at - self.posted_at
        return self.sent_at + min(max(2 * age, LEAST_EVIDENCE_SECONDS), EVIDENCE_SECONDS)

    @property
    def edits(self) -> bool:
        """True if the next call edits what Slack has."""
        return self.ts is not None and (self.kind == "root" or self.is_evidence)

    @property
    def metadata(self) -> dict[str, str]:
        """The message metadata by which it can be found again."""
        return {"op_id": self.op_id, "incident_id": self.incident_id}


@dataclass(frozen=True)
class DuplicateCheck:
    """An operation that may have been posted twice: `ts` is the known post, `thread` a reply's root ts."""

    op_id: str
    channel: str
    ts: str
    thread: str | None
    oldest: float
    due: float
