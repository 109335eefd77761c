"""All boards in a running Grafana, one after the other, each in a browser that has never seen it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from pyrometer_dashboards.seen.browser import find_chromium
from pyrometer_dashboards.seen.grafana import Look, address, look

# What belongs to the server or the viewer, not to the board.
_VOLATILE = re.compile(r"/(id|version)$|/pluginVersion$|/current(/|$)|^/time/|/options\[\d+\]/selected$")


@dataclass(frozen=True)
class View:
    """How boards are looked at: theme, begin of the range, size in pixels, choices, and a name for these choices."""

    theme: str
    start: str
    size: tuple[int, int]
    variables: dict[str, str] = field(default_factory=dict)
    case: str = ""

    def named(self, board: str) -> str:
        """The board's file and how it is looked at, in one word."""
        parts = (Path(board).stem, self.case, self.theme, "x".join(str(side) for side in self.size))
        return "-".join(part for part in parts if part)


def look_at_all(
    boards: Mapping[str, str], url: str, views: Iterable[View], folder: Path | None
) -> Iterator[tuple[str, bool]]:
    """A line for each board and view, and whether all was well. Raises BrowserError where no browser can be started."""
    program = find_chromium()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    for view, (name, text) in product(views, boards.items()):
        board = json.loads(text)
        where = address(url, board["uid"], view.theme, (view.start, "now"), view.variables)
        seen = look(program, where, view.size, folder / f"{view.named(name)}.png" if folder else None)
        problems = [*seen.problems, *(differences(board, seen.save_model) if seen.save_model else ["no save model"])]
        yield _line(view.named(name), seen, problems), not problems


def _line(name: str, seen: Look, problems: list[str]) -> str:
    said = f"{name}: {seen.panels} panels, drawn after {seen.seconds:.1f} s, blocked {seen.blocked:.1f} s"
    return "; ".join([said, *problems[:5]])


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:  # noqa: ANN401  any JSON
    """What Grafana would save otherwise than it is written, but for what is the server's or the viewer's."""
    if _VOLATILE.search(where) or (ours in (None, 0) and theirs in (None, 0)):
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted({*ours, *theirs})
        return [each for key in keys for each in differences(ours.get(key), theirs.get(key), f"{where}/{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [each for at, (one, two) in pairs for each in differences(one, two, f"{where}[{at}]")]
    return [] if ours == theirs else [f"{where}: {json.dumps(ours)[:60]} would be saved as {json.dumps(theirs)[:60]}"]
