"""A check that hangs, crashes or raises costs itself alone, and few processes are ever left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.checks import workers
from pyrometer_exporters.node.checks.check import Check, Verdict, Worker, failed, ok
from pyrometer_exporters.node.checks.node import Expected, Node, Paths
from pyrometer_exporters.node.checks.processes import read_processes

DEADLINE = 0.4


def check(name: str, run: Callable[[Any], Verdict], worker: Worker = "files") -> Check:
    return Check(name, "", "", "", "", run, worker=worker)


def hang(_node: Any) -> Verdict:
    time.sleep(60)
    return ok()


def crash(_node: Any) -> Verdict:
    os._exit(3)


def spoil(_node: Any) -> Verdict:
    msg = "no such thing"
    raise LookupError(msg)


def well(_node: Any) -> Verdict:
    return ok(seen=1)


def run(*checks: Check) -> dict[str, Verdict]:
    node = Node(Paths(), Expected({}, {}))
    return {name: answer.verdict for name, answer in workers.run_in_workers(checks, node, DEADLINE).items()}


def test_one_that_hangs_fails_for_that_and_the_next_one_runs() -> None:
    began = time.monotonic()
    answers = run(check("a", hang), check("b", well), check("c", hang, "mounts"), check("d", well, "gpus"))
    assert answers["a"] == answers["c"] == failed("no answer in 0 s: it hangs")
    assert answers["b"] == answers["d"] == ok(seen=1)
    assert list(answers) == ["a", "b", "c", "d"]
    assert time.monotonic() - began < 10 * DEADLINE  # both workers at once


def test_one_whose_process_dies_is_not_known_and_the_next_one_runs() -> None:
    answers = run(check("a", well), check("b", crash), check("c", spoil), check("d", well))
    assert [answers[name].state for name in "abcd"] == ["ok", "unknown", "unknown", "ok"]
    assert answers["c"].reason == "lookuperror: no such thing"


def test_a_worker_in_which_all_hang_is_given_up() -> None:
    answers = run(*(check(name, hang) for name in "abcde"))
    assert [answers[name].state for name in "abcde"] == ["failed"] * 3 + ["unknown"] * 2


def children() -> set[str]:
    """Those of this process, zombies too; tests before may have left some."""
    return {process.key for process in read_processes(Path("/proc")) if process.parent == os.getpid()}


def test_no_process_is_left() -> None:
    before = children()
    run(check("a", hang), check("b", well))
    assert children() <= before


def test_a_name_alone_makes_no_program_of_somebodys_a_child_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A link to a set-uid program that waits for a password is root's, and has the link's name."""
    monkeypatch.setattr(workers, "ABANDONED_SECONDS", 0.0)
    link = tmp_path / workers._child_name("network_mounts")
    link.symlink_to(shutil.which("sleep") or "/bin/sleep")
    with subprocess.Popen([str(link), "60"]) as stranger:
        try:
            while not Path(f"/proc/{stranger.pid}/comm").read_text().startswith(workers.MARK):
                time.sleep(0.01)
            answers = run(check("network_mounts", well, "mounts"))
        finally:
            stranger.kill()
    assert answers["network_mounts"] == ok(seen=1)


def test_one_that_still_hangs_from_an_earlier_run_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a process with the name of a child; one in state D can't be had without a broken driver."""
    monkeypatch.setattr(workers, "ABANDONED_SECONDS", 0.0)
    name = workers._child_name("network_mounts")
    script = f"open('/proc/self/comm', 'w').write({name!r}); print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as left:
        try:
            assert left.stdout is not None
            left.stdout.readline()
            answers = run(check("network_mounts", well, "mounts"), check("inodes", well, "mounts"))
        finally:
            left.kill()
    assert answers["network_mounts"].state == "failed"
    assert "an earlier look has hung for" in answers["network_mounts"].reason
    assert answers["inodes"] == ok(seen=1)
