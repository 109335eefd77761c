"""A node is expected to have what it had on its last healthy day, where nobody has stated it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.checks import kept
from pyrometer_exporters.node.checks.kept import DAY_SECONDS, Kept

FACTS = {"gpus": {"GPU-a": {"name": "GPU 0"}, "GPU-b": {"name": "GPU 1"}}, "memory": {"node0": 512}}


def after(before: Kept, now: float, facts: dict[str, Any] = FACTS, *, uptime: float | None = None) -> Kept:
    return before.after(facts, stuck={}, now=now, uptime=now if uptime is None else uptime)


def test_what_stays_for_a_day_is_learned() -> None:
    first = after(Kept(), 1000.0)
    assert after(first, 1000.0 + DAY_SECONDS - 1).learned == {}
    assert after(first, 1000.0 + DAY_SECONDS).learned == FACTS


def test_a_part_that_changes_holds_up_no_other() -> None:
    look = after(Kept(), 1000.0)
    for hour in range(1, 25):
        homes = {"mounts": {f"/home/user{hour}": {}}}
        gpus = {"gpus": {"GPU-a": {"name": "GPU 0"}, f"GPU-{hour}": {"name": "GPU 1"}}}
        look = after(look, 1000.0 + 3600 * hour, {**FACTS, **homes, **gpus})
    assert look.learned == {"gpus": {"GPU-a": {"name": "GPU 0"}}, "memory": {"node0": 512}}


def test_what_could_not_be_looked_at_keeps_its_day() -> None:
    first = after(Kept(), 1000.0)
    blind = after(first, 2000.0, {"gpus": FACTS["gpus"]})
    assert after(blind, 1000.0 + DAY_SECONDS).learned == FACTS


@pytest.mark.parametrize(
    ("kind", "days"), [("gpus", 7), ("memory", 7), ("mounts", 1), ("container_runtimes", 1), ("agents", 1)]
)
def test_what_is_gone_for_long_is_no_longer_expected(kind: str, days: int) -> None:
    known = Kept(learned={kind: {"a": {}}}, at=1000.0, since=1000.0)
    gone = after(known, 2000.0, {kind: {}})
    assert after(gone, 2000.0 + days * DAY_SECONDS - 1, {kind: {}}).learned == {kind: {"a": {}}}
    assert after(gone, 2000.0 + days * DAY_SECONDS, {kind: {}}).learned == {}


def test_less_is_accepted_after_a_week_and_more_after_a_day() -> None:
    known = Kept(learned={"memory": {"node0": 512}}, at=1000.0, since=1000.0)
    less, more = (after(known, 2000.0, {"memory": {"node0": size}}) for size in (480, 1024))
    a_day_later = 2000.0 + DAY_SECONDS
    assert after(less, a_day_later, {"memory": {"node0": 480}}).learned == {"memory": {"node0": 512}}
    assert after(less, 2000.0 + 7 * DAY_SECONDS, {"memory": {"node0": 480}}).learned == {"memory": {"node0": 480}}
    assert after(more, a_day_later, {"memory": {"node0": 1024}}).learned == {"memory": {"node0": 1024}}


def test_what_was_exchanged_is_forgotten_once_its_successor_is_learned() -> None:
    disks = [{"nvmes": {f"serial:{name}{n}": {"name": f"nvme{n}", "model": "M"} for n in range(2)}} for name in "ab"]
    look = Kept()
    for day, found in enumerate([disks[0], disks[0], disks[1], disks[1]]):
        look = after(look, 1000.0 + day * DAY_SECONDS, found)
    assert look.learned == disks[1]


@pytest.mark.parametrize("jump", [1.7e9, 2 * DAY_SECONDS, -1e6])
def test_a_clock_that_is_set_is_no_time_that_passed(jump: float) -> None:
    first = after(Kept(), 1e9, uptime=100.0)
    jumped = after(first, 1e9 + jump + 300, uptime=400.0)
    assert jumped.learned == {}
    assert after(jumped, 1e9 + jump + DAY_SECONDS - 1, uptime=99.0 + DAY_SECONDS).learned == {}
    assert after(jumped, 1e9 + jump + DAY_SECONDS, uptime=100.0 + DAY_SECONDS).learned == FACTS


def test_a_reboot_takes_no_day_away() -> None:
    first = after(Kept(), 1e9, uptime=1e6)
    assert after(first, 1e9 + DAY_SECONDS, uptime=60.0).learned == FACTS
    back_in_time = after(first, 1e9 - 5e8, uptime=60.0)
    assert after(back_in_time, 1e9 - 5e8 + DAY_SECONDS, uptime=60.0 + DAY_SECONDS).learned == FACTS


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    look = after(after(Kept(stuck={"1@2": 3.0}), 1000.0), 1000.0 + DAY_SECONDS, {"gpus": {}})
    kept.save(tmp_path, look)
    assert kept.load(tmp_path) == look


def test_a_file_of_an_older_version_is_learned_anew_and_left_where_it_is(tmp_path: Path) -> None:
    old = {
        "version": 1,
        "learned": {"gpus": 8, "mounts": ["/data"]},
        "candidate": {},
        "since": 1.0,
        "stuck": {"7@8": 9.0},
    }
    (tmp_path / kept.FILE).write_text(json.dumps(old))
    assert kept.load(tmp_path) == Kept(stuck={"7@8": 9.0})
    assert (tmp_path / kept.FILE).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 7}', '{"version": 1, "learned": 3}'])
def test_a_file_that_cannot_be_used_is_set_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / kept.FILE).write_text(text)
    assert kept.load(tmp_path) == Kept()
    assert (tmp_path / f"{kept.FILE}.corrupt").exists()


def test_a_node_of_which_nothing_is_known_is_well(node: Any) -> None:
    assert node.verdict("hca_links", stated="").state == "ok"


def test_a_link_gpu_disk_or_memory_that_is_lost_after_a_healthy_day_fails(node: Any) -> None:
    node.config.write_text("")
    node.learn()
    lost = node.tree.nic("mlx5_5").folder
    guid, address = (lost / "node_guid").read_text().strip(), (lost / "device").resolve().name
    node.tree.nic("mlx5_3").down()
    node.tree.lose("mlx5_5")
    node.gpus[2].hide()
    (node.tree.sysfs / "class/nvme/nvme1/state").unlink()
    (node.tree.sysfs / "class/nvme/nvme1").rmdir()
    look = node.look()
    failed = {result.check.name: result.verdict.reason for result in look.of("failed")}
    assert failed["hca_links"] == "mlx5_3/1 is DOWN, Polling (there on its last healthy day)"
    assert failed["hca_count"] == (
        f"mlx5_5 ({address}, GUID {guid}) is missing: it is off the bus (there on its last healthy day)"
    )
    assert "GPU 2 (0000:" in failed["gpu_count"] or "on the bus, but not in the driver's list" in failed["gpu_count"]
    assert failed["nvme"] == "nvme1 is missing (there on its last healthy day)"
    assert not any(result.keeps_jobs_away for result in look.of("failed") if result.check.name.startswith("hca_"))


def test_the_lost_card_is_named_by_the_name_it_had_though_a_boot_has_renamed_the_others(node: Any) -> None:
    node.config.write_text("")
    node.learn()
    node.tree.lose("mlx5_3")
    for index in range(4, 8):
        node.tree.rename(f"mlx5_{index}", f"mlx5_{index - 1}")
    assert node.verdict("hca_count").reason.startswith("mlx5_3 (0000:")
    assert "hca_links" not in {result.check.name for result in node.look().of("failed")}


def test_a_node_with_one_ill_part_learns_the_others(node: Any) -> None:
    node.config.write_text("")
    node.gpus[2].lose()
    node.look(keep=True)
    node.a_day_later()
    node.look(keep=True)
    assert len(kept.load(node.state).learned["hcas"]) == 8


def test_programs_are_learned_by_their_unit_and_as_roots_own(node: Any) -> None:
    node.files.end(node.files.pid_of("containerd"))
    node.files.serve("dockerd", cgroup="/user.slice/user-1000.slice/session-1.scope", uid=1000)
    node.files.serve("kubelet", cgroup="/system.slice/slurmstepd.scope/job_7/step_0")
    node.learn()
    learned = kept.load(node.state).learned
    assert learned["agents"] == {"slurmd": {"name": "slurmd", "unit": "slurmd.service"}}
    assert "container_runtimes" not in learned


def test_a_state_folder_that_cannot_be_written_is_a_note_and_nothing_else(node: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = node.look()
    node.looker = type(node.looker)(**{**node.looker.__dict__, "state": tmp_path / "file"})
    look = node.look(keep=True)
    assert [result.verdict.state for result in look.results if result.check.name != "stuck_processes"] == [
        result.verdict.state for result in before.results if result.check.name != "stuck_processes"
    ]
    assert "could not be saved" in look.notes[0]
