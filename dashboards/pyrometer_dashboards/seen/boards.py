"""All boards in a running Grafana, one after the other, each in a browser that has never seen it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
    """How boards are looked at: theme, ends of the range, size in pixels, choices, and a name for these choices."""

    theme: str
    times: tuple[str, str]
    size: tuple[int, int]
    variables: dict[str, str] = field(default_factory=dict)
    case: str = ""

    def named(self, board: str) -> str:
        """A board and how it is looked at, in one word."""
        parts = (board, self.case, self.theme, "x".join(str(side) for side in self.size))
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Seen:
    """One look at a board, and what was wrong with it; ``start``: seconds of an empty board in the same round."""

    board: str
    view: View
    look: Look
    start: float
    problems: list[str]

    def line(self) -> str:
        """What there is to say."""
        took = f"drawn after {self.look.seconds:.1f} s (an empty board: {self.start:.1f} s)"
        said = f"{self.view.named(self.board)}: {self.look.panels} panels, {took}, blocked {self.look.blocked:.1f} s"
        return "; ".join([said, *self.problems[:5]])


def look_at_all(
    boards: Mapping[str, str], url: str, views: Sequence[View], folder: Path | None, rounds: int = 1
) -> Iterator[Seen]:
    """Every board in every view, in each round after an empty one. Raises BrowserError where no browser can start."""
    program = find_chromium()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    read = {Path(name).stem: json.loads(text) for name, text in boards.items()}
    for _, view in product(range(rounds), views):
        start = look(program, _where(next(iter(read.values())), url, view), view.size, empty=True).seconds
        for name, board in read.items():
            picture = folder / f"{view.named(name)}.png" if folder else None
            seen = look(program, _where(board, url, view), view.size, picture)
            other = differences(board, seen.save_model) if seen.save_model else ["no save model"]
            yield Seen(name, view, seen, start, [*seen.problems, *other])


def _where(board: dict[str, Any], url: str, view: View) -> str:
    return address(url, board["uid"], view.theme, view.times, view.variables)


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
