"""A message pings three times in ten minutes, whatever comes and goes; what matters is told at once."""

from __future__ import annotations

import itertools
from typing import Any

from alerting_fakes import Bench, raw_alert

from pyrometer_alerting.app.trouble import held_lines
from pyrometer_alerting.incidents.storage.operation import OUR_LIMIT, QUIET
from pyrometer_alerting.incidents.storage.outbox import CALLS_SECONDS, MOST_PINGS
from pyrometer_alerting.model import text


def slow(bench: Bench, *, firing: bool, began: float, **labels: Any) -> dict[str, Any]:
    now = bench.clock.time
    return raw_alert(
        "TrainMfuDropped", run="llama", component="train", firing=firing, starts_at=began, ends_at=now, **labels
    )


PINGS, ALL = ("chat.postMessage",), ("chat.postMessage", "chat.update")


def times(bench: Bench, seconds: float, step: float = 5.0, counted: tuple[str, ...] = PINGS) -> list[float]:
    """Let the service work for so long; return when it called Slack about a message."""
    made = []
    for _each in range(round(seconds / step)):
        bench.deliver()
        made += [bench.clock.time for call in bench.calls_on_cards() if call.method in counted]
        bench.slack.calls.clear()
        bench.clock.advance(step)
    return made


def most_in_a_window(made: list[float]) -> int:
    return max(sum(begin <= at < begin + CALLS_SECONDS for at in made) for begin in made)


def test_what_comes_and_goes_all_the_time_costs_no_more(bench: Bench) -> None:
    made = []
    for _turn in range(12):
        began = bench.clock.time
        bench.receive(slow(bench, firing=True, began=began))
        made += times(bench, 60)
        bench.receive(slow(bench, firing=False, began=began))
        made += times(bench, 60)
    assert len(made) > MOST_PINGS
    assert most_in_a_window(made) <= MOST_PINGS
    made += times(bench, CALLS_SECONDS)
    assert bench.messages[0]["text"].startswith("✅")
    assert bench.messages[0]["replies"][-1]["text"].startswith("✅")


def test_a_reply_that_our_limit_holds_back_is_on_the_page_with_its_age_from_the_first_wish(bench: Bench) -> None:
    began = ended = bench.clock.time
    for firing in (True, False, True, False):
        began, ended = (bench.clock.time, ended) if firing else (began, bench.clock.time)
        bench.receive(slow(bench, firing=firing, began=began))
        for _step in range(60):
            bench.deliver(0.5)
            bench.clock.advance(1)
    age = text.duration(bench.clock.time - ended)
    what = "a reply on TrainMfuDropped llama in #gpu-alerts"
    (line,) = held(bench)
    assert f"{what}, since {text.utc(ended)} ({age} ago); it goes out in 6 min." in line
    bench.clock.advance(CALLS_SECONDS)
    bench.deliver()
    assert held(bench) == []


def test_a_reply_that_replaces_a_held_one_waits_since_the_first_wish(bench: Bench) -> None:
    now = bench.clock.time
    with bench.store.transaction() as tx:
        for after in (0, 40, 90):
            tx.outbox.reply("incident", '{"text": "x"}', now + after, now + 600)
    bench.clock.advance(100)
    (line,) = held(bench)
    assert f"since {text.utc(now)} (100 s ago); it goes out in 500 s" in line.replace("8 min", "500 s")


def test_what_quiet_hours_and_the_limit_of_an_outlet_hold_back_is_on_the_page_since_the_first_wish(
    bench: Bench,
) -> None:
    bench.store.outlets = ("mail",)
    now = bench.clock.time
    bench.receive(slow(bench, firing=True, began=now))
    with bench.store.transaction() as tx:
        for box, why in ((tx.outbox, QUIET), (tx.outbox_of("mail"), OUR_LIMIT)):
            root = next(iter(box.due()))
            box.postpone(root.op_id, now + 3600, why)
    bench.clock.advance(600)
    with bench.store.snapshot() as tx:
        message, notice = held_lines(tx, bench.channel, bench.clock.time, bench.store.outlets)
        assert tx.outbox.depth()[1] == tx.outbox_of("mail").depth()[1] == now + 3600
    assert "by quiet hours: the message on TrainMfuDropped llama in #gpu-alerts, since" in message
    assert "(10 min ago); it goes out in 50 min." in message
    assert "pinged less often: a notice on TrainMfuDropped llama in outlet mail, since" in notice


def held(bench: Bench) -> list[str]:
    with bench.store.snapshot() as tx:
        return held_lines(tx, bench.channel, bench.clock.time)


def test_every_message_is_green_right_after_its_end_and_red_right_after_its_return(bench: Bench) -> None:
    for _turn in range(9):
        began = bench.clock.time
        bench.receive(slow(bench, firing=True, began=began))
        times(bench, 5)
        assert not bench.messages[0]["text"].startswith("✅")
        bench.clock.advance(20)
        bench.receive(slow(bench, firing=False, began=began))
        times(bench, 5)
        assert bench.messages[0]["text"].startswith("✅")
        bench.clock.advance(30)


def test_an_end_that_nobody_was_told_of_needs_no_return(bench: Bench) -> None:
    for _turn in range(6):
        began = bench.clock.time
        bench.receive(slow(bench, firing=True, began=began))
        times(bench, 30)
        bench.receive(slow(bench, firing=False, began=began))
        times(bench, 30)
    said = [reply["text"][0] for reply in bench.messages[0]["replies"]]
    assert all(one != other for one, other in itertools.pairwise(said)), said


def test_what_is_worse_is_told_whatever_was_told_before(bench: Bench) -> None:
    for _turn in range(5):
        began = bench.clock.time
        bench.receive(slow(bench, firing=True, began=began, severity="warning"))
        times(bench, 30)
        bench.receive(slow(bench, firing=False, began=began, severity="warning"))
        times(bench, 30)
    bench.receive(slow(bench, firing=True, began=bench.clock.time, severity="warning"))
    times(bench, 5)
    worse = raw_alert("TrainStalled", run="llama", component="train", severity="critical", starts_at=bench.clock.time)
    bench.receive(worse)
    assert times(bench, 5)
    assert any("Worse" in reply["text"] for reply in bench.messages[0]["replies"])


def test_a_run_that_is_slow_again_and_again_beside_its_cause_costs_no_more(bench: Bench) -> None:
    heat = raw_alert("TrainStraggler", run="llama", component="train", severity="critical")
    made = []
    for _turn in range(8):
        began = bench.clock.time
        bench.receive(heat)
        bench.receive(slow(bench, firing=True, began=began))
        made += times(bench, 40)
        bench.receive(slow(bench, firing=False, began=began))
        made += times(bench, 40)
    assert most_in_a_window(made) <= MOST_PINGS


def test_a_run_that_is_slow_again_is_told_with_its_cause_in_one(bench: Bench) -> None:
    heat: dict[str, Any] = {"node": "n1", "gpu": "3", "run": "llama"}
    began = bench.clock.time
    bench.receive(slow(bench, firing=True, began=began))
    bench.deliver()
    bench.receive(slow(bench, firing=False, began=began))
    times(bench, 60)
    bench.receive(raw_alert("TrainStraggler", component="train", starts_at=bench.clock.time, **heat))
    bench.receive(slow(bench, firing=True, began=bench.clock.time))
    assert len(times(bench, 120, counted=ALL)) <= 3
