"""Delivery against the fake Slack: everything said, nothing twice, whatever breaks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from alerting_fakes import START, Bench, FakeClock, raw_alert, wait_until

from pyrometer_alerting.app import main
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.routing import Route, Routing
from pyrometer_simulator.slack import FakeSlack


class Crash(BaseException):
    """The process dies here."""


FIRING = raw_alert(node="gpu-042", gpu="3")
RESOLVED = raw_alert(node="gpu-042", gpu="3", firing=False)


def test_one_message_edited_in_place_and_a_reply_at_the_end(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.deliver()
    bench.receive(RESOLVED)
    bench.deliver()
    (message,) = bench.messages
    assert "Resolved" in message["blocks"][0]["text"]["text"]
    assert len(message["versions"]) == 1
    assert [reply["text"] for reply in message["replies"]] == ["✅ Resolved after 60 s"]
    assert message["metadata"]["event_type"] == "pyrometer_incident"


def test_what_fired_and_resolved_during_an_outage_is_said_once_as_resolved(bench: Bench) -> None:
    bench.slack.down()
    bench.receive(FIRING)
    bench.deliver(20)
    bench.receive(RESOLVED)
    bench.deliver(20)
    bench.slack.up()
    bench.deliver()
    (message,) = bench.messages
    assert "Resolved" in message["text"]
    assert message["replies"] == []
    assert message["versions"] == []


def test_a_repeated_delivery_changes_nothing(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.receive(FIRING)
    bench.deliver()
    assert bench.count("chat.postMessage") == 1
    assert bench.count("chat.update") == 0


@pytest.mark.parametrize("kind", ["close_after", "close_before", "hang_after"])
def test_a_lost_answer_leads_to_one_message(bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.web._client.timeout = 0.2
    bench.slack.inject("chat.postMessage", kind, seconds=0.5)
    bench.receive(FIRING)
    bench.clock.advance(1)
    bench.courier.step()
    # The clock runs ahead of the fake's: that one must have come to the call before it is looked for.
    wait_until(lambda: bench.count("chat.postMessage"))
    bench.web._client.timeout = 60
    bench.deliver()
    assert len(bench.messages) == 1
    assert bench.count("chat.postMessage", "ok") == 1


@pytest.mark.parametrize(
    "answer",
    [{"status": 500}, {"status": 502}, {"error": "internal_error"}, {"error": "fatal_error"}],
)
def test_an_answer_that_leaves_it_open_is_looked_up_before_posting_again(bench: Bench, answer: dict[str, Any]) -> None:
    (kind,) = answer
    bench.slack.inject("chat.postMessage", kind, **answer)
    bench.receive(FIRING)
    bench.deliver()
    assert len(bench.messages) == 1
    assert bench.count("conversations.history") == 2


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("what", ["post", "update", "reply"])
def test_a_crash_at_any_point_loses_and_repeats_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, after: bool, what: str
) -> None:
    bench.receive(FIRING)
    if what != "post":
        bench.deliver()
        bench.receive(RESOLVED)
    target = "update" if what == "update" else "post"
    real = getattr(bench.web, target)

    def dies(*args: Any) -> object:
        if what == "reply" and args[3] is None:
            return real(*args)
        if after:
            real(*args)
        raise Crash

    monkeypatch.setattr(bench.web, target, dies)
    with pytest.raises(Crash):
        bench.deliver()
    monkeypatch.undo()
    bench.restart()
    if what == "post":
        bench.deliver()
        bench.receive(RESOLVED)
    bench.deliver()
    (message,) = bench.messages
    assert "Resolved" in message["text"]
    assert len(message["replies"]) == 1
    assert bench.depth() == 0


def test_rate_limits_are_waited_out_per_method(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.deliver()
    bench.slack.inject("chat.postMessage", "ratelimit", seconds=20)
    start = bench.clock.time
    bench.receive(RESOLVED)
    bench.deliver()
    (message,) = bench.messages
    assert len(message["versions"]) == 1
    assert len(message["replies"]) == 1
    assert 20 <= bench.clock.time - start < 40


def test_a_bad_token_keeps_the_queue_and_is_probed(bench: Bench) -> None:
    bench.slack.inject("chat.postMessage", "error", error="token_revoked")
    bench.slack.inject("auth.test", "error", times=2, error="invalid_auth")
    bench.receive(FIRING)
    bench.deliver(30)
    assert bench.courier.blocked == "token_revoked"
    assert bench.messages == []
    bench.deliver()
    assert len(bench.messages) == 1
    assert bench.courier.blocked == ""
    assert bench.count("auth.test") == 3


def test_an_archived_channel_keeps_the_queue(bench: Bench) -> None:
    bench.slack.channel("gpu-alerts").archived = True
    bench.receive(FIRING)
    bench.deliver(100)
    assert bench.courier.blocked == "is_archived"
    bench.slack.channel("gpu-alerts").archived = False
    bench.deliver()
    assert len(bench.messages) == 1


def test_refused_content_is_degraded_to_plain_text(bench: Bench) -> None:
    bench.slack.inject("chat.postMessage", "error", times=2, error="invalid_blocks")
    bench.receive(FIRING)
    bench.deliver()
    assert bench.messages[0]["blocks"] == []
    assert "gpu-042 GPU 3" in bench.messages[0]["text"]


def test_content_that_is_always_refused_is_dead_and_counted(bench: Bench) -> None:
    bench.slack.inject("chat.postMessage", "error", times=4, error="invalid_blocks")
    bench.receive(FIRING)
    bench.deliver()
    with bench.store.transaction() as tx:
        assert tx.outbox.depth() == (0, None, 1)
    bench.receive(RESOLVED)
    bench.deliver()
    assert "Resolved" in bench.messages[0]["text"]  # a change of the incident tries again


def test_a_deleted_message_is_posted_anew(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.deliver()
    bench.slack.channel("gpu-alerts").delete(bench.messages[0]["ts"])
    bench.receive(RESOLVED)
    bench.deliver()
    assert len(bench.messages) == 1
    assert "Resolved" in bench.messages[0]["text"]


def test_without_the_right_to_read_history_it_is_posted_again(bench: Bench) -> None:
    bench.slack.inject("chat.postMessage", "close_before")
    bench.slack.inject("conversations.history", "error", error="missing_scope")
    bench.receive(FIRING)
    bench.deliver()
    assert len(bench.messages) == 1


def test_info_and_the_watchdog_are_not_posted(bench: Bench) -> None:
    bench.receive(raw_alert("Watchdog"), raw_alert("GpuIdle", severity="info", node="gpu-001"))
    bench.deliver()
    assert bench.messages == []
    with bench.store.transaction() as tx:
        assert [incident.alertname for incident in tx.incidents()] == ["GpuIdle"]
        assert tx.fact("watchdog_last_seen") is not None


def test_a_flap_reopens_the_message_and_says_so_in_the_thread(bench: Bench) -> None:
    now = bench.clock.time
    for start in (now - 300, now - 100):
        bench.receive(raw_alert(node="n", fingerprint="f", starts_at=start))
        bench.deliver()
        bench.receive(raw_alert(node="n", fingerprint="f", firing=False, starts_at=start, ends_at=start + 30))
        bench.deliver()
    (message,) = bench.messages
    said = [reply["text"].splitlines()[0] for reply in message["replies"]]
    assert said == ["✅ Resolved after 30 s", "🔴 Firing again, 2 times in 3 min (n)"]
    assert message["text"].startswith("✅")
    bench.clock.advance(600)  # until the pings of the first minutes no longer count
    bench.deliver()
    (message,) = bench.messages
    assert message["replies"][-1]["text"].splitlines()[0] == "✅ Resolved after 30 s"
    assert message["text"].startswith("✅")


def test_a_stale_firing_of_a_lagging_peer_is_fenced(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.receive(RESOLVED)
    bench.receive(raw_alert(node="gpu-042", gpu="3", annotations={"summary": "late"}))
    bench.deliver()
    assert len(bench.messages) == 1
    assert "Resolved" in bench.messages[0]["text"]


def test_an_alert_that_never_ended_is_not_taken_for_an_old_story(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.receive(RESOLVED)
    bench.deliver()
    bench.clock.advance(300)
    bench.receive(FIRING)
    bench.deliver()
    (message,) = bench.messages
    assert "Resolved" not in message["text"]
    assert "Still firing" in message["replies"][-1]["text"]


def test_a_clock_that_is_set_back_delays_nothing(bench: Bench) -> None:
    bench.slack.down()
    bench.receive(FIRING)
    bench.courier.step()
    bench.slack.up()
    bench.clock.advance(-3600)
    bench.deliver(60)
    assert len(bench.messages) == 1


def test_another_channel_is_not_taken_for_the_old_one(bench: Bench) -> None:
    bench.receive(FIRING)
    bench.deliver()
    bench.channel = "#elsewhere"
    bench.restart()
    bench.receive(RESOLVED)  # still edited where it was posted
    bench.deliver()
    with bench.store.transaction() as tx:
        assert tx.fact("channel:#elsewhere") is None


def test_the_channel_may_be_given_by_id(store: Store, slack: FakeSlack, clock: FakeClock) -> None:
    bench = Bench(store, slack, clock, channel="C000000001")
    clock.time = time.time()
    slack.inject("chat.postMessage", "close_after")
    bench.receive(FIRING)
    bench.deliver()
    assert len(bench.messages) == 1


def test_messages_shown_in_a_terminal_are_posted_once_there_is_a_token(bench: Bench) -> None:
    bench.receive(FIRING)
    with bench.store.transaction() as tx:
        (operation,) = tx.outbox.due()
        tx.outbox.finish(operation, "terminal", "1.x", "", START)
    bench.restart()
    bench.receive(RESOLVED)
    bench.deliver()
    assert "Resolved" in bench.messages[0]["text"]


def test_a_first_try_that_arrives_after_all_is_removed(bench: Bench) -> None:
    bench.slack.inject("chat.postMessage", "close_before")
    bench.receive(FIRING)
    bench.deliver()
    (message,) = bench.messages
    metadata = message["metadata"]
    bench.slack.channel("gpu-alerts").post({"text": "late", "metadata": metadata})
    assert len(bench.messages) == 2
    bench.clock.advance(61)
    bench.courier.step()
    assert [each["ts"] for each in bench.messages] == [message["ts"]]


def test_posts_are_limited_per_channel(bench: Bench) -> None:
    bench.slack.channels["C000000002"] = type(bench.slack.channels["C000000001"])(id="C000000002", name="other")
    bench.intake.routing = bench.courier.composer.routing = Routing(
        "#gpu-alerts", (Route({"node": frozenset({"n2"})}, "#other"),)
    )
    bench.slack.inject("chat.postMessage", "ratelimit", seconds=30)
    bench.receive(raw_alert(node="n1"), groupKey="a")
    bench.deliver(1)
    bench.receive(raw_alert(node="n2"), groupKey="b")
    bench.deliver(10)
    assert bench.messages == []
    assert len(bench.slack.messages("other")) == 1
    bench.deliver()
    assert len(bench.messages) == 1


def test_slack_away_for_an_hour_each_incident_is_one_message_in_its_final_state(bench: Bench) -> None:
    started = bench.clock.time
    bench.slack.down()
    for number in range(60):  # one a minute: half of them end again
        name = f"n{number}"
        alert = raw_alert(node=name, cluster=name, starts_at=bench.clock.time)
        bench.receive(alert, groupKey=name)
        if number % 2:
            ended = raw_alert(
                node=name, cluster=name, firing=False, starts_at=bench.clock.time, ends_at=bench.clock.time + 20
            )
            bench.receive({**ended, "fingerprint": alert["fingerprint"]}, groupKey=name)
        bench.deliver(60)
    assert bench.clock.time - started > 3000
    bench.slack.up()
    bench.deliver(3600)
    assert len(bench.messages) == 60
    assert sum("Resolved" in message["text"] for message in bench.messages) == 30
    assert all(message["versions"] == [] and message["replies"] == [] for message in bench.messages)
    assert bench.depth() == 0


def test_the_dead_are_listed_and_replayed_beside_the_running_service(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.slack.inject("chat.postMessage", "error", times=4, error="invalid_blocks")
    bench.receive(FIRING)
    bench.deliver()
    folder = f"--storage.path={tmp_path / 'store'}"
    assert main.run(["replay", folder, "--list"], {}) == 0
    assert "root   invalid_blocks" in capsys.readouterr().out
    assert main.run(["replay", folder, "nothing"], {}) == 2
    assert "no dead operation nothing" in capsys.readouterr().err
    assert bench.messages == []
    assert main.run(["replay", folder], {}) == 0
    bench.deliver()
    assert len(bench.messages) == 1
    assert main.run(["replay", "--storage.path=/nonexistent"], {}) == 2


def test_a_slack_that_is_away_is_called_once_a_minute_however_much_waits(bench: Bench) -> None:
    bench.slack.down()
    for n in range(60):
        bench.receive(raw_alert(alertname=f"Alert{n}", node=f"gpu-{n}", cluster=f"c{n}"))
    attempts: list[float] = []
    real = bench.courier._count
    bench.courier._count = lambda method, outcome: (attempts.append(bench.clock.time), real(method, outcome))  # type: ignore[method-assign,func-returns-value]
    bench.deliver(600)
    assert len(attempts) < 30
    bench.slack.up()
    bench.deliver(600)
    assert len(bench.messages) == 60
    assert bench.depth() == 0
