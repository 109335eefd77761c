"""The page for those who come from a tracker: the address of the run's board that it has them keep."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_way_back_leads_to_a_board_and_its_run() -> None:
    page = (ROOT / "docs/trackers.md").read_text(encoding="utf-8")
    (uid, variable), *more = re.findall(r"/d/([\w-]+)\?var-(\w+)=", page)
    boards = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "dashboards/json").glob("*.json")]
    (board,) = [board for board in boards if board["uid"] == uid]
    assert variable in [each["name"] for each in board["templating"]["list"]]
    assert not more
