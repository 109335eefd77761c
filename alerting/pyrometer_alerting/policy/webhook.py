"""A webhook that is told to take a node out of service: one POST, never repeated, with the action's id as its key."""

from __future__ import annotations

import requests

from pyrometer_alerting.policy.rules import WebhookSettings
from pyrometer_alerting.policy.schedulers import RefusedError, SchedulerError
from pyrometer_alerting.state.actions import Action


def post(settings: WebhookSettings, action: Action) -> None:
    """Post the action.

    Raises:
        RefusedError: the receiver said no, or was never reached.
        SchedulerError: it is not known whether it took it.
    """
    headers = {"Idempotency-Key": action.id}
    if settings.token_file is not None:
        try:
            headers["Authorization"] = f"Bearer {settings.token_file.read_text('ascii').strip()}"
        except (OSError, ValueError):
            raise RefusedError(f"the token in {settings.token_file} can't be read") from None
    document = {
        "id": action.id, "action": "drain", "cluster": action.cluster, "node": action.node, "reason": action.reason,
        "rule": action.rule, "incident": action.incident_id,
    }  # fmt: skip
    try:
        with requests.post(
            settings.url, json=document, headers=headers, timeout=settings.seconds, allow_redirects=False, stream=True
        ) as answer:
            status = answer.status_code
    except requests.exceptions.ConnectTimeout:
        raise RefusedError("the webhook was not reached (ConnectTimeout)") from None
    except (requests.RequestException, OSError) as error:
        raise SchedulerError(f"the webhook did not answer ({type(error).__name__})") from None
    if 400 <= status < 500 or 300 <= status < 400:
        raise RefusedError(f"the webhook refused: HTTP {status}")
    if not 200 <= status < 300:
        raise SchedulerError(f"the webhook answered with HTTP {status}")
