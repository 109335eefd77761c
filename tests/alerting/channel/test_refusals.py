"""Refusals: which codes are final, how a message shrinks, and how one that was given up is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from alerting_fakes import Bench, alert, raw_alert, training_incident

from pyrometer_alerting.app.trouble import given_up, trouble_lines
from pyrometer_alerting.channel.breaker import Trouble
from pyrometer_alerting.channel.evidence import build_evidence, revised
from pyrometer_alerting.channel.messages import DEGRADE_LEVELS, TEXT_BYTES, Style, build
from pyrometer_alerting.channel.outlets.courier import OutletCouriers
from pyrometer_alerting.channel.outlets.http import _failure
from pyrometer_alerting.channel.slack import _CODES, MOST_TEXT_BYTES, WebSlack, classify
from pyrometer_alerting.channel.slack_remedies import REMEDIES, with_remedy
from pyrometer_alerting.model.text import fit

FIRING = raw_alert(node="gpu-042", gpu="3")


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("access_denied", Trouble.UNKNOWN),  # of Slack's common errors: may be over in a moment
        ("deprecated_endpoint", Trouble.UNKNOWN),
        ("update_failed", Trouble.UNKNOWN),
        ("a_code_of_next_year", Trouble.UNKNOWN),
        ("no_permission", Trouble.CHANNEL),
        ("is_inactive", Trouble.CHANNEL),
        ("restricted_action_read_only_channel", Trouble.CHANNEL),
        ("restricted_action_thread_locked", Trouble.PAYLOAD),
        ("invalid_blocks", Trouble.PAYLOAD),
        ("msg_too_long", Trouble.PAYLOAD),
        ("token_revoked", Trouble.AUTH),
    ],
)
def test_only_codes_that_are_of_the_content_are_final(code: str, trouble: Trouble) -> None:
    assert classify(code) is trouble


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (400, Trouble.PAYLOAD),
        (409, Trouble.UNKNOWN),
        (413, Trouble.PAYLOAD),
        (418, Trouble.UNKNOWN),
        (422, Trouble.PAYLOAD),
        (425, Trouble.UNKNOWN),
        (451, Trouble.UNKNOWN),
        (403, Trouble.AUTH),
        (503, Trouble.AMBIGUOUS),
    ],
)
def test_an_outlets_status_is_final_only_if_it_is_of_the_content(status: int, trouble: Trouble) -> None:
    class Said:
        def __init__(self) -> None:
            self.status, self.headers = status, {}

    assert _failure(Said(), "").trouble is trouble  # type: ignore[arg-type]


def test_a_code_that_nobody_knows_delays_its_own_message_alone_and_is_never_final(bench: Bench) -> None:
    bench.slack.inject("chat.postMessage", "error", times=12, error="access_denied")
    bench.receive(FIRING)
    bench.clock.advance(1)
    bench.courier.step()
    for _ in range(11):
        bench.deliver(70)
    bench.receive(raw_alert("NicLinkDown", node="gpu-007"))
    bench.deliver(30)
    bench.deliver(70)
    assert bench.courier.blocked == ""
    assert sorted("gpu-007" in message["text"] for message in bench.messages) == [False, True]
    assert all(message["blocks"] for message in bench.messages), "a refusal of unknown meaning takes nothing away"


@pytest.mark.parametrize("trouble", [Trouble.AUTH, Trouble.CHANNEL])
def test_each_code_on_which_somebody_must_act_says_how(trouble: Trouble) -> None:
    assert set(_CODES[trouble].split()) - REMEDIES.keys() == set()


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("invalid_auth", "Slack refuses everything: invalid_auth: copy the Bot User OAuth Token again"),
        ("not_in_channel", "Slack refuses everything: not_in_channel: type /invite @pyrometer in the channel"),
        ("access_denied", " s (access_denied: see whether the app may use this channel"),
        ("a_code_of_next_year", " s (a_code_of_next_year)."),
        ("invalid_blocks", "which refused it (invalid_blocks: report it as a bug"),
    ],
)
def test_page_and_log_name_what_to_do_about_a_refusal(
    code: str, line: str, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.slack.inject("chat.postMessage", "error", times=100, error=code)
    bench.receive(FIRING)
    for _ in range(DEGRADE_LEVELS):
        bench.clock.advance(1)
        bench.courier.step()
    bench.clock.advance(70)
    outlets = OutletCouriers(bench.store, style=Style(), clock=bench.clock, metrics=bench.metrics, prometheus=None)
    with bench.store.snapshot() as tx:
        shown = trouble_lines(tx, bench.courier, outlets, (), bench.clock.time)
    assert any(line in each for each in shown)
    assert with_remedy(code) in caplog.text


def test_a_message_that_was_given_up_is_named_with_its_channel_until_it_is_there(bench: Bench) -> None:
    bench.slack.inject("chat.postMessage", "error", times=DEGRADE_LEVELS, error="invalid_blocks")
    bench.receive(FIRING)
    bench.deliver()
    with bench.store.transaction() as tx:
        (refused,) = given_up(tx, bench.channel, bench.clock.time)
        assert given_up(tx, bench.channel, bench.clock.time + 90_000) == []
    assert refused[1:] == ("GpuLost gpu-042 GPU 3", "#gpu-alerts", "invalid_blocks")
    bench.receive(raw_alert(node="gpu-042", gpu="3", firing=False))
    bench.deliver()
    with bench.store.transaction() as tx:
        assert given_up(tx, bench.channel, bench.clock.time) == []


def test_a_reply_to_a_message_that_somebody_deleted_has_it_posted_again(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.deliver()
    bench.slack.channel("gpu-alerts").delete(bench.messages[0]["ts"])
    with bench.store.transaction() as tx:
        (incident,) = tx.incidents()
        tx.outbox.reply(incident.id, '{"text": "a rank died"}', bench.clock.time)
    bench.deliver()
    assert len(bench.messages) == 1
    with bench.store.transaction() as tx:
        assert tx.outbox.depth() == (0, None, 0)


@pytest.mark.parametrize("word", ["ordinary ", "плотная ", "训练任务的模型浮点利用率下降", "<&>"])
def test_every_step_of_degrading_is_shorter_and_an_edit_takes_the_longest(word: str) -> None:
    member = alert(
        "TrainMfuDropped", labels={"run": word * 9}, annotations={"summary": word * 9, "description": word * 400}
    )
    incident = training_incident(run=word * 9, members=(member,))
    for make in (build, build_evidence):
        messages = [make(incident, Style(), level) for level in range(DEGRADE_LEVELS)]
        assert all(len(one.text.encode()) <= limit for one, limit in zip(messages, TEXT_BYTES, strict=True))
        sizes = [len(one.text.encode()) + len(json.dumps(one.blocks)) for one in messages]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] < sizes[0]
        assert len(messages[0].text.encode()) < MOST_TEXT_BYTES


@pytest.mark.parametrize(
    ("value", "limit", "shown"),
    [
        ("short", 5, "short"),
        ("one\ntwo\nthree", 10, "one\ntwo…"),
        ("see <https://example.org/a|runbook>", 20, "see …"),
        ("a &amp; b &amp; c", 14, "a &amp; b …"),
        ("训练任务", 9, "训练…"),
    ],
)
def test_text_is_cut_between_lines_else_outside_of_links_and_escapes(value: str, limit: int, shown: str) -> None:
    assert fit(value, limit) == shown
    assert len(fit(value, limit).encode()) <= limit


def test_a_new_token_in_the_file_is_used_as_soon_as_the_old_one_is_refused(bench: Bench) -> None:
    slack = WebSlack("xoxb-test", bench.slack.url, lambda: "xoxb-second")
    slack.check()
    bench.slack._token = "xoxb-second"
    slack.check()
    assert [call.outcome for call in bench.slack.calls] == ["ok", "invalid_auth", "ok"]


def test_a_channel_that_was_renamed_is_followed_by_its_id(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.deliver()
    bench.slack.channels["C000000001"].name = "gpu-incidents"
    bench.receive(raw_alert("NicLinkDown", node="gpu-007"))
    bench.deliver()
    assert len(bench.slack.messages("gpu-incidents")) == 2
    assert bench.courier.blocked == ""


def test_a_channel_that_was_deleted_is_sought_by_its_name_again(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.deliver()
    bench.slack.channels["C000000002"] = replace(bench.slack.channels.pop("C000000001"), id="C000000002", messages={})
    bench.receive(raw_alert("NicLinkDown", node="gpu-007"))
    bench.deliver()
    assert len(bench.slack.messages("gpu-alerts")) == 1


def test_a_culprit_that_was_told_stays_struck_through() -> None:
    assert revised("n1 GPU 3 (heat) is no longer named first: it ended. Now n2, a slow disk.") == (
        "~n1 GPU 3 (heat)~ is no longer named first: it ended. Now n2, a slow disk."
    )
