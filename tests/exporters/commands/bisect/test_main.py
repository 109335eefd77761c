"""The command: answers, exit statuses, an interrupt, commands that hang, and mistakes in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyrometer_exporters.commands.bisect.main import main

# Fails if the group has gpu-03; appends the group to a file.
TEST = """#!/bin/sh
echo "$1" >> "$(dirname "$0")/asked"
case ",$1," in *,gpu-03,*) exit 1;; esac
echo "# Avg bus bandwidth    : 400.5"
"""
EXACT = ("--false-alarms=1e-6", "--missed=1e-6")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "test.sh"
    path.write_text(TEST)
    path.chmod(0o755)
    return path


def flags(program: Path, *more: str) -> list[str]:
    state = f"--state={program.parent / 'state.json'}"
    return ["--hosts=gpu-[01-08]", f"--command={program} {{hosts}}", state, *EXACT, *more]


def test_a_bad_host_is_named(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(program)) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "BAD HOST gpu-03 (100.0%)"
    assert "probability that this answer is complete and correct" in out
    assert "pyrometer-bisect: round 1: 4 tests of 2 to 2 hosts" in err


def test_the_answer_as_json(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(program, "--json")) == 1
    told = json.loads(capsys.readouterr().out)
    assert list(told["hosts"]) == ["gpu-03"]
    assert told["finished"]


def test_nothing_bad_is_status_0(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(program, "--hosts=gpu-[11-14]", "--min-bandwidth=380")) == 0
    assert capsys.readouterr().out.startswith("OK: nothing is bad\n")


def test_a_low_bandwidth_is_a_failure(program: Path) -> None:
    assert main(flags(program, "--hosts=gpu-[11-14]", "--min-bandwidth=401", "--rounds=1")) == 3
    ((first, second),) = json.loads((program.parent / "state.json").read_text())["rounds"]
    assert not first["passed"]
    assert not second["passed"]


@pytest.mark.parametrize(
    "does",
    ["exit 127", "echo 'srun: error: Unable to create step for job 7: Requested nodes are busy' >&2; exit 1",
     "kill -KILL $$", "echo 'Could not resolve hostname gpu-03' >&2; exit 255"],
)  # fmt: skip
def test_hosts_on_which_the_command_could_not_run_are_not_bad(
    program: Path, capsys: pytest.CaptureFixture[str], does: str
) -> None:
    program.write_text(TEST.replace("exit 1;;", f"{does};;"))
    assert main(flags(program, "--rounds=4")) == 3
    out, err = capsys.readouterr()
    assert "BAD" not in out
    assert "gpu-03" in out
    assert "no answer of some tests: --command: " in err


def test_a_budget_that_is_used_up_is_status_3(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(program, "--rounds=0")) == 3
    assert "UNFINISHED: all rounds are used up; 8 hosts or switches are open: gpu-01" in capsys.readouterr().out


def test_a_command_that_hangs_has_failed(tmp_path: Path) -> None:
    state = f"--state={tmp_path / 'state.json'}"
    assert main(["--hosts=a,b", "--command=sleep 60 {hosts}", "--timeout=1", "--rounds=1", state]) in (1, 3)
    ((test,),) = json.loads((tmp_path / "state.json").read_text())["rounds"]
    assert test == {"hosts": test["hosts"], "passed": False}


def test_an_interrupted_search_runs_only_the_tests_that_are_missing(program: Path) -> None:
    slow = program.parent / "slow.sh"
    slow.write_text(
        f'#!/bin/sh\n{program} "$1"; s=$?\n[ -e {slow}.go ] || case "$1" in *gpu-05*) sleep 60;; esac\nexit $s\n'
    )
    slow.chmod(0o755)
    command = [sys.executable, "-m", "pyrometer_exporters.commands.bisect.main", *flags(slow)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    state = slow.parent / "state.json"
    until = time.monotonic() + 30
    while time.monotonic() < until and not (state.exists() and len(json.loads(state.read_text())["current"]) == 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert f"pyrometer-bisect: interrupted; the same command continues from {state}" in err
    kept = json.loads(state.read_text())["current"]
    assert len(kept) == 3
    Path(f"{slow}.go").touch()
    (slow.parent / "asked").write_text("")
    assert main(flags(slow)) == 1
    asked = (slow.parent / "asked").read_text().splitlines()
    assert "gpu-05" in asked[0]  # the test that was interrupted comes first, and those of its round are not repeated
    assert not {",".join(test["hosts"]) for test in kept} & set(asked[:1])


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--hosts=a",), "--hosts: 1 hosts; at least 2 are needed"),
        (("--command=true",), "--command: it has no {hosts}, which is replaced by the names of a group"),
        (("--command=/nowhere/x {hosts}",), "--command: /nowhere/x: No such file or directory"),
        (("--command=sh -c 'exit 127' {hosts}",), "--command: sh exited with 127: it could not be started"),
        (("--command=sh -c 'exit 75' {hosts}",), ("--command: no test of this round returned a result; run the "
                                                 "command by hand")),
        (("--command=true {hosts}", "--min-bandwidth=1"),
         "--min-bandwidth: the command printed no line 'Avg bus bandwidth', as nccl-tests does"),
        (("--size=4",),
         "--size: 4 is too large to look for bad pairs, which are tested as two hosts; add --no-pairs"),
        (("--topology=/nowhere",), "--topology: can't read /nowhere: No such file or directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_status_2(
    program: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], line: str
) -> None:
    assert main(flags(program, *more)) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"pyrometer-bisect: {line}"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1, "rounds": 3}'])
def test_a_file_that_is_none_of_ours_is_refused(program: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (program.parent / "state.json").write_text(text)
    assert main(flags(program)) == 2
    assert "state.json can't be read; remove it, or give another file" in capsys.readouterr().err


def test_the_file_of_another_search_is_refused(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(program)) == 1
    assert main(flags(program, "--seed=1")) == 2
    assert "belongs to another search" in capsys.readouterr().err


@pytest.mark.parametrize("more", ["--timeout=599", "--min-bandwidth=100"])
def test_another_measure_of_failure_is_another_search(
    program: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    assert main(flags(program)) == 1
    assert main(flags(program, more)) == 2
    assert "belongs to another search" in capsys.readouterr().err


def test_an_answer_that_is_there_is_repeated_and_said_to_be_old(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(flags(program))
    (program.parent / "asked").unlink()
    os.utime(program.parent / "state.json", (1.7e9, 1.7e9))
    capsys.readouterr()
    assert main(flags(program)) == 1
    out, err = capsys.readouterr()
    assert out.startswith("BAD HOST gpu-03")
    assert err == (
        f"pyrometer-bisect: nothing was run: {program.parent / 'state.json'} already has "
        "the answer of 2023-11-14 22:13 UTC; "
        "remove it to test again\n"
    )
    assert not (program.parent / "asked").exists()


def test_where_every_test_fails_it_is_the_command(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = program.parent / "state.json"
    assert main(flags(program, "--command=false {hosts}")) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "pyrometer-bisect: --command: every test failed (4 of 4): run the command by hand"
    )
    told = json.loads(state.read_text())
    assert (told["rounds"], told["current"]) == ([], [])  # they would be continued from


@pytest.mark.parametrize("ends", ["exit 127", "exit 126", "exit 0"])
def test_one_host_without_the_program_or_its_last_line_is_not_bad(
    program: Path, capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    program.write_text(TEST.replace("exit 1", ends))
    assert main(flags(program, "--min-bandwidth=380")) == 3
    assert "BAD" not in capsys.readouterr().out


def test_switches_are_read_from_slurms_topology(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology = program.parent / "topology.conf"
    topology.write_text(
        "SwitchName=leaf1 Nodes=gpu-[01-04]\nSwitchName=leaf2 LinkSpeed=400 Nodes=gpu-[05-08]\n"
        "SwitchName=spine Switches=leaf[1-2]\n"
    )
    program.write_text('#!/bin/sh\ncase "$1" in *gpu-0[1-4]*gpu-0[5-8]*|*gpu-0[5-8]*gpu-0[1-4]*) exit 1;; esac\n')
    assert main(flags(program, f"--topology={topology}", "--no-pairs")) == 1
    assert "BAD SWITCH leaf" in capsys.readouterr().out


def test_nothing_that_was_started_is_left_behind(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    program = tmp_path / "hang.sh"
    program.write_text(f"#!/bin/sh\nsleep 60 & echo $! >> {started}\nwait\n")
    program.chmod(0o755)
    main(["--hosts=a,b", f"--command={program} {{hosts}}", "--timeout=1", "--rounds=1", f"--state={tmp_path / 's'}"])
    running = [pid for pid in started.read_text().split() if alive(pid)]
    assert running == []


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
