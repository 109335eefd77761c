"""A webhook that is told to take a node out of service: a POST with the action's id as its key.

Whoever knows the id already has done it, and answers with a 2xx again: so a POST without an answer can be repeated.
"""

from __future__ import annotations

import json
from contextlib import closing

from pyrometer_alerting.incidents.storage.actions import Action
from pyrometer_alerting.policy.rules import WebhookSettings
from pyrometer_alerting.policy.schedulers import RefusedError, SchedulerError
from pyrometer_kit.errors import HttpError
from pyrometer_kit.http_client import HttpClient

# The address, the key or the request itself is at fault (RFC 9110): no other status is final. 409 is not: who keeps ids
# answers so while the first POST is still at work (draft-ietf-httpapi-idempotency-key-header).
_NO = (301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 410, 413, 415, 422)


def post(settings: WebhookSettings, action: Action) -> None:
    """Post the action.

    Raises:
        RefusedError: the receiver said no.
        SchedulerError: it is not known whether it took it, or it was not reached.
    """
    headers = {"Idempotency-Key": action.id, "Content-Type": "application/json"}
    if settings.token_file is not None:
        try:
            headers["Authorization"] = f"Bearer {settings.token_file.read_text('ascii').strip()}"
        except (OSError, ValueError):
            raise RefusedError(f"the token in {settings.token_file} can't be read") from None
    document = {
        "id": action.id, "action": "drain", "cluster": action.cluster, "node": action.node, "reason": action.reason,
        "rule": action.rule, "incident": action.incident_id,
    }  # fmt: skip
    body = json.dumps(document).encode()
    try:
        client = HttpClient(settings.url, settings.seconds)
        with closing(client), client.ask("POST", "", body, headers) as answer:
            status = answer.status
    except HttpError as error:
        raise SchedulerError(f"the webhook did not answer ({error.reason})") from None
    if status in _NO:
        raise RefusedError(f"the webhook refused: HTTP {status}")
    if not 200 <= status < 300:
        raise SchedulerError(f"the webhook answered with HTTP {status}")
