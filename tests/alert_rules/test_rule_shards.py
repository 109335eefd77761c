"""Rule groups split by node or by run (`pyrometer-dashboards rules --shard`): together they say what the group said.

Each promtool test of a rule runs again with every group split that can be: the alerts and records of all shards
together must be those that the test expects of the group, once each and with the same figures. `make test` does so with
two of the files, `make test-scale` with all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_dashboards.rule_shards import NotSplitError, Shards, by_patterns, check, groups_of, shard_names, split
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.stack.promtool import objections, one_by_one

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alert_rules"
TEST_FILES = sorted((RULES / "tests").glob("*.test.yaml"))
# Names of the tests in each shard, and others in the last one.
WAYS = {
    "node": by_patterns("node", [".*[13579]", ".*[024a-f]"]),
    "run": by_patterns("run", ["[a-l].*", ".*[0-9b]"]),
}
LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # not every PyYAML has libyaml's
QUICK = [("gpu_memory", "node"), ("train_straggler", "run")]
# Those that pass 1 s first, as docs/scale.md has it.
SLOW = {
    "pyrometer_nic_slow": "node",
    "pyrometer_gpu_health": "node",
    "pyrometer_gpu_memory": "node",
    "pyrometer_train_straggler": "run",
    "pyrometer_train_stalled": "run",
}


@cache
def _groups() -> dict[str, str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.rules.yaml"))]
    return {name: group for text in texts for name, group in groups_of(text)}


@cache
def _splittable(label: str) -> frozenset[str]:
    def can(name: str) -> bool:
        try:
            check(name, _groups()[name], label)
        except NotSplitError:
            return False
        return True

    return frozenset(filter(can, _groups()))


def test_the_groups_that_pass_a_second_first_can_be_split() -> None:
    assert [name for name, label in SLOW.items() if name not in _splittable(label)] == []
    assert len(_splittable("node")) >= 20
    assert len(_splittable("run")) >= 10


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), LOADER)  # noqa: S506 - texts alone
    return found


def _with_shards(path: Path, folder: Path, shards: Shards, *, lose_the_last: bool = False) -> Path:
    """Write a test's file, and the rules it needs with every group split that can be."""
    file, names = _read(path), _splittable(shards.label)
    folder.mkdir()
    for number, given in enumerate(file["rule_files"]):
        text = (path.parent / given).read_text(encoding="utf-8")
        own = {name for name, _ in groups_of(text)} & names
        sharded = split(text, dict.fromkeys(own, shards))
        if lose_the_last:
            last = {shard_names(name, shards)[-1] for name in own}
            sharded = "groups:\n" + "".join(group for name, group in groups_of(sharded) if name not in last)
        file["rule_files"][number] = f"{number}.rules.yaml"
        (folder / f"{number}.rules.yaml").write_text(sharded, encoding="utf-8")
    order = [shard_names(name, shards) if name in names else [name] for name in file.get("group_eval_order", [])]
    file["group_eval_order"] = [name for several in order for name in several]
    copy = folder / path.name
    copy.write_text(yaml.safe_dump(file), encoding="utf-8")
    return copy


def _complaint(stack: Stack, copy: Path) -> str:
    pieces = copy.parent / "one_by_one"
    pieces.mkdir()
    return objections(stack.promtool, "test", "rules", *one_by_one(copy, pieces))


def _cases() -> Iterator[Any]:
    """Yield each file with each way to split a group of its rules; those that `make test` leaves out are marked."""
    for path, label in product(TEST_FILES, WAYS):
        texts = [(path.parent / each).read_text(encoding="utf-8") for each in _read(path)["rule_files"]]
        if any(name in _splittable(label) for text in texts for name, _ in groups_of(text)):
            name = path.name.removesuffix(".test.yaml")
            quick = (name, label) in QUICK
            yield pytest.param(path, label, id=f"{name}-{label}", marks=[] if quick else pytest.mark.e2e)


@pytest.mark.parametrize(("path", "label"), list(_cases()))
def test_the_shards_together_say_what_the_group_said(stack: Stack, tmp_path: Path, path: Path, label: str) -> None:
    copy = _with_shards(path, tmp_path / "shards", WAYS[label])
    assert _complaint(stack, copy) == ""


@pytest.mark.parametrize(("file", "label"), QUICK)
def test_a_shard_that_is_missing_is_noticed(stack: Stack, tmp_path: Path, file: str, label: str) -> None:
    everything = by_patterns(label, ["no such name"])  # all are in the last one
    path = RULES / f"tests/{file}.test.yaml"
    copy = _with_shards(path, tmp_path / "shards", everything, lose_the_last=True)
    assert "FAILED" in _complaint(stack, copy)


def test_all_groups_split_at_once_are_valid(stack: Stack, tmp_path: Path) -> None:
    for path in sorted(RULES.glob("*.rules.yaml")):
        text = path.read_text(encoding="utf-8")
        for label, shards in WAYS.items():
            text = split(text, {name: shards for name, _ in groups_of(text) if name in _splittable(label)})
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    assert objections(stack.promtool, "check", "rules", *sorted(tmp_path.glob("*.rules.yaml"))) == ""
