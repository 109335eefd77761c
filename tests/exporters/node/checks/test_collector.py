"""The collector: what it serves of a look, and what happens when a look fails or hangs."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.commands.check.report import as_json
from pyrometer_exporters.framework.collector import Context
from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.checks import collector
from pyrometer_exporters.node.checks.check import discover
from pyrometer_exporters.node.checks.collector import COLLECTOR, Asker, ChecksCollector, arguments_of
from pyrometer_exporters.node.gpu.collector import add_flags as add_gpu_flags
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.errors import UsageError


def context(folder: Path, *flags: str) -> Context:
    parser = argparse.ArgumentParser()
    COLLECTOR.add_flags(parser)
    add_gpu_flags(parser)
    given = parser.parse_args(flags)
    return Context(given, SystemClock(), folder / "sys", folder / "proc", folder, folder / "state", folder / "kmsg")


def collected(made: ChecksCollector) -> list[str]:
    items = [
        item for item in made.collect(0.0) if not isinstance(item, Sample) or item.family is not collector.LAST_RUN
    ]
    return [
        f"{item.family.name} {' '.join(item.labels)} {item.value:g}" if isinstance(item, Sample) else str(item)
        for item in items
    ]


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looks begin when a test says so."""
    monkeypatch.setattr(ChecksCollector, "_start", lambda _self: None)


def test_it_serves_what_the_checks_say(node: Any, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    node.tree.nic("mlx5_3").down()
    node.config.write_text("expect: {hcas: 8}\nchecks: {imex: off}\n")
    look = node.look("hca_links", "gpu_count", "stuck_processes", "fabric_manager")
    made = ChecksCollector(context(tmp_path), lambda: json.loads(as_json(look, fail_open=False)))
    assert collected(made) == []
    made.look()
    assert collected(made) == [
        "pyrometer_check_ok gpu_count 1",
        "pyrometer_check_ok hca_links 0",
        "pyrometer_check_reason_info hca_links 7 of 8 links are up: mlx5_3/1 DOWN, Polling critical 1",
        "pyrometer_check_ok stuck_processes 1",
    ]
    samples = [item for item in made.collect(0.0) if isinstance(item, Sample)]
    golden(Renderer().text(samples).decode().replace(repr(look.at), "TIME"), "golden/metrics.txt")
    times = [item for item in made.collect(0.0) if isinstance(item, Sample) and item.family is collector.LAST_RUN]
    assert [item.value for item in times] == [look.at] * 3


def test_what_could_not_be_run_is_absent_with_its_reason(node: Any, tmp_path: Path) -> None:
    node.files.mount("/data", "nfs4")
    node.files.disks.errors["/data"] = errno.EACCES
    look = node.look("network_mounts", stated="")
    made = ChecksCollector(context(tmp_path), lambda: json.loads(as_json(look, fail_open=False)))
    made.look()
    assert collected(made) == ["pyrometer_check_reason_info network_mounts /data: Permission denied critical 1"]


def test_a_look_that_fails_takes_the_old_answers_away(tmp_path: Path) -> None:
    answers: list[Mapping[str, Any]] = [
        {"at": 1.0, "notes": [], "checks": [{"check": "gpu_count", "state": "ok", "reason": ""}]}
    ]

    def ask() -> Mapping[str, Any]:
        if answers:
            return answers.pop()
        raise PartError("deadline", "no answer in 45 s")

    made = ChecksCollector(context(tmp_path), ask)
    made.look()
    assert collected(made) == ["pyrometer_check_ok gpu_count 1"]
    made.look()
    assert [*made.collect(0.0)] == [Down("look", "deadline", "no answer in 45 s")]


@pytest.mark.parametrize("told", [{}, {"at": 1, "notes": [], "checks": [{}]}, {"at": "x", "notes": [], "checks": []}])
def test_an_answer_that_is_none_is_a_reason_and_no_traceback(tmp_path: Path, told: Mapping[str, Any]) -> None:
    made = ChecksCollector(context(tmp_path), lambda: told)
    made.look()
    (down,) = made.collect(0.0)
    assert isinstance(down, Down)


def test_it_runs_the_command_with_the_exporters_paths(node: Any, tmp_path: Path) -> None:
    given = context(tmp_path, f"--collector.checks.config={node.config}", "--collector.gpu.device-exclude=3")
    arguments = arguments_of(given)
    assert f"--config.file={node.config}" in arguments
    assert "--collector.gpu.device-exclude=^(?:3)$" in arguments
    (tmp_path / "proc").symlink_to(node.tree.procfs)
    told = Asker(arguments).ask()
    known = {check.name for check in discover()}
    assert {each["check"] for each in told["checks"]} <= known
    assert "gpu_count" in {each["check"] for each in told["checks"]}
    assert (tmp_path / "state/checks.json").exists()


def test_a_configuration_that_cannot_be_used_ends_the_exporter_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("expect: {gpu: 8}\n")
    with pytest.raises(UsageError) as refused:
        ChecksCollector(context(tmp_path, f"--collector.checks.config={tmp_path}/bad.yaml"))
    assert str(refused.value).startswith(
        f"--collector.checks.config: {tmp_path}/bad.yaml:1: unknown setting gpu; known are cpus, driver"
    )


def asker(monkeypatch: pytest.MonkeyPatch, script: str, deadline: float = 10.0) -> Asker:
    monkeypatch.setattr(collector, "COMMAND", (sys.executable, "-c", script))
    return Asker([], deadline)


def test_a_process_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = asker(monkeypatch, "import time; time.sleep(60)", 0.3)
    began = time.monotonic()
    with pytest.raises(PartError, match="no answer in 0 s"):
        made.ask()
    assert time.monotonic() - began < 30


def test_one_that_does_not_end_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class InStateD:
        def poll(self) -> None:
            return None

    made = asker(monkeypatch, "print('{}')")
    monkeypatch.setattr(made, "_left", InStateD())
    with pytest.raises(PartError, match="has not exited"):
        made.ask()


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("import sys; sys.exit('pyrometer-check: no such thing')", "pyrometer-check: no such thing"),
        ("import sys; sys.exit(7)", "ended with status 7"),
    ],
)
def test_one_without_an_answer_says_why(monkeypatch: pytest.MonkeyPatch, script: str, detail: str) -> None:
    with pytest.raises(PartError, match=detail):
        asker(monkeypatch, script).ask()


def test_what_lies_in_the_folder_that_it_was_started_in_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may ask the doctor in /tmp, where anybody can leave a json.py."""
    for name in ("json", "yaml", "pyrometer_exporters"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger runs')\n")
    monkeypatch.chdir(tmp_path)
    report = Asker(["--json", "--only=uptime", f"--path.state={tmp_path}"], deadline=60).ask()
    assert "checks" in report
