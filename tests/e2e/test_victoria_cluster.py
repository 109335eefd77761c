"""VictoriaMetrics' cluster version as it is shipped, while its parts fail: every batch once, Prometheus' alerts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tools.board_lint.asked import asked

from pyrometer_simulator.stack import StackError, find_stack
from pyrometer_simulator.victoria import shipped
from pyrometer_simulator.victoria.faults import Play, matrix
from pyrometer_simulator.victoria.scene import VARIABLES, Scene

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]

ONE_OF_EACH = ["vmagent-0", "vmauth", "vminsert", "vmstorage-0", "vmselect", "vmalert"]
# 60 for the whole matrix, as benchmarks/bench_victoria_cluster.py has it too; unset, what is played takes ten minutes.
SECONDS = float(os.environ.get("PYROMETER_FAULT_SECONDS", "0"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if absent := shipped.missing():
        pytest.skip(absent)
    try:
        stack = find_stack(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))
    scene = Scene(tmp_path_factory.mktemp("victoria") / "scene", stack)
    yield scene
    scene.close()


def test_nothing_is_lost_twice_or_wrong_while_parts_fail(scene: Scene) -> None:
    whole = list(matrix(ONE_OF_EACH, scene.cluster.small))
    brief = [
        *((name, "killed") for name in ONE_OF_EACH),
        ("vmstorage-1", "paused"),
        ("vminsert-1", "cut off"),
    ]
    play = Play(scene, SECONDS or 10.0, list(asked(VARIABLES)))
    outcomes = list(play.run(whole if SECONDS else brief))
    assert [(each.component, each.fault) for each in outcomes if each.lost or each.twice or each.wrong] == []
    assert [problem for each in outcomes for problem in each.problems] == []
    assert play.others() == (set(), set())
    # Most boards have something to show of this cluster; a query without any series in both would be alike always.
    assert play.boards.answered >= 150
