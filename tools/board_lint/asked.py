"""Queries of boards to a data source: the expressions of all panels with Grafana's variables filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tools.board_lint import finding
from tools.board_lint.interpolation import builtin_variables, interpolate

from pyrometer_dashboards.main import rendered

# Everything of everybody; a caller names what its cluster has.
WHOLE = {
    "clusters": ".+", "jobs": ".*", "other_jobs": ".*",
    "gpu": ".+", "switch": ".+", "slowed": ".+", "index": "0", "what": "temperature",
    "arrange": "number", "points": "600", "mfu": "pyrometer_train_batch_mfu_ratio",
    "steps": "pyrometer_train_batch_step",
}  # fmt: skip


def asked(values: Mapping[str, str], seconds: int = 600) -> Iterator[tuple[str, str]]:
    """Yield (board, panel and query's letter; expression) for every query of every panel.

    Args:
        values: the boards' variables, over those of ``WHOLE``.
        seconds: length of the time range.
    """
    filled = {**builtin_variables(seconds), **WHOLE, **values}
    for name, text in rendered().items():
        for panel in finding.panels(json.loads(text)):
            for target in finding.targets(panel):
                where = f"{name} / {panel['title']} / {target['refId']}"
                yield where, interpolate(target["expr"], filled)
