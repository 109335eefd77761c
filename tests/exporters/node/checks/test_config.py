"""The configuration: what it sets by class of node, and one line with file, line and key for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_exporters.node.checks.check import Check, ok
from pyrometer_exporters.node.checks.config import EXPECTATIONS, Settings, load
from pyrometer_kit.errors import UsageError

CHECKS = (
    Check("disk", "", "", "", "", lambda _node: ok(), limits={"used": 0.95}),
    Check("gpu", "", "", "", "", lambda _node: ok()),
    Check("age", "", "", "", "", lambda _node: ok(), enabled=False),
)
FILE = """\
expect: {gpus: 8, hcas: 8, rate: 400e9, mounts: [/data], imex: off}
checks:
  gpu: off
  disk: {used: 0.9, severity: warning}
classes:
  - nodes: login-.*
    expect: {gpus: 0}
    checks: {age: on}
  - nodes: gpu-.*|login-1
    checks: {gpu: on}
"""


def settings(folder: Path, text: str, node: str = "other") -> Settings:
    path = folder / "checks.yaml"
    path.write_text(text)
    return load(path, node, CHECKS)


def test_without_a_file_all_is_at_its_default() -> None:
    found = load(None, "gpu-1", CHECKS)
    assert [check.name for check in found.checks] == ["disk", "gpu"]
    assert found.limits["disk"] == {"used": 0.95}
    assert found.expect == {}


def test_what_stands_above_holds_for_all_nodes(tmp_path: Path) -> None:
    found = settings(tmp_path, FILE)
    assert [check.name for check in found.checks] == ["disk"]
    assert found.limits["disk"] == {"used": 0.9}
    assert found.severities["disk"] == "warning"
    assert found.expect == {"gpus": 8, "hcas": 8, "rate": 4e11, "mounts": ["/data"], "imex": False}


@pytest.mark.parametrize(("node", "names", "gpus"), [("login-1", ["disk", "age"], 0), ("gpu-1", ["disk", "gpu"], 8)])
def test_the_first_class_that_matches_is_laid_over_it(tmp_path: Path, node: str, names: list[str], gpus: int) -> None:
    found = settings(tmp_path, FILE, node)
    assert [check.name for check in found.checks] == names
    assert found.expect["gpus"] == gpus


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("checks: {gpux: off}", ":1: unknown setting gpux; known are age, disk, gpu"),
        ("checks:\n  disk: {use: 0.9}", ":2: unknown setting use; known are enabled, severity, used"),
        ("checks:\n  disk: {used: much}", ":2: disk.used is 'much', which is not a number of 0 or more"),
        ("checks: {disk: perhaps}", ":1: disk is 'perhaps'; give on, off or limits such as {severity: warning}"),
        ("checks: {disk: {severity: bad}}", ":1: disk.severity is 'bad'; known are critical, warning"),
        ("expect: {gpu: 8}", f":1: unknown setting gpu; known are {', '.join(sorted(EXPECTATIONS))}"),
        ("expect:\n  gpus: 8.5", ":2: expect.gpus is '8.5', which is not a whole number"),
        ("expect: {rate: 400G}", ":1: expect.rate is '400G', which is not a number of 0 or more"),
        ("expect: {mounts: /data}", ":1: expected a list, found a text"),
        ("check: {}", ":1: unknown setting check; known are expect, checks, classes"),
        ("classes:\n  - expect: {}", ":2: a class needs nodes, a regular expression of their names such as gpu-.*"),
        ("classes:\n  - nodes: '('", ":2: nodes '(' is not a regular expression"),
        ("classes:\n  - nodes: a\n    expect: {gpus: x}", ":3: expect.gpus is 'x', which is not a number of 0 or more"),
        ("classes:\n  - nodes: a\n    checks: {gpu: x}", ":3: gpu is 'x'; give on, off"),
        ("expect: [", ": not valid YAML"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(tmp_path, text)
    assert str(tmp_path / "checks.yaml") in str(refused.value)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
