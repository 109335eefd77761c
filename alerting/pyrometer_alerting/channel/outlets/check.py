"""Send a test incident to outlets, opened and resolved, and report which accepted it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.breaker import DeliveryFailure, Trouble
from pyrometer_alerting.channel.outlets import notice as notices
from pyrometer_alerting.channel.outlets.notice import Entry, Notice
from pyrometer_alerting.model.incident import Alert, Incident
from pyrometer_kit.finding import Finding

_SUMMARY = "A test of Pyrometer: nothing is wrong"
REMEDIES = {
    Trouble.AUTH: "check its address and its secret file",
    Trouble.PAYLOAD: "report this output as a bug: the outlet rejects our request",
    Trouble.UNKNOWN: "look up what the outlet means by it; the service would go on trying",
    Trouble.RATE: "try again in a minute",
}


def check(entries: Iterable[Entry], style: Style, now: float) -> Iterator[Finding]:
    """Yield what each outlet answers to a test incident."""
    for entry in entries:
        key = f"pyrometer-test-{uuid.uuid4().hex}"
        try:
            for event in (notices.OPENED, notices.RESOLVED):
                entry.outlet.send(_notice(key, event, style, now))
        except DeliveryFailure as failure:
            remedy = REMEDIES.get(failure.trouble, "check that it can be reached from here")
            yield Finding("missing", f"outlet {entry.name} ({entry.kind}): {failure.code}", remedy)
        else:
            yield Finding("ok", f"outlet {entry.name} ({entry.kind}): accepted a test incident, opened and resolved")


def _notice(key: str, event: str, style: Style, now: float) -> Notice:
    opened = event == notices.OPENED
    annotations = {"summary": _SUMMARY, "description": "Sent by pyrometer-alerting check-outlets."}
    labels = {"alertname": "PyrometerTest", "severity": "info", "cluster": "test", "node": "test-node"}
    alert = Alert(key, opened, labels, annotations, now, None if opened else now)
    incident = Incident(key, key, "test", "PyrometerTest", "", "info", "stack", now, now, members=(alert,))
    incident = incident if opened else replace(incident, resolved_at=now)
    message = notices.message_of(incident, None, style)
    title = notices.title_of(incident, message)
    delivery = notices.delivery_id(incident, 0)
    first = notices.delivery_id(replace(incident, resolved_at=None, members=(replace(alert, firing=True),)), 0)
    subject = notices.subject_of(title)
    return Notice(event, incident, message, title, key, delivery, first, subject, test=True)
