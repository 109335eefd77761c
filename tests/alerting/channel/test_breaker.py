"""One breaker over everything that is done with Slack."""

from __future__ import annotations

import pytest
from alerting_fakes import Bench, raw_alert

from pyrometer_alerting.channel.breaker import AWAY, Breaker, SlackFailure, Trouble
from pyrometer_alerting.channel.incident_pictures import PictureUploader
from pyrometer_alerting.channel.socket_mode import _Client


def seconds(_failures: int) -> float:
    return 10.0


def test_after_a_failure_nobody_calls_until_the_wait_is_over() -> None:
    breaker = Breaker(seconds)
    breaker.check(0.0)
    breaker.record(SlackFailure(Trouble.SAFE, "unreachable"), 100.0)
    with pytest.raises(SlackFailure, match=AWAY) as refused:
        breaker.check(104.0)
    assert refused.value.retry_after == 6.0
    breaker.check(110.0)


@pytest.mark.parametrize("trouble", [Trouble.RATE, Trouble.AUTH, Trouble.CHANNEL, Trouble.PAYLOAD, Trouble.GONE])
def test_a_refusal_shows_that_slack_is_there(trouble: Trouble) -> None:
    breaker = Breaker(seconds)
    breaker.record(SlackFailure(Trouble.AMBIGUOUS, "http_500"), 100.0)
    breaker.record(SlackFailure(trouble, "x"), 101.0)
    breaker.check(101.0)


def test_pictures_are_not_uploaded_while_messages_find_slack_away_and_the_other_way_round(bench: Bench) -> None:
    uploader = PictureUploader(bench.web, lambda _: None, bench.courier.limits.breaker, bench.clock)
    bench.slack.down()
    bench.receive(raw_alert(node="n1"))
    bench.clock.advance(1.0)
    bench.courier.step()
    assert bench.courier.limits.breaker.open_until > bench.clock.time
    with pytest.raises(SlackFailure, match=AWAY):
        uploader.upload("a.png", b"x", "a")
    bench.clock.advance(120.0)
    with pytest.raises(SlackFailure, match="unreachable"):
        uploader.upload("a.png", b"x", "a")
    calls = bench.metrics.render()
    bench.courier.step()
    assert bench.metrics.render() == calls, "the message has to wait as well"
    bench.slack.up()
    bench.clock.advance(120.0)
    uploader.upload("a.png", b"x", "a")
    assert bench.courier.limits.breaker.open_until == 0
    bench.deliver(30)
    assert len(bench.messages) == 1


def test_the_connection_for_clicks_waits_for_the_same_breaker(bench: Bench) -> None:
    client = _Client("xapp-test", web_client=bench.web.client)
    client.breaker, client.clock = bench.courier.limits.breaker, bench.clock
    bench.slack.down()
    with pytest.raises(OSError, match="refused"):
        client.issue_new_wss_url()
    with pytest.raises(Exception, match="Slack is unreachable, next attempt in"):
        client.issue_new_wss_url()
    with pytest.raises(SlackFailure, match=AWAY):
        bench.courier.limits.breaker.check(bench.clock.time)
    client.close()
