"""The demo's parts as containers: the room they share, and the channel as the director sees it from outside."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator.demo import containers
from pyrometer_simulator.demo.containers import Room, main
from pyrometer_simulator.demo.observe import RemoteSlack
from pyrometer_simulator.demo.topology import CHANNEL, NODES
from pyrometer_simulator.slack import FakeSlack


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(containers.topology, "NODES", NODES[:1])


def test_everybody_waits_for_the_hardware_and_finds_it(tmp_path: Path) -> None:
    found: list[Path] = []
    waiting = threading.Thread(target=lambda: found.append(Room(tmp_path).wait()))
    waiting.start()
    nodes = Room(tmp_path).make()
    waiting.join(5)
    assert (found[0] / NODES[0] / "gpus").is_file()
    assert list(nodes) == [NODES[0]]


def test_new_hardware_ends_those_who_are_on_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr("os.kill", lambda _pid, number: ended.set() if number == signal.SIGTERM else None)
    room = Room(tmp_path)
    room.make()
    old = room.wait()
    assert not ended.wait(0.1)
    room.make()
    assert ended.wait(5)
    assert not old.exists()
    assert room.wait() != old


def test_a_node_keeps_its_state_over_new_hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(containers.node, "main", lambda argv: started.append(argv) or 0)
    monkeypatch.setattr("os.kill", lambda *_: None)
    for _ in range(2):
        Room(tmp_path).make()
        assert main([f"--room={tmp_path}", "node", NODES[0]]) == 0
    states = {flag for argv in started for flag in argv if flag.startswith("--path.state")}
    assert states == {f"--path.state={tmp_path / 'state' / NODES[0]}"}
    assert len({argv[0] for argv in started}) == 2


def test_the_director_sees_the_channel_of_a_slack_elsewhere() -> None:
    with FakeSlack(channel_names=(CHANNEL,)) as slack:
        seen = RemoteSlack(slack.page_url.rstrip("/"), every_seconds=0)
        assert seen.messages(CHANNEL) == []
        message: dict[str, Any] = {"channel": CHANNEL, "text": "hello", "token": "xoxb-fake-token"}
        slack.answer("chat.postMessage", message, "")
        assert [found["text"] for found in seen.messages(CHANNEL)] == ["hello"]
        assert len(seen.calls) == len(slack.calls) == 1  # looking is no call
        slack.down()
        assert [found["text"] for found in seen.messages(CHANNEL)] == ["hello"]
