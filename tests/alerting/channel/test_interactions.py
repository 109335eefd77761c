"""Buttons and commands: from the click in the fake Slack over a real WebSocket to the silence, and to the message."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from alerting_fakes import raw_alert, training_incident, wait_until
from alerting_talking import ALICE, BOB, Talking
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_alerting.channel import answers
from pyrometer_alerting.channel.silences import SilenceRefusedError, silences_for
from pyrometer_alerting.incidents.alertmanager import Matcher
from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.incidents.storage.store import StoreError
from pyrometer_alerting.model.incident import Alert, Cause, Diagnosis
from pyrometer_alerting.model.routing import Routing, Rules


def test_a_stop_waits_for_no_time_out_of_the_connection(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talking.service._listener is not None
    wait_until(lambda: talking.service._listener.connected)
    client = talking.service._listener._client
    assert client is not None
    read = client.message_queue.get
    asked = threading.Event()

    def patient(timeout: float) -> Any:
        asked.set()
        return read(timeout=60 * timeout)

    monkeypatch.setattr(client.message_queue, "get", patient)
    assert asked.wait(10)
    started = time.monotonic()
    talking.service.stop()
    assert time.monotonic() - started < 10  # it gives its threads 15 s


FAULT = raw_alert(node="gpu-042", gpu="3", starts_at=time.time() - 30)


def test_acknowledging_is_shown_in_the_message_and_written_down(talking: Talking) -> None:
    talking.receive(FAULT)
    ack = talking.press("acknowledge")
    assert ack.seconds < 3.0
    wait_until(lambda: f"u0alice ({ALICE}) is on it" in str(talking.message["blocks"]))
    assert "pyrometer_acknowledge" not in str(talking.message["blocks"])
    wait_until(lambda: "is looking into it" in str(talking.message["replies"]))
    assert talking.audit() == [("acknowledge", f"u0alice ({ALICE})")]


def test_a_silence_is_previewed_made_shown_and_ended(talking: Talking) -> None:
    talking.receive(FAULT)
    talking.press("silence_4h")
    wait_until(lambda: talking.slack.app.views)
    (view,) = talking.slack.app.views
    shown = view["blocks"][0]["text"]["text"]
    assert "For 4 h, 1 alert firing now" in shown
    assert 'alertname="GpuLost", cluster="c1", node="gpu-042", gpu="3"' in shown
    assert "GpuLost gpu-042 GPU 3" in shown
    assert talking.alertmanager.made == []
    talking.slack.app.submit(view, ALICE, {"reason": {"reason": {"value": "swap <!channel>"}}})
    wait_until(lambda: talking.alertmanager.made)
    ((matchers, ends_at, by, why),) = talking.alertmanager.made
    assert Matcher("gpu", "3") in matchers
    assert ends_at == pytest.approx(time.time() + 4 * 3600, abs=60)
    assert by == f"u0alice ({ALICE})"
    assert why == "swap <!channel>"
    wait_until(talking.whispers)
    assert talking.whispers() == ["Silenced for 4 h: 1 silence in Alertmanager."]
    talking.alertmanager.known = [
        type(seen)(**{**seen.__dict__, "muted": True, "silenced_by": ("s1",)}) for seen in talking.alertmanager.known
    ]
    wait_until(lambda: f"silenced by u0alice ({ALICE}) until" in str(talking.message["blocks"]))
    wait_until(lambda: "silenced it for 4 h: swap &lt;!channel&gt;" in str(talking.message["replies"]))
    talking.press("unsilence")
    wait_until(lambda: talking.alertmanager.ended == ["s1"])
    assert [action for action, _user in talking.audit()] == ["unsilence", "silence"]


@pytest.mark.parametrize("cut", ["_remember", "note_done"])
def test_a_silence_that_was_cut_off_from_its_click_is_neither_made_nor_told_again(
    talking: Talking, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """As when the service is killed there: the click is still in its box, and done again."""
    talking.receive(FAULT)
    talking.press("silence_1h")
    wait_until(lambda: talking.slack.app.views)
    interactions, cuts = talking.service._interactions, []
    original = getattr(interactions, cut)

    def once(*given: Any) -> None:
        cuts.append(given)
        if len(cuts) == 1:
            raise StoreError("the connection is gone")
        original(*given)

    monkeypatch.setattr(interactions, cut, once)
    talking.slack.app.submit(talking.slack.app.views[0], ALICE, {"reason": {"reason": {"value": "swap"}}})
    wait_until(lambda: len(cuts) == 2 and talking.whispers())
    wait_until(lambda: "silenced it for 1 h" in str(talking.message["replies"]))
    time.sleep(0.5)
    assert len(talking.alertmanager.made) == 1
    assert [action for action, _user in talking.audit()] == ["silence"]
    assert ["silenced it" in reply["text"] for reply in talking.message["replies"]].count(True) == 1


def test_two_silences_of_one_person_with_other_words_are_two(talking: Talking) -> None:
    talking.receive(FAULT)
    for number, words in enumerate(("swap", "firmware")):
        talking.press("silence_1h")
        wait_until(lambda number=number: len(talking.slack.app.views) == number + 1)
        talking.slack.app.submit(talking.slack.app.views[number], ALICE, {"reason": {"reason": {"value": words}}})
        wait_until(lambda number=number: len(talking.alertmanager.made) == number + 1)


def test_who_is_not_on_the_list_is_refused_and_written_down(talking: Talking) -> None:
    talking.receive(FAULT)
    talking.press("acknowledge", BOB)
    wait_until(talking.whispers)
    assert "not on the list" in talking.whispers()[0]
    talking.press("silence_1h")
    wait_until(lambda: talking.slack.app.views)
    talking.slack.app.submit(talking.slack.app.views[0], BOB)
    wait_until(lambda: len(talking.whispers()) == 2)
    assert talking.alertmanager.made == []
    assert talking.audit() == [("refused", f"u0bob ({BOB})")] * 2
    assert "acknowledged" not in str(talking.message["blocks"])


def test_an_alertmanager_that_is_away_is_said_and_nothing_is_silenced(talking: Talking) -> None:
    talking.receive(FAULT)
    talking.alertmanager.silent = True
    talking.press("silence_1h")
    wait_until(talking.whispers)
    assert talking.whispers() == ["Not silenced: Alertmanager did not answer (ConnectionError)."]
    assert talking.slack.app.views == []


def test_a_metric_says_whether_socket_mode_is_connected(talking: Talking) -> None:
    wait_until(lambda: b"socket_mode_connected 1.0" in talking.service.metrics.render())
    talking.service.courier.limits._parked = {"#x": ("is_archived", 0.0)}
    said = talking.service.metrics.render()
    assert b'channel_unreachable{channel="#x",reason="is_archived"} 1.0' in said


def test_commands_answer_the_one_who_asks(talking: Talking) -> None:
    assert talking.slack.app.command("status", ALICE).payload["text"] == "\u2705 Nothing fires."
    talking.receive(FAULT)
    ack = talking.slack.app.command("status", ALICE)
    assert ack.payload["response_type"] == "ephemeral"
    assert "GpuLost summary: gpu-042 GPU 3 for " in ack.payload["text"]
    assert talking.slack.app.command("muted", ALICE).payload["text"] == "Nothing is muted."
    assert "No incident of run &lt;!here&gt;" in talking.slack.app.command("why <!here>", ALICE).payload["text"]
    assert "/pyrometer status" in talking.slack.app.command("", ALICE).payload["text"]


def test_the_node_and_the_command_that_drains_it(talking: Talking) -> None:
    talking.receive(FAULT)
    talking.press("node")
    talking.press("drain")
    wait_until(lambda: len(talking.whispers()) == 2)
    said = "\n".join(talking.whispers())
    assert "*gpu-042*\n\u2022 GpuLost gpu-042 GPU 3 for" in said
    assert "`scontrol update NodeName=gpu-042 State=DRAIN Reason=pyrometer_gpulost`" in said


def test_a_command_tells_no_more_than_the_channel_may_see(talking: Talking) -> None:
    talking.receive(raw_alert(node="gpu-042", gpu="3", tenant="acme-corp", annotations={"summary": "acme-corp is hot"}))
    talking.service._interactions.routing = Routing(  # type: ignore[union-attr]
        "#gpu-alerts", channels={"#gpu-alerts": Rules(labels=frozenset({"node", "gpu"}))}
    )
    said = talking.slack.app.command("status", ALICE).payload["text"]
    assert "[hidden] is hot: gpu-042 GPU 3" in said


def test_when_slack_asks_for_it_the_connection_is_made_anew(talking: Talking) -> None:
    opened = sum(call.method == "apps.connections.open" for call in talking.slack.calls)
    talking.slack.app.socket.refresh()
    wait_until(lambda: sum(call.method == "apps.connections.open" for call in talking.slack.calls) > opened)
    wait_until(lambda: talking.slack.app.socket.connected)
    wait_until(lambda: talking.service._listener.connected)  # type: ignore[union-attr]
    assert "Nothing fires" in talking.slack.app.command("status", ALICE).payload["text"]


def test_nothing_of_the_tokens_or_the_ticket_is_logged(talking: Talking, caplog: pytest.LogCaptureFixture) -> None:
    talking.slack.app.socket.hang_up()
    talking.receive(FAULT)
    talking.press("acknowledge") if talking.slack.app.socket.connected else None
    for secret in ("xoxb-test", "xapp-fake-token", "secret-ticket"):
        assert secret not in caplog.text


def member(name: str, number: int, **labels: str) -> Alert:
    return Alert(f"{name}{number}", True, {"alertname": name, "cluster": "c", **labels}, {}, 0.0)  # noqa: FBT003


def test_silences_are_as_narrow_as_the_labels_allow() -> None:
    ports = [member("NicLinkDown", n, node=f"n.{n}", device="mlx5_0", port="1") for n in range(2)]
    incident = fold(None, ports, 0, 0.0)
    assert incident is not None
    assert [str(each) for each in silences_for(incident.incident)[0]] == [
        'alertname="NicLinkDown"', 'cluster="c"', 'node=~"n\\\\.0|n\\\\.1"', 'device="mlx5_0"', 'port="1"',
    ]  # fmt: skip
    both = fold(None, [member("GpuLost", 1, node="n", gpu="1"), member("TrainMfuDropped", 2, run="r")], 0, 0.0)
    assert both is not None
    assert len(silences_for(both.incident)) == 2
    bare = fold(None, [Alert("f", True, {"alertname": "X"}, {}, 0.0)], 0, 0.0)  # noqa: FBT003
    assert bare is not None
    with pytest.raises(SilenceRefusedError):
        silences_for(bare.incident)


@pytest.mark.parametrize(
    ("domain", "place"), [("n1", 'node="n1"'), ("rack r07", 'rack="r07"'), ("rack r08", 'node="n1", gpu=~"0|1|2"')]
)
def test_a_silence_of_an_incident_named_after_a_place_is_of_that_place(domain: str, place: str) -> None:
    hot = [member("GpuThrottledThermal", n, node="n1", gpu=str(n), rack="r07") for n in range(3)]
    incident = fold(None, hot, 0, 0.0)
    assert incident is not None
    (matchers,) = silences_for(replace(incident.incident, domain=domain))
    assert ", ".join(map(str, matchers)).startswith(f'alertname="GpuThrottledThermal", cluster="c", {place}')


@given(st.text(), st.text(), st.text())
def test_a_drain_command_cannot_be_broken_out_of(node: str, name: str, gpu: str) -> None:
    change = fold(None, [member(name, 1, node=node, gpu=gpu)], 0, 0.0)
    assert change is not None
    said = answers.drain(change.incident, "slurm")
    assert said.count("`") in (0, 2)
    assert "\n" not in said
    assert "<" not in said


def test_why_gives_the_causes_of_the_newest_trouble() -> None:
    cause = Cause("n1 GPU 3", "heat", ("92 C",), score=100.0, labels={"node": "n1", "gpu": "3"})
    incident = training_incident(diagnosis=Diagnosis(0.0, (cause,)))
    said = answers.why("llama-70b", [incident], incident.started_at + 60)
    assert "1. n1 GPU 3: heat\n\u2022 92 C" in said
    assert "(fires for 60 s)" in said


def test_who_is_not_listed_may_not_read_either(talking: Talking) -> None:
    talking.receive(FAULT)
    said = talking.slack.app.command("status", BOB).payload["text"]
    assert "not on the list" in said
    assert "gpu-042" not in said
    wait_until(lambda: [row[0] for row in talking.audit()] == ["refused"])


def test_an_envelope_that_comes_again_does_nothing_again(talking: Talking) -> None:
    interactions = talking.service._interactions
    assert interactions is not None
    assert not interactions.is_done("e1")
    interactions.note_done("e1")
    assert interactions.is_done("e1")
    for n in range(600):
        interactions.note_done(f"n{n}")
    assert not interactions.is_done("e1")
    with interactions._store.transaction() as tx:
        assert len(tx.facts("envelope:")) == 500


def test_a_guest_from_another_workspace_may_press_nothing(talking: Talking) -> None:
    talking.service._interactions.users = frozenset({"*"})  # type: ignore[union-attr]
    talking.receive(raw_alert(node="gpu-042", gpu="3"))
    talking.slack.app.press(talking.message, "pyrometer_acknowledge", "U0STRANGER", team="T0OTHERS")
    wait_until(talking.whispers)
    assert "member of this workspace" in talking.whispers()[0]
    assert not any(action == "acknowledge" for action, _user in talking.audit())
    talking.press("acknowledge", BOB)
    wait_until(lambda: any(action == "acknowledge" for action, _user in talking.audit()))
