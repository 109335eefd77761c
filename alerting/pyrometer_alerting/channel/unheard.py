"""The first message about what nobody has had but who posted it: anybody can post to us.

It is held back for a short while in any case, and where nobody can be asked any more it goes out.
"""

from __future__ import annotations

from pyrometer_alerting.incidents.reconcile import UNHEARD_OF
from pyrometer_alerting.incidents.storage.operation import QUIET, Operation
from pyrometer_alerting.incidents.storage.outbox import Outbox
from pyrometer_alerting.model.incident import Incident
from pyrometer_alerting.model.routing import Routing

# Longer than it takes to close it, which drops the message.
LONGEST_SECONDS, AGAIN_SECONDS = 90.0, 2.0


def waits_unheard(box: Outbox, operation: Operation, incident: Incident, now: float) -> bool:
    """Hold such a message back, or drop it once it is over; return False where it must be sent."""
    new = operation.kind == "root" and operation.ts is None and operation.sent_at is None
    if not new or incident.note != UNHEARD_OF:
        return False
    if not incident.firing:
        box.discard(incident.id)
        return True
    if not 0 <= now - operation.since < LONGEST_SECONDS:
        return False
    box.postpone(operation.op_id, now + AGAIN_SECONDS, UNHEARD_OF)
    return True


def waits(box: Outbox, routing: Routing, operation: Operation, incident: Incident, now: float) -> bool:
    """Hold back a message that is not to be posted yet, also in quiet hours; an edit is."""
    if waits_unheard(box, operation, incident, now):
        return True
    quiet_until = routing.not_before(incident, now)
    quiet = operation.ts is None and quiet_until > now and operation.kind == "root"
    if quiet:
        box.postpone(operation.op_id, quiet_until, QUIET)
    return quiet
