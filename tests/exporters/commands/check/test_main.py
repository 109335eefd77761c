"""The command: exit statuses, lines, JSON, deadlines, and that it works beside whatever hangs."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.commands.check.main import main
from pyrometer_exporters.node.checks import workers


def flags(node: Any, *more: str) -> list[str]:
    paths = {"sysfs": node.paths.sysfs, "procfs": node.paths.procfs, "kmsg": node.paths.kmsg, "state": node.state}
    given = [f"--path.{name}={path}" for name, path in paths.items()]
    return [*given, f"--config.file={node.config}", *more]


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(node: Any, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command on the node; its status and what it printed."""

    def run(*more: str) -> tuple[int, str]:
        replaced = {"statvfs": node.files.disks.statvfs, "clock_state": lambda: 0, "boottime": node.boottime}
        status = main(flags(node, *more), replaced)
        return status, capsys.readouterr().out

    node.look(keep=True)
    return run


def process(node: Any, *simulated: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command as a program."""
    start = [sys.executable, "-m", "pyrometer_simulator.check", f"--gpus={node.gpus.path}", *simulated, "--"]
    return subprocess.run([*start, *flags(node, *more)], capture_output=True, text=True, timeout=60, check=False)


def test_a_node_that_is_well_is_one_line_and_status_0(command: Command) -> None:
    status, out = command()
    assert status == 0
    assert out.startswith("OK ")
    assert "0 could not be run" in out
    assert out.count("\n") == 1


def test_a_failure_is_a_line_with_what_to_do(command: Command, node: Any) -> None:
    node.tree.nic("mlx5_3").down()
    status, out = command()
    assert status == 2
    assert out == (
        "CRITICAL hca_links: 7 of 8 links are up: mlx5_3/1 DOWN, Polling. "
        "Do: Reseat or replace cable and transceiver, both ends.\n"
    )


def test_a_warning_is_status_1(command: Command, node: Any) -> None:
    node.gpus[3].set(persistence=0)
    status, out = command()
    assert (status, out.split(":")[0]) == (1, "WARNING gpu_persistence")


def test_the_configuration_says_how_bad_it_is(command: Command, node: Any) -> None:
    node.files.write("proc", "sys/kernel/numa_balancing", "1")
    node.config.write_text("checks: {numa_balancing: {severity: critical}}\n")
    assert command("--only=numa_balancing")[0] == 2
    node.config.write_text("checks: {numa_balancing: off}\n")
    assert command("--only=numa_balancing")[0] == 0


@pytest.mark.parametrize(("policy", "expected"), [((), 3), (("--fail-closed",), 3), (("--fail-open",), 0)])
def test_what_could_not_be_run(command: Command, node: Any, policy: tuple[str, ...], expected: int) -> None:
    node.files.mount("/data", "nfs4")
    node.files.disks.errors["/data"] = errno.EACCES
    status, out = command("--only=network_mounts", *policy)
    assert status == expected
    assert "UNKNOWN network_mounts: /data: Permission denied" in out


def test_json_has_every_check(command: Command, node: Any) -> None:
    node.gpus[3].lose()
    status, out = command("--json")
    told = json.loads(out)
    by_name = {check["check"]: check for check in told["checks"]}
    assert (status, told["status"]) == (2, "critical")
    assert by_name["gpu_answers"]["state"] == "failed"
    assert by_name["gpu_answers"]["action"].startswith("Drain the node")
    assert by_name["gpu_count"] == {
        "check": "gpu_count", "state": "ok", "severity": "critical", "reason": "",
        "seconds": by_name["gpu_count"]["seconds"],
    }  # fmt: skip


def test_reasons_are_what_keeps_a_job_away(command: Command, node: Any) -> None:
    node.gpus[3].set(persistence=0)
    assert command("--reasons") == (1, "fit\n")
    node.gpus[3].lose()
    status, out = command("--reasons")
    assert status == 2
    assert out.startswith("gpu_answers: GPU 3 does not answer: gpu_is_lost")
    assert out.count("\n") == 1


def test_what_was_only_learned_is_critical_and_keeps_no_job_away(command: Command, node: Any) -> None:
    node.config.write_text("")
    node.learn()
    node.tree.lose("mlx5_3")
    assert command("--only=hca_count")[0] == 2
    assert command("--only=hca_count", "--reasons") == (1, "fit\n")


def test_a_healthy_node_of_which_nothing_is_stated_is_fit(command: Command, node: Any) -> None:
    node.config.write_text("")
    status, out = command()
    assert status == 0
    assert out.splitlines()[1].startswith("NOTE gpu_count: 8 GPUs, and nothing says whether that is all: state `expect")
    node.learn()
    assert command()[1].count("\n") == 1


def test_checks_are_chosen_and_left_out(command: Command, node: Any) -> None:
    node.gpus[3].lose()
    assert command("--only=hca_links,nvme")[0] == 0
    assert command("--ignore=gpu_answers")[0] == 0


def test_a_failure_that_is_over_a_moment_later_takes_no_node_away(
    command: Command, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.gpus[3].lose()
    confirm, sleep = 0.01, time.sleep
    # Not the sleeps of workers that wait for a check: without them they would keep it from its core.
    monkeypatch.setattr(time, "sleep", lambda s: node.gpus[3].recover() if s == confirm else sleep(s))
    assert command(f"--confirm={confirm}")[0] == 0


def test_a_failure_that_lasts_is_confirmed(command: Command, node: Any) -> None:
    node.gpus[3].lose()
    assert command("--confirm=0.01")[0] == 2


def test_forgetting_accepts_what_is_there_now(command: Command, node: Any) -> None:
    node.config.write_text("")
    node.learn()
    node.tree.lose("mlx5_3")
    assert command()[0] == 2
    assert command("--forget")[0] == 0
    assert "hca_count" not in {result.check.name for result in node.look().of("failed")}


def test_released_gpus_are_left_alone(command: Command, node: Any) -> None:
    (node.state / "gpu-release").touch()
    node.gpus.fail_init(9)
    assert command()[0] == 0


def test_gpus_that_are_excluded_are_not_judged(command: Command, node: Any) -> None:
    node.gpus[3].lose()
    node.config.write_text("expect: {gpus: 7}\n")
    assert command("--collector.gpu.device-exclude=3", "--only=gpu_answers,gpu_recovery")[0] == 0


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            ("--only=gpu_cuont",),
            "pyrometer-check: --only: unknown check gpu_cuont; pyrometer-check --list shows all\n",
        ),
        (
            ("--config.file=/nowhere/checks.yaml",),
            "pyrometer-check: can't read /nowhere/checks.yaml: No such file or directory\n",
        ),
    ],
)
def test_a_mistake_is_one_line_and_status_2_with_nothing_on_standard_output(
    node: Any, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], line: str
) -> None:
    assert main(flags(node, *more)) == 2
    assert capsys.readouterr() == ("", line)


def test_a_name_that_somebody_gave_a_mount_is_no_answer_of_its_own(command: Command, node: Any) -> None:
    # mountinfo writes the ends of lines as octal numbers.
    for name in ("/data", "/data\nfit", "/data;\nhca_links: 7 of 8"):
        node.files.mount(name.replace("\n", "\\012").replace(" ", "\\040"), "nfs4")
        node.files.disks.errors[name] = errno.ESTALE
    status, out = command("--only=network_mounts", "--reasons")
    stale = [f"{name}: Stale file handle" for name in ("/data", "/data fit", "/data, hca_links: 7 of 8")]
    assert (status, out) == (2, f"network_mounts: {', '.join(stale)}\n")


def test_all_checks_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "hca_links              critical as many links are up as `hcas` states" in capsys.readouterr().out


def test_a_hung_mount_a_hung_gpu_and_a_full_disk_are_all_named_within_the_deadline(node: Any) -> None:
    node.files.mount("/data", "nfs4")
    node.files.mount("/scratch", "xfs")
    node.look(keep=True)
    node.gpus[3].hang()
    began = time.monotonic()
    done = process(node, "--hang=/data", "--full=/scratch")
    seconds = time.monotonic() - began
    failures = {line.split(":")[0]: line for line in done.stdout.splitlines()}
    assert done.returncode == 2
    assert failures.keys() == {"CRITICAL network_mounts", "CRITICAL gpu_answers", "CRITICAL filesystem_full"}
    assert "/data hangs: no answer in 3 s" in failures["CRITICAL network_mounts"]
    assert "GPU 3 does not answer: it hangs" in failures["CRITICAL gpu_answers"]
    assert "/scratch is 99.9% full" in failures["CRITICAL filesystem_full"]
    assert seconds < 3 * workers.DEADLINE_SECONDS  # of which 3 s are the patience of both, at the same time


def test_a_driver_that_hangs_is_named(node: Any) -> None:
    node.gpus.hang_init()
    done = process(node, more=("--only=gpu_driver,gpu_count,hca_links",))
    assert done.returncode == 2
    assert "CRITICAL gpu_driver: nvmlInit has not returned within 3 s: the driver hangs" in done.stdout


def test_an_unreadable_tree_is_no_traceback(tmp_path: Path) -> None:
    nowhere = [f"--path.{name}={tmp_path}/none" for name in ("sysfs", "procfs", "kmsg", "state")]
    command = [sys.executable, "-m", "pyrometer_exporters.commands.check.main", "--json", *nowhere]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout)["status"] in ("unknown", "critical", "warning")
