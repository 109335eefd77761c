"""A node is expected to have what it had on its last healthy day, where nobody has stated it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.checks import kept
from pyrometer_exporters.node.checks.kept import DAY_SECONDS, Kept

FACTS = {"gpus": 8, "nvmes": 2}


def after(before: Kept, now: float, facts: dict[str, Any] = FACTS, *, healthy: bool = True) -> Kept:
    return before.after(facts, healthy=healthy, stuck={}, now=now)


def test_a_whole_healthy_day_is_learned() -> None:
    first = after(Kept(), 1000.0)
    assert after(first, 1000.0 + DAY_SECONDS - 1).learned == {}
    assert after(first, 1000.0 + DAY_SECONDS).learned == FACTS


def test_a_failure_or_a_change_begins_the_day_again() -> None:
    first = after(Kept(), 1000.0)
    ill = after(after(first, 2000.0, healthy=False), 3000.0)
    assert after(ill, 1000.0 + DAY_SECONDS).learned == {}
    changed = after(first, 2000.0, {"gpus": 4})
    assert changed.candidate == {"gpus": 4}
    assert after(changed, 1000.0 + DAY_SECONDS, {"gpus": 4}).learned == {}


def test_what_could_not_be_seen_for_a_while_is_not_forgotten() -> None:
    first = after(Kept(learned={"hcas": 8}), 1000.0)
    assert after(after(first, 2000.0, {"gpus": 8}), 1000.0 + DAY_SECONDS, {"gpus": 8}).learned == {"hcas": 8, **FACTS}


def test_a_clock_that_is_set_back_begins_the_day_again() -> None:
    assert after(after(Kept(), 1e9), 1000.0).since == 1000.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 7}', '{"version": 1, "learned": 3}'])
def test_a_file_that_cannot_be_used_is_set_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / kept.FILE).write_text(text)
    assert kept.load(tmp_path) == Kept()
    assert (tmp_path / f"{kept.FILE}.corrupt").exists()


def test_a_node_of_which_nothing_is_known_says_so(node: Any) -> None:
    verdict = node.verdict("hca_links", stated="")
    assert verdict.state == "unknown"
    assert "there was no healthy day yet" in verdict.reason


def test_a_link_gpu_disk_or_memory_that_is_lost_after_a_healthy_day_fails(node: Any) -> None:
    node.config.write_text("")
    node.learn()
    node.tree.nic("mlx5_3").down()
    node.tree.lose("mlx5_5")
    node.gpus[2].hide()
    (node.tree.sysfs / "class/nvme/nvme1/state").unlink()
    (node.tree.sysfs / "class/nvme/nvme1").rmdir()
    failed = {result.check.name: result.verdict.reason for result in node.look().of("failed")}
    assert failed["hca_links"] == "mlx5_3/1 is DOWN, Polling"
    assert failed["hca_count"] == "mlx5_5 is missing (present on the last healthy day)"
    assert "7 of 8 GPUs (on its last healthy day)" in failed["gpu_count"]
    assert failed["nvme"] == "1 of 2 NVMe disks (on its last healthy day)"


def test_an_ill_node_learns_nothing(node: Any) -> None:
    node.config.write_text("")
    node.gpus[2].lose()
    node.look(keep=True)
    node.a_day_later()
    node.look(keep=True)
    assert kept.load(node.state).learned == {}


def test_a_state_folder_that_cannot_be_written_is_a_note_and_nothing_else(node: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = node.look()
    node.looker = type(node.looker)(**{**node.looker.__dict__, "state": tmp_path / "file"})
    look = node.look(keep=True)
    assert [result.verdict.state for result in look.results if result.check.name != "stuck_processes"] == [
        result.verdict.state for result in before.results if result.check.name != "stuck_processes"
    ]
    assert "could not be saved" in look.notes[0]
