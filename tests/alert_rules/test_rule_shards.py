"""Rule groups split by node or by run (`pyrometer-dashboards rules --shard`): together they say what the group said.

Each promtool test of a rule runs again with every group split that can be, also those of which only some rules can: the
alerts and records of all shards together must be those that the test expects of the group, once each and with the same
figures. `make test` does so with three of the files, `make test-scale` with all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_dashboards.rule_shards import Shards, by_patterns, groups_of, split, split_group, whole_rules
from pyrometer_dashboards.rule_stages import NotSplitError
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.promtool import objections, one_by_one
from pyrometer_simulator.yaml_loader import TEXTS

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alert_rules"
TEST_FILES = sorted((RULES / "tests").glob("*.test.yaml"))
# Names of the tests in each shard, and others in the last one.
WAYS = {
    "node": by_patterns("node", [".*[13579]", ".*[024a-f]"]),
    "run": by_patterns("run", ["[a-l].*", ".*[0-9b]"]),
}
QUICK = [("gpu_memory", "node"), ("train_straggler", "run"), ("fleet_nic", "node")]
# Those that pass 1 s first, as docs/scale.md has it.
SLOW = {
    "pyrometer_nic_slow": "node",
    "pyrometer_gpu_health": "node",
    "pyrometer_gpu_memory": "node",
    "pyrometer_train_straggler": "run",
    "pyrometer_train_stalled": "run",
}
# Those of the others that are among the next, and of which some rules stay whole.
IN_PART = ("pyrometer_fleet_nic", "pyrometer_fleet_map", "pyrometer_fleet_xids", "pyrometer_nic", "pyrometer_nic_links")


@cache
def _groups() -> dict[str, str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.rules.yaml"))]
    return {name: group for text in texts for name, group in groups_of(text)}


@cache
def _splittable(label: str) -> dict[str, int]:
    """Return how many rules stay whole in each group that can be split by a label."""
    found = {}
    for name, group in _groups().items():
        with contextlib.suppress(NotSplitError):
            found[name] = len(whole_rules(name, group, label))
    return found


def test_the_groups_that_pass_a_second_first_can_be_split() -> None:
    assert [name for name, label in SLOW.items() if _splittable(label).get(name) != 0] == []
    assert [name for name in IN_PART if not _splittable("node").get(name)] == []
    assert list(_splittable("node").values()).count(0) >= 20
    assert list(_splittable("run").values()).count(0) >= 10


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), TEXTS)  # noqa: S506 - texts alone
    if "fuzzy_compare" in found:  # promtool wants no text here
        found["fuzzy_compare"] = found["fuzzy_compare"] == "true"
    return found


def _with_shards(path: Path, folder: Path, shards: Shards, *, lose_the_last: bool = False) -> Path:
    """Write a test's file, and the rules it needs with every group split that can be."""
    file, names = _read(path), _splittable(shards.label)
    shard_names: dict[str, list[str]] = {}
    folder.mkdir()
    for number, given in enumerate(file["rule_files"]):
        text = (path.parent / given).read_text(encoding="utf-8")
        groups = dict(groups_of(text))
        shard_names |= {
            name: [*split_group(name, groups[name], shards)] if name in names else [name] for name in groups
        }
        splittable = groups.keys() & names
        sharded = split(text, dict.fromkeys(splittable, shards))
        if lose_the_last:
            last = {shard_names[name][-1] for name in splittable}
            sharded = "groups:\n" + "".join(group for name, group in groups_of(sharded) if name not in last)
        file["rule_files"][number] = f"{number}.rules.yaml"
        (folder / f"{number}.rules.yaml").write_text(sharded, encoding="utf-8")
    # promtool evaluates what a file does not list first, in no order of its own; stages have one.
    listed = file.get("group_eval_order", [])
    order = [*(name for name in shard_names if name not in listed), *listed]
    file["group_eval_order"] = [part for name in order for part in shard_names[name]]
    copy = folder / path.name
    copy.write_text(yaml.safe_dump(file), encoding="utf-8")
    return copy


def _complaint(stack: Stack, copy: Path) -> str:
    pieces = copy.parent / "one_by_one"
    pieces.mkdir()
    return objections(stack.promtool, "test", "rules", *one_by_one(copy, pieces))


@pytest.mark.parametrize(("file", "label"), QUICK)
def test_the_shards_together_say_what_the_group_said(stack: Stack, tmp_path: Path, file: str, label: str) -> None:
    _assert_same(stack, tmp_path, RULES / f"tests/{file}.test.yaml", label)


@pytest.mark.e2e
@pytest.mark.parametrize("label", WAYS)
@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.name.removesuffix(".test.yaml"))
def test_so_they_do_with_every_file(stack: Stack, tmp_path: Path, path: Path, label: str) -> None:
    texts = [(path.parent / each).read_text(encoding="utf-8") for each in _read(path)["rule_files"]]
    if not any(name in _splittable(label) for text in texts for name, _ in groups_of(text)):
        pytest.skip("none of its groups can be split")
    _assert_same(stack, tmp_path, path, label)


def _assert_same(stack: Stack, folder: Path, path: Path, label: str) -> None:
    complaint = _complaint(stack, _with_shards(path, folder / "shards", WAYS[label]))
    if complaint and objections(stack.promtool, "test", "rules", path):
        pytest.skip("it fails without shards, too: see test_rules.py")
    if complaint:
        pytest.fail(f"only shards break it:\n{complaint}", pytrace=False)


@pytest.mark.parametrize(("file", "label"), QUICK[:2])
def test_a_shard_that_is_missing_is_noticed(stack: Stack, tmp_path: Path, file: str, label: str) -> None:
    everything = by_patterns(label, ["no such name"])  # all are in the last one
    path = RULES / f"tests/{file}.test.yaml"
    copy = _with_shards(path, tmp_path / "shards", everything, lose_the_last=True)
    assert "FAILED" in _complaint(stack, copy)


def test_all_groups_split_at_once_are_valid(promtool: Callable[..., None], tmp_path: Path) -> None:
    for path in sorted(RULES.glob("*.rules.yaml")):
        text = path.read_text(encoding="utf-8")
        for label, shards in WAYS.items():
            text = split(text, {name: shards for name, _ in groups_of(text) if name in _splittable(label)})
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    promtool("check", "rules", *sorted(tmp_path.glob("*.rules.yaml")))
