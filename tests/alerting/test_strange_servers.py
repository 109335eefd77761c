"""Services that we ask redirect, trickle, or never end: no secret goes elsewhere, and no worker waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from alerting_fakes import START

from pyrometer_alerting.channel.breaker import DeliveryFailure, SlackFailure, Trouble
from pyrometer_alerting.channel.outlets import http
from pyrometer_alerting.channel.outlets.http import Endpoint
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.incidents.alertmanager import Alertmanager, AlertmanagerError
from pyrometer_alerting.incidents.storage.actions import Action
from pyrometer_alerting.policy import drain_webhook
from pyrometer_alerting.policy.rules import WebhookSettings
from pyrometer_alerting.policy.schedulers import RefusedError
from pyrometer_kit import http_client
from pyrometer_kit.prometheus import HttpPrometheus, PrometheusError
from pyrometer_simulator.strange_server import Answer, StrangeServer, leads_to, never_ends, says, trickles

SECRET = {"Authorization": "Bearer secret"}
ASK: dict[str, tuple[type[Exception], Callable[[str], Any]]] = {
    "Slack": (SlackFailure, lambda url: WebSlack("xoxb-secret", f"{url}/api/").check()),
    "Alertmanager": (AlertmanagerError, lambda url: _alertmanager(url, lambda asked: asked.alerts())),
    "Alertmanager's silence": (
        AlertmanagerError,
        lambda url: _alertmanager(url, lambda asked: asked.silence((), START, "me", "why")),
    ),
    "Prometheus": (PrometheusError, lambda url: HttpPrometheus(with_password(url)).instant("up", START)),
    "an outlet": (DeliveryFailure, lambda url: Endpoint(url).call("POST", b"{}", SECRET)),
    "the policy's webhook": (
        RefusedError,
        lambda url: drain_webhook.post(WebhookSettings(url=url), _action()),
    ),
}


def with_password(url: str) -> str:
    return url.replace("http://", "http://me:secret@")


def _alertmanager(url: str, ask: Callable[[Alertmanager], Any]) -> None:
    with closing(Alertmanager(with_password(url))) as asked:
        ask(asked)


def _action() -> Action:
    return Action("id", "c1", "gpu-001", "drain", "doing", "rule", "incident", "reason", "policy", START)


@pytest.mark.parametrize("asked", ASK)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(asked: str, status: int) -> None:
    failure, ask = ASK[asked]
    with (
        StrangeServer(says(b"[]")) as stranger,
        StrangeServer(leads_to(f"http://{stranger.place}/latest/meta-data", status)) as server,
    ):
        with pytest.raises(failure):
            ask(f"http://{server.place}")
        assert len(server.asked) == 1
        assert stranger.asked == []


@pytest.mark.parametrize("asked", [name for name in ASK if name not in ("an outlet", "the policy's webhook")])
def test_what_is_read_whole_has_a_limit(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_BYTES", 1 << 20)
    failure, ask = ASK[asked]
    with StrangeServer(never_ends()) as server, pytest.raises(failure, match=r"too_large|more than 1 MiB"):
        ask(f"http://{server.place}")


@pytest.mark.parametrize("answer", [trickles(), never_ends()], ids=["trickles", "never ends"])
def test_an_outlet_that_took_it_is_not_listened_to(answer: Answer) -> None:
    with StrangeServer(answer) as server:
        began = time.monotonic()
        Endpoint(f"http://{server.place}").call("POST", b"{}", {})
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("answer", [trickles(400), never_ends(400)], ids=["trickles", "never ends"])
def test_a_refusal_without_end_is_one(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 1)
    with StrangeServer(answer) as server:
        began = time.monotonic()
        with pytest.raises(DeliveryFailure) as failed:
            Endpoint(f"http://{server.place}").call("POST", b"{}", {})
        assert failed.value.trouble is Trouble.PAYLOAD
        assert time.monotonic() - began < 10
