"""Each outlet sees an incident's whole life with the facts of Slack's message, once, whatever fails on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from alerting_fakes import raw_alert, training_incident

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.outlets import notice as notices
from pyrometer_alerting.channel.outlets.courier import OutletCouriers
from pyrometer_alerting.channel.outlets.email import mail
from pyrometer_alerting.channel.outlets.notice import document
from pyrometer_alerting.channel.outlets.teams import card
from pyrometer_alerting.channel.outlets.webhook import key_of, sign
from pyrometer_alerting.model.incident import Cause, ChartCurve, Cost, Diagnosis, Incident
from pyrometer_simulator.outlets.services import objections

if TYPE_CHECKING:
    from conftest import Line, Stand  # type: ignore[import-not-found]

SCHEMA = Path(__file__).parents[4] / "docs/reference/webhook.schema.json"
KINDS = ("pagerduty", "opsgenie", "teams", "webhook", "email")
GPU = {"node": "gpu-003", "gpu": "5", "component": "gpu"}


def seen(stand: Stand, kind: str) -> list[str]:
    """The states that people see there, one for each alert, card, document or mail."""
    if kind == "pagerduty":
        return [alert.status for alerts in stand.pagerduty.alerts.values() for alert in alerts]
    if kind == "opsgenie":
        return [alert.status for alerts in stand.opsgenie.alerts.values() for alert in alerts]
    if kind == "teams":
        return ["resolved" if "Resolved" in text else "opened" for text in stand.teams.texts()]
    if kind == "webhook":
        return [each["event"] for each in stand.webhook.documents]
    return [str(each["X-Pyrometer-Event"]) for each in stand.mail.mails]


OPEN = {"pagerduty": ["triggered"], "opsgenie": ["open"]}
ENDED = {"pagerduty": ["resolved"], "opsgenie": ["closed"]}


@pytest.mark.parametrize("kind", KINDS)
def test_an_incident_is_opened_and_resolved(line: Callable[..., Line], stand: Stand, kind: str) -> None:
    one = line(kind)
    one.receive(raw_alert(**GPU))
    assert seen(stand, kind) == OPEN.get(kind, ["opened"])
    one.receive(raw_alert(firing=False, **GPU))
    assert seen(stand, kind) == ENDED.get(kind, ["opened", "resolved"])
    assert one.depth() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_lost_repeats_nothing(line: Callable[..., Line], stand: Stand, kind: str) -> None:
    """Teams alone has no key to recognise a repetition: it may show a card twice, and none is lost."""
    one = line(kind)
    if kind == "email":
        stand.mail.faults.append("close")
    else:
        getattr(stand, kind).inject("close_after")
    one.receive(raw_alert(**GPU))
    assert seen(stand, kind) == OPEN.get(kind, ["opened", "opened"] if kind == "teams" else ["opened"])
    if kind == "pagerduty":
        (alerts,) = stand.pagerduty.alerts.values()
        assert (alerts[0].log, alerts[0].notified) == (["trigger", "trigger"], 1)


@pytest.mark.parametrize("kind", ["pagerduty", "opsgenie", "teams", "webhook"])
@pytest.mark.parametrize(("status", "waits"), [(500, 0.4), (503, 0.4), (429, 6.9), (401, 59.9)])
def test_a_refusal_is_waited_out_and_nothing_is_lost(
    line: Callable[..., Line], stand: Stand, kind: str, status: int, waits: float
) -> None:
    one = line(kind)
    getattr(stand, kind).inject("status", status=status, retry_after="7")
    began = one.bench.clock.time
    one.receive(raw_alert(**GPU))
    assert seen(stand, kind) == OPEN.get(kind, ["opened"])
    assert one.bench.clock.time - began >= waits
    assert one.courier.blocked == ""


def test_a_wrong_key_blocks_until_it_is_renewed(line: Callable[..., Line], stand: Stand) -> None:
    from pyrometer_alerting.channel.outlets.http import Endpoint
    from pyrometer_alerting.channel.outlets.pagerduty import PagerDuty

    one = line("pagerduty")
    good = one.entry
    wrong = PagerDuty(Endpoint(f"{stand.pagerduty.url}/v2/enqueue"), "0" * 32)
    one.courier.entry = notices.Entry(good.name, good.kind, wrong)
    one.receive(raw_alert(**GPU))
    assert one.courier.blocked == "http_400"
    assert one.depth() == 1
    (said,) = page_lines(one)
    assert said.endswith("refuses everything: http_400: check its address and its secret file. 1 notice queued.")
    one.courier.renew(good)
    one.deliver(120)
    assert seen(stand, "pagerduty") == ["triggered"]


def test_a_notice_that_waits_says_what_its_outlet_answers(line: Callable[..., Line], stand: Stand) -> None:
    one = line("webhook")
    for _ in range(20):
        stand.webhook.inject("status", status=503)
    one.receive(raw_alert(**GPU), seconds=60)
    (said,) = page_lines(one)
    assert said.endswith(" s (http_503).")


def page_lines(one: Line) -> list[str]:
    bench = one.bench
    couriers = OutletCouriers(bench.store, style=Style(), clock=bench.clock, metrics=bench.metrics, prometheus=None)
    couriers._couriers[one.entry.name] = one.courier
    with bench.store.snapshot() as tx:
        return couriers.trouble(tx, bench.clock.time)


def test_an_outage_collapses_into_the_newest_state(line: Callable[..., Line], stand: Stand) -> None:
    one = line("pagerduty")
    stand.pagerduty.down()
    one.receive(raw_alert(**GPU), seconds=60)
    one.receive(raw_alert(firing=False, **GPU), seconds=60)
    stand.pagerduty.up()
    one.deliver(300)
    assert [call.body["event_action"] for call in stand.pagerduty.calls] == ["resolve"]


def test_content_that_is_refused_goes_out_short(line: Callable[..., Line], stand: Stand) -> None:
    one = line("teams")
    stand.teams.inject("status", status=413)
    one.receive(raw_alert(**GPU))
    assert len(stand.teams.cards[0]["body"]) == 1


def test_content_that_is_refused_twice_is_kept_for_a_replay(line: Callable[..., Line], stand: Stand) -> None:
    one = line("opsgenie")
    for _ in range(2):
        stand.opsgenie.inject("status", status=422)
    one.receive(raw_alert(**GPU))
    with one.bench.store.transaction() as tx:
        (dead,) = tx.outbox.dead()
        assert dead.outlet == "my-opsgenie"
        tx.outbox.replay(dead.op_id, one.bench.clock.time)
    one.deliver()
    assert seen(stand, "opsgenie") == ["open"]


def test_a_flapping_alert_is_at_most_six_calls_in_ten_minutes(line: Callable[..., Line], stand: Stand) -> None:
    one = line("webhook")
    began = one.bench.clock.time
    for number in range(12):
        at = one.bench.clock.time
        one.receive(raw_alert(firing=number % 2 == 0, starts_at=at - 1, ends_at=at, **GPU), seconds=20)
    assert one.bench.clock.time - began < 600
    assert len(stand.webhook.documents) <= 6


def test_severities_and_labels_choose_what_an_outlet_hears(line: Callable[..., Line], stand: Stand) -> None:
    one = line("webhook", severities=frozenset({"critical"}), match={"component": frozenset({"gpu"})})
    one.receive(raw_alert("A", component="nic", node="gpu-1"))
    one.receive(raw_alert("B", component="gpu", node="gpu-2", severity="warning"))
    assert stand.webhook.documents == []
    one.receive(raw_alert("C", component="gpu", node="gpu-3"))
    assert [each["incident"]["alertnames"] for each in stand.webhook.documents] == [["C"]]


def test_labels_that_an_outlet_may_not_see_are_hidden(line: Callable[..., Line], stand: Stand) -> None:
    one = line("webhook", labels=frozenset({"gpu"}))
    one.receive(raw_alert(annotations={"summary": "gpu-003 is hot"}, **GPU))
    assert "gpu-003" not in json.dumps(stand.webhook.documents)


def test_a_new_outlet_hears_of_what_fires_and_a_removed_one_is_forgotten(
    line: Callable[..., Line], stand: Stand
) -> None:
    one = line("webhook")
    one.bench.store.outlets = ()
    one.bench.receive(raw_alert(**GPU))
    with one.bench.store.transaction() as tx:
        tx.adopt_outlets([one.entry.name], one.bench.clock.time)
    one.deliver()
    assert seen(stand, "webhook") == ["opened"]
    with one.bench.store.transaction() as tx:
        tx.adopt_outlets([], one.bench.clock.time)
        assert tx.outbox_of(one.entry.name).depth()[0] == 0


def diagnosed(**more: Any) -> Incident:
    labels = {"node": "gpu-003", "gpu": "5"}
    cause = Cause(
        "gpu-003 GPU 5", "thermal slowdown", ("93 °C",), ("no power brake",), labels=labels, confidence="high"
    )
    curve = ChartCurve((1.0, 61.0), (0.45, 0.33), (0.4, 0.3), 0.45)
    found = Diagnosis(at=5.0, causes=(cause,), missing=("no NCCL",), curve=curve, cost=Cost(12.0, 48, 0.45, 61.0))
    return training_incident(diagnosis=found, **more)


def a_notice(incident: Incident, event: str = "opened", **more: Any) -> notices.Notice:
    style = Style(notice="SIMULATED CLUSTER", grafana_url="http://grafana:3000")
    message = notices.message_of(incident, None, style)
    title = notices.title_of(incident, message)
    more = {"thread": "first", "delivery": "first", **more}
    return notices.Notice(event, incident, message, title, key=incident.id, subject=notices.subject_of(title), **more)


ON_THE_CARD = (
    "27 % slower",
    "llama-70b",
    "gpu-003 GPU 5, thermal slowdown (certain)",
    "12 GPU-hours lost",
    "SIMULATED",
)
FACTS = (*ON_THE_CARD, "32.9 %", "cluster c1", "93 °C", "no power brake", "no NCCL", "SIMULATED CLUSTER")


def test_every_outlet_has_the_facts_of_the_message_in_slack() -> None:
    notice = a_notice(diagnosed())
    shown = {
        "text": notice.text,
        "teams": "\n".join(str(block["text"]) for block in card(notice)["body"]),
        "mail": mail(notice, "p@example.com", ("o@example.com",)).get_body(("plain",)).get_content(),  # type: ignore[union-attr]
        "html": mail(notice, "p@example.com", ("o@example.com",)).get_body(("html",)).get_content(),  # type: ignore[union-attr]
    }
    facts = {"teams": ON_THE_CARD}
    assert [
        (name, fact)
        for name, text in shown.items()
        for fact in facts.get(name, FACTS)
        if fact not in " ".join(text.split())
    ] == []
    assert "gpu-003 GPU 5" in notice.title


def test_the_webhook_keeps_its_published_schema() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for incident in (diagnosed(), diagnosed(resolved_at=2e9), training_incident()):
        jsonschema.Draft7Validator(schema).validate(document(a_notice(incident)))


def test_hostile_labels_stay_within_every_limit() -> None:
    incident = training_incident(alertname="A" * 500, run="\u202e<@here>" + "x" * 5000, cluster="c" * 3000)
    content = card(a_notice(incident))
    message = {"type": "message", "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive"}]}
    message["attachments"][0]["content"] = content  # type: ignore[index]
    assert objections(message, "teams", "Message") == []
    assert len(json.dumps(message)) < 28 << 10
    assert "\n" not in str(mail(a_notice(incident), "p@example.com", ("o@example.com",))["Subject"])


def test_a_signature_is_that_of_the_published_example() -> None:
    """The test vector of https://www.standardwebhooks.com's libraries."""
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_mails_of_an_incident_are_one_thread_with_the_chart() -> None:
    first = mail(a_notice(diagnosed(), picture=b"\x89PNG"), "Pyro <p@example.com>", ("o@example.com",))
    over = replace(a_notice(diagnosed(resolved_at=2e9), "resolved", delivery="2"), subject=str(first["Subject"]))
    later = mail(over, "p@example.com", ("o@example.com",))
    assert later["References"] == later["In-Reply-To"] == first["Message-ID"] == "<first@example.com>"
    assert later["Subject"] == f"Re: {first['Subject']}"
    assert [part.get_filename() for part in first.iter_attachments()] == ["mfu.png"]
    assert "Resolved" in later.get_body(("plain",)).get_content().splitlines()[0]  # type: ignore[union-attr]


def test_a_chart_that_cannot_be_drawn_holds_back_no_mail(line: Callable[..., Line], stand: Stand) -> None:
    def broken(*_: object) -> bytes:
        raise RuntimeError("no Matplotlib")

    one = line("email", draw=broken)
    incident = diagnosed()
    with one.bench.store.transaction() as tx:
        tx.save_incident(incident, 0.0)
        tx.outbox.request(incident.id, 0.0, 0.0)
    one.deliver()
    assert seen(stand, "email") == ["opened"]


def test_an_acknowledgement_reaches_the_pagers(line: Callable[..., Line], stand: Stand) -> None:
    from dataclasses import replace

    one = line("pagerduty")
    for incident in (diagnosed(), replace(diagnosed(), acknowledged="alice")):
        with one.bench.store.transaction() as tx:
            tx.save_incident(incident, 0.0)
            tx.outbox.request(incident.id, 0.0, 0.0)
        one.deliver()
    assert seen(stand, "pagerduty") == ["acknowledged"]
