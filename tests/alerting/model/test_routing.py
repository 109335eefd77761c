"""Who hears what, where and when; and every mistake in the file with its line."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from alerting_fakes import Bench, alert, raw_alert, training_incident

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.messages import build
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.incident import Cause, Diagnosis, to_json
from pyrometer_alerting.model.routing import Routing, Rules, load
from pyrometer_kit.errors import UsageError

GOOD = """
slack:
  channel: "#gpu-alerts"
routing:
  routes:
    - match: {component: nic}
      channel: "#fabric"
    - match: {cluster: [a, b], severity: critical}
      channel: C0123456789
  channels:
    "#fabric":
      mentions: {critical: [here, U0ABCDEF, "@S0ABCDEF"]}
      quiet-hours: {from: "22:00", to: "07:00", timezone: Europe/Berlin}
      labels: [cluster, node, device, port]
"""

QUIET = "routing:\n  channels:\n    '#gpu-alerts':\n      quiet-hours:\n"


def read(tmp_path: Path, content: str) -> Routing:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    return load(file, "#gpu-alerts")


def test_the_first_route_that_matches_names_the_channel(tmp_path: Path) -> None:
    routing = read(tmp_path, GOOD)
    assert routing.channel(alert(labels={"component": "nic", "cluster": "a"})) == "#fabric"
    assert routing.channel(alert(labels={"cluster": "b"})) == "C0123456789"
    assert routing.channel(alert(labels={"cluster": "b", "severity": "warning"})) == ""
    assert load(None, "#gpu-alerts").channel(alert()) == ""


def test_a_channel_gets_the_digest_of_its_clusters_beside_that_of_all(tmp_path: Path) -> None:
    each = "routing:\n  channels:\n    '#prod-a':\n      digest: [prod-a]\n    '#b':\n      digest: [b1, b2]\n"
    assert read(tmp_path, each).digests() == [("", ()), ("#prod-a", ("prod-a",)), ("#b", ("b1", "b2"))]
    own = "routing:\n  channels:\n    '#gpu-alerts':\n      digest: [prod-a]\n"
    assert read(tmp_path, own).digests() == [("", ("prod-a",))]
    assert read(tmp_path, GOOD).digests() == [("", ())]


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("routing:\n  rotes: []", 2, "unknown setting rotes; known are channels, owners, reminder, routes"),
        ("routing:\n  routes:\n    - match: {a: b}", 3, "a route needs channel"),
        ("routing:\n  routes:\n    - channel: '#x'", 3, "a route needs match"),
        ("routing:\n  routes:\n    - match: {}\n      channel: '#x'", 3, "match needs at least one label"),
        ("routing:\n  routes:\n    - match: {a: b}\n      channel: fabric", 4, "fabric: expected a channel"),
        ("routing:\n  routes: {a: b}", 2, "expected a list"),
        ("routing:\n  channels:\n    '#y': {}", 3, "no route leads to #y"),
        ("routing:\n  channels:\n    '#gpu-alerts':\n      mentions: {critcal: [here]}", 4, "unknown setting critcal"),
        ("routing:\n  channels:\n    '#gpu-alerts':\n      mentions: {critical: [bob]}", 4, "bob: expected here"),
        ("routing:\n  channels:\n    '#gpu-alerts':\n      quiet-hours: {from: '22:00'}", 4, "quiet-hours need to"),
        (
            f"{QUIET}        from: 22:00\n        to: '7'\n        timezone: UTC",
            6,
            "expected a time of day",
        ),
        (
            f"{QUIET}        from: '1:00'\n        to: '7:00'\n        timezone: Mars/Base",
            7,
            "Mars/Base: unknown time zone",
        ),
        ("routing:\n  routes: []\n  routes: []", 3, "routes is given twice"),
        (
            "routing:\n  channels:\n    '#a':\n      digest: [prod-a]\n      labels: [node]",
            4,
            "a channel that hides labels gets none",
        ),
        ("routing:\n  channels:\n    '#a':\n      digest: prod-a", 4, "expected a list"),
        ("routing: text", 1, "expected settings as"),
    ],
)
def test_every_mistake_is_one_line_with_its_place(tmp_path: Path, content: str, line: int, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, content)
    assert f"config.yaml:{line}: " in str(raised.value)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-01-12T20:59", None),
        ("2026-01-12T21:00", "2026-01-13T06:00"),  # Berlin is an hour ahead of UTC
        ("2026-01-13T05:59", "2026-01-13T06:00"),
        ("2026-01-13T06:00", None),
    ],
)
def test_quiet_hours_are_those_of_the_zone_and_go_over_midnight(tmp_path: Path, now: str, until: str | None) -> None:
    quiet = read(tmp_path, GOOD).rules("#fabric").quiet
    assert quiet is not None
    at = datetime.fromisoformat(now).replace(tzinfo=timezone.utc).timestamp()
    expected = at if until is None else datetime.fromisoformat(until).replace(tzinfo=timezone.utc).timestamp()
    assert quiet.until(at) == expected


def test_a_channel_shows_only_the_labels_that_it_may(tmp_path: Path) -> None:
    routing = read(tmp_path, GOOD)
    secret = alert(
        labels={"component": "nic", "node": "n1", "device": "mlx5_0", "port": "1", "tenant": "acme-corp", "user": "jo"},
        annotations={"summary": "n1 of acme-corp flaps", "description": "tenant acme-corp, node n1"},
    )
    change = fold(None, [secret], 0, 0.0)
    assert change is not None
    incident = replace(change.incident, channel="#fabric")
    message = build(routing.redacted(incident), Style())
    shown = message.text + str(message.blocks)
    assert "acme" not in shown
    assert "[hidden] flaps" in shown
    assert "n1 mlx5_0/1" in shown
    assert routing.redacted(training_incident()) == training_incident()  # no list for the other channel


def test_each_channel_gets_its_own_and_one_that_is_archived_does_not_hold_the_others_up(
    bench: Bench, tmp_path: Path
) -> None:
    bench.slack.channels["C000000002"] = type(bench.slack.channels["C000000001"])(id="C000000002", name="fabric")
    routing = read(tmp_path, GOOD.replace("      labels: [cluster, node, device, port]\n", ""))
    bench.intake.routing = bench.courier.composer.routing = routing
    bench.clock.time = datetime(2026, 1, 12, 12, tzinfo=timezone.utc).timestamp()
    flap = raw_alert("NicLinkFlapping", component="nic", node="n1", device="mlx5_0", port="1")
    bench.receive(flap, groupKey="a")
    bench.receive(raw_alert(node="n2", gpu="1"), groupKey="b")
    bench.deliver()
    (fabric,) = bench.slack.messages("fabric")
    assert fabric["text"].startswith("<!here> <@U0ABCDEF> <!subteam^S0ABCDEF> ")
    assert "n2 GPU 1" in bench.messages[0]["text"]
    assert not {"<!here>", "<@"} & set(bench.messages[0]["text"].split())
    bench.slack.channel("fabric").archived = True
    bench.receive(raw_alert("NicLinkDown", component="nic", node="n7", device="mlx5_0", port="1"), groupKey="c")
    bench.receive(raw_alert(node="n3", gpu="1"), groupKey="d")
    bench.deliver(30)
    assert bench.courier.parked == {"#fabric": "is_archived"}
    said = [message["text"] + str(message["blocks"]) for message in bench.messages]
    assert len(said) == 3
    assert any("n7 mlx5_0/1" in text and "not possible in #fabric" in text for text in said)
    assert bench.courier.blocked == ""


def test_in_quiet_hours_a_warning_waits_and_a_critical_does_not(bench: Bench, tmp_path: Path) -> None:
    bench.slack.channels["C000000002"] = type(bench.slack.channels["C000000001"])(id="C000000002", name="fabric")
    bench.intake.routing = bench.courier.composer.routing = read(tmp_path, GOOD)
    night = datetime(2026, 1, 12, 23, tzinfo=timezone.utc).timestamp()
    bench.clock.time = night
    place = {"component": "nic", "device": "mlx5_0", "port": "1"}
    bench.receive(raw_alert("NicSymbolErrors", severity="warning", node="n1", **place), groupKey="a")
    bench.receive(raw_alert("NicLinkFlapping", node="n2", **place), groupKey="b")
    bench.deliver(600)
    (message,) = bench.slack.messages("fabric")
    assert "n2 mlx5_0/1" in message["text"]
    with bench.store.transaction() as tx:
        assert tx.outbox.depth()[1] == night + 7 * 3600  # it does not count as waiting for Slack
        waiting = next(one.id for one in tx.incidents() if one.alertname == "NicSymbolErrors")
        tx.outbox.request(waiting, bench.clock.time, bench.clock.time)  # a change, a diagnosis, a note
        tx.outbox.hasten(waiting, bench.clock.time)
    bench.restart()
    bench.courier.composer.routing = bench.intake.routing
    bench.deliver(600)
    assert len(bench.slack.messages("fabric")) == 1
    bench.clock.time = night + 7 * 3600
    bench.deliver()
    assert len(bench.slack.messages("fabric")) == 2


def test_a_rise_in_quiet_hours_is_told_at_once_with_its_mention(bench: Bench, tmp_path: Path) -> None:
    bench.slack.channels["C000000002"] = type(bench.slack.channels["C000000001"])(id="C000000002", name="fabric")
    bench.intake.routing = bench.courier.composer.routing = read(tmp_path, GOOD)
    bench.clock.time = datetime(2026, 1, 12, 12, tzinfo=timezone.utc).timestamp()
    place = {"component": "nic", "node": "n1", "device": "mlx5_0", "port": "1"}
    bench.receive(raw_alert("NicSymbolErrors", severity="warning", **place), groupKey="a")
    bench.deliver()
    bench.clock.time += 11 * 3600
    bench.receive(raw_alert("NicSymbolErrors", severity="critical", **place), groupKey="b")
    bench.deliver()
    (message,) = bench.slack.messages("fabric")
    (worse,) = [reply["text"] for reply in message["replies"] if "Worse: now critical" in reply["text"]]
    assert worse.startswith("<!here>")
    assert sum("<!here>" in reply["text"] for reply in message["replies"]) == 1, "the evidence mentions nobody"


def test_what_was_seen_and_why_a_cause_was_revised_is_redacted_too() -> None:
    hot = Cause("gpu-042 GPU 3", "heat", labels={"node": "gpu-042", "gpu": "3"}, confidence="low")
    fact = Fact("pressure", {"node": "gpu-099"}, "CPU", source='up{node="gpu-099"}')
    told = Diagnosis(
        1.0,
        (Cause("unknown", ""),),
        ("no data from gpu-099",),
        seen=(hot,),
        facts=(fact,),
        revision="gpu-042 GPU 3 (heat)",
    )
    shown = Routing(channels={"": Rules(labels=frozenset({"cluster"}))}).redacted(training_incident(diagnosis=told))
    assert shown.diagnosis is not None
    assert "gpu-042" not in to_json(shown)
    assert "gpu-099" not in to_json(shown)
