"""The squares of the GPU map have room beside each other on a laptop and on a phone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.board_lint import finding
from tools.board_lint.interpolation import interpolate

from pyrometer_dashboards.main import rendered
from pyrometer_dashboards.map_places import LEAST_INTERVAL, SIZES, places
from pyrometer_simulator.stack import find_stack
from pyrometer_simulator.stack.promtool import objections

HOUR = 3_600_000
# The pixels that each size needs for a gap (fleet_map.rules.yaml), and their share in a chart of 380 pixels.
CELLS = {size: 1.12 * size + 0.01 for size in SIZES}
NARROW = 380 / 1032


def largest(room: float) -> int:
    """The largest size that leaves a gap in so many pixels, or the smallest that there is."""
    return max((size for size in SIZES if 1.12 * size <= room), default=min(SIZES))


# Grafana's interval for an hour in a panel of 404 pixels (a phone of 420), of 1,034 (a laptop of 1,366, menu docked).
@pytest.mark.parametrize(("interval", "share"), [(10_000, NARROW), (2_000, 1.0)])
def test_a_square_has_the_largest_size_that_its_screen_has_room_for(
    interval: int, share: float, tmp_path: Path
) -> None:
    place = 'gpu:pyrometer_map:place{{cluster="c1", arrange="number", node="n{}", gpu="0", x="1", y_{}="-7"}}'
    values = {"cluster": "c1", "arrange": "number", "__range_ms": str(HOUR), "__interval_ms": str(interval)}
    samples = [{"labels": place.format(size, largest(share * CELLS[size])), "value": 1} for size in SIZES]
    test = {"expr": interpolate(places(), values), "eval_time": "1m", "exp_samples": samples}
    inputs = [{"series": place.format(size, size), "values": "1x9"} for size in SIZES]
    path = tmp_path / "places.yaml"
    path.write_text(json.dumps({"tests": [{"interval": "15s", "input_series": inputs, "promql_expr_test": [test]}]}))
    assert objections(find_stack().promtool, "test", "rules", path) == ""


def test_the_map_asks_with_the_interval_of_its_width() -> None:
    board = json.loads(rendered()["gpu-matrix.json"])
    (panel,) = [each for each in finding.panels(board) if each["type"] == "xychart"]
    (target,) = finding.targets(panel)
    assert target["interval"] == LEAST_INTERVAL
