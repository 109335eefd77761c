"""Bad needs evidence of a loss: whoever could not look says so, and condemns nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.checks.check import discover
from pyrometer_exporters.node.checks.node import Paths

EVERYTHING = """\
expect: {gpus: 8, gpu_model: X, driver: 590, vbios: 1, ecc: on, nvlinks: 18, hcas: 8, rate: 400e9, firmware: 1,
         memory: 2e12, cpus: 256, nvmes: 2, huge_pages: 8, mounts: [/data], services: [slurmd], imex: on}
checks: {"""


def blind(node: Any, folder: Path) -> None:
    """Let the checks look where nothing is, and let the driver be one that this process has no library for."""
    node.looker = replace(node.looker, paths=Paths(*(folder / name for name in ("sys", "proc", "root", "kmsg"))))
    node.gpus.fail_init(12)
    node.clock_state = None


@pytest.mark.parametrize("stated", [False, True], ids=["nothing stated", "all stated"])
def test_no_check_says_bad_where_nothing_could_be_looked_at(node: Any, tmp_path: Path, *, stated: bool) -> None:
    node.config.write_text("")
    node.files.mount("/data", "nfs4")
    node.learn()
    if stated:
        switched_on = ", ".join(f"{check.name}: on" for check in discover())
        node.config.write_text(f"{EVERYTHING}{switched_on}}}\n")
    blind(node, tmp_path / "nowhere")
    look = node.look()
    assert {result.check.name: result.verdict.reason for result in look.of("failed")} == {}
    assert {result.check.name for result in look.of("ok")} == set()


def test_no_check_learns_from_a_look_that_saw_nothing(node: Any, tmp_path: Path) -> None:
    node.learn()
    learned = node.look(keep=True)
    assert learned.healthy
    before = (node.state / "checks.json").read_text()
    blind(node, tmp_path / "nowhere")
    kinds = {kind for result in node.look().results for kind in result.verdict.facts}
    assert kinds == set()
    assert (node.state / "checks.json").read_text() == before
