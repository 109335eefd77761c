"""The answer again and again: what the node's condition says, when it is written, and what is said at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.exporters.commands.check.test_main import flags

from pyrometer_exporters.commands.check.standing import HEARTBEAT_SECONDS, STOPPED, node_condition
from pyrometer_exporters.framework.api_server import ApiServer

START = 1_764_400_000.0
FIRST, UNFIT = "2025-11-29T07:06:40Z", "hca_links: 7 of 8 links are up: mlx5_3/1 DOWN, Polling"


class Server(ApiServer):
    """A node's object, patched as the API server does; or an answer that is none."""

    def __init__(self) -> None:
        super().__init__(("nowhere", 0))
        self.conditions = [{"type": "Ready", "status": "True"}]
        self.answer: bytes | None = None
        self.patches = 0

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> bytes:
        assert path.partition("?")[0] == "/api/v1/nodes/gpu-001/status"
        if method == "PATCH":
            (new,) = json.loads(body or b"")["status"]["conditions"]
            self.conditions = [each for each in self.conditions if each["type"] != new["type"]] + [new]
            self.patches += 1
        return self.answer or json.dumps({"status": {"conditions": self.conditions}}).encode()

    @property
    def ours(self) -> dict[str, str]:
        (found,) = [each for each in self.conditions if each["type"] == "PyrometerUnfit"]
        return found


@pytest.fixture
def server() -> Server:
    return Server()


def write(server: Server, answer: str, after: float = 0.0) -> dict[str, str]:
    node_condition("gpu-001", server, lambda: START + after)(answer)
    return server.ours


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("fit", "False", "ChecksPassed"),
        (UNFIT, "True", "CheckFailed"),
        ("unknown: gpu_driver, gpu_count", "Unknown", "NotChecked"),
        ("unknown: /etc/pyrometer/checks.yaml:3: unknown check gpu_cont", "Unknown", "NotChecked"),
        (STOPPED, "Unknown", "NotChecked"),
    ],
)
def test_only_a_named_failure_is_true(server: Server, answer: str, status: str, reason: str) -> None:
    assert write(server, answer) == {
        "type": "PyrometerUnfit", "status": status, "reason": reason, "message": answer,
        "lastHeartbeatTime": FIRST, "lastTransitionTime": FIRST,
    }  # fmt: skip
    assert {"type": "Ready", "status": "True"} in server.conditions


def test_an_answer_that_stays_is_written_every_five_minutes(server: Server) -> None:
    for after in (0.0, 60.0, HEARTBEAT_SECONDS - 1):
        write(server, "fit", after)
    assert server.patches == 1
    assert write(server, "fit", HEARTBEAT_SECONDS)["lastHeartbeatTime"] == "2025-11-29T07:11:40Z"
    assert (server.patches, server.ours["lastTransitionTime"]) == (2, FIRST)
    write(server, "fit", -HEARTBEAT_SECONDS)  # the clock was set back
    assert server.patches == 3


def test_a_new_answer_is_written_at_once_and_only_another_status_is_a_transition(server: Server) -> None:
    write(server, UNFIT)
    found = write(server, f"{UNFIT}; gpu_count: 7 of 8 GPUs (stated)", 60.0)
    assert (found["lastTransitionTime"], found["lastHeartbeatTime"]) == (FIRST, "2025-11-29T07:07:40Z")
    assert write(server, "fit", 120.0)["lastTransitionTime"] == "2025-11-29T07:08:40Z"


def test_a_long_answer_is_cut(server: Server) -> None:
    found = write(server, f"hca_links: {'x' * 5000}")
    assert (len(found["message"]), found["message"][-4:]) == (1003, "x...")


@pytest.mark.parametrize("text", [b"[]", b"{", b"null", b'{"status": {"conditions": [7]}}', b'{"kind": "Status"}'])
def test_what_is_no_node_is_an_error_and_nothing_is_written(server: Server, text: bytes) -> None:
    server.answer = text
    with pytest.raises(ValueError, match=r"no node|Expecting"):
        node_condition("gpu-001", server)("fit")
    assert server.patches == 0


def looking(node: Any, *more: str) -> subprocess.Popen[str]:
    start = [sys.executable, "-m", "pyrometer_simulator.check", f"--gpus={node.gpus.path}", "--"]
    command = [*start, *flags(node, "--every=1", *more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(path: Path, line: str) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_text() != f"{line}\n":
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "no file"
        time.sleep(0.05)


def test_the_file_has_the_newest_answer_and_at_the_end_that_nobody_looks(node: Any, tmp_path: Path) -> None:
    node.look(keep=True)
    answer = tmp_path / "answer"
    with looking(node, f"--path.answer={answer}") as process:
        until(answer, "fit")
        node.tree.nic("mlx5_3").down()
        until(answer, UNFIT)
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert out.splitlines() == ["fit", UNFIT, STOPPED]
    assert answer.read_text() == f"{STOPPED}\n"


def test_what_cannot_be_written_is_said_once_and_the_looks_go_on(node: Any, tmp_path: Path) -> None:
    node.look(keep=True)
    with looking(node, f"--path.answer={tmp_path}/away/answer") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "fit\n"
        node.tree.nic("mlx5_3").down()
        assert process.stdout.readline() == f"{UNFIT}\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert errors.count("\n") == 1
    assert errors.startswith(f"pyrometer-check: can't write {tmp_path}/away/answer: [Errno 2]")


@pytest.mark.parametrize("flag", ["--kubernetes.node=gpu-001", "--path.answer=/x"])
def test_without_a_time_there_is_nobody_to_keep_it_up(node: Any, flag: str) -> None:
    command = [sys.executable, "-m", "pyrometer_exporters.commands.check.main", *flags(node, flag)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"pyrometer-check: {flag.partition('=')[0]}: only with --every\n"


def test_a_mistake_in_the_file_is_unknown_until_it_is_mended(node: Any, tmp_path: Path) -> None:
    node.look(keep=True)
    before = node.config.read_text() if node.config.exists() else ""
    node.config.write_text("checks: {gpu_cont: off}\n")
    answer = tmp_path / "answer"
    with looking(node, f"--path.answer={answer}") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"unknown: {node.config}:1:")
        node.config.write_text(before)
        until(answer, "fit")
        process.terminate()
        process.communicate(timeout=30)
