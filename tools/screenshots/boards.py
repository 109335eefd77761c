"""Open every board in a running Grafana, each in a browser with an empty cache, and report problems and load times."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from tools.screenshots.browser import find_chromium
from tools.screenshots.grafana import PageLoad, board_url, load_board

# Paths in the save model that belong to the server or the viewer, not to the board.
_VOLATILE = re.compile(r"^/(id|version)$|/pluginVersion$|/current(/|$)|^/time/|/options\[\d+\]/selected$")
# Our tables hide a column by both of its names; Grafana 12.2 saves its own for either.
_RENAMED = ("custom.hidden", "custom.hideFrom.viz")
# The screens that people have: laptops and desktops with the menu docked, a wall, a phone.
SCREENS = (((1366, 768), True), ((1600, 900), True), ((1920, 1080), True), ((3840, 2160), False), ((420, 900), False))
BEGIN, END = "<!-- seen: begin -->", "<!-- seen: end -->"


@dataclass(frozen=True)
class View:
    """How boards are opened: theme, (from, to), size in pixels, values of variables, and a name for these values.

    ``menu`` shows Grafana's own head, and its menu docked, as people have it; else kiosk mode.
    """

    theme: str
    times: tuple[str, str]
    size: tuple[int, int]
    variables: dict[str, str] = field(default_factory=dict)
    case: str = ""
    menu: bool = False

    def label(self, board: str) -> str:
        """Return the board's name and this view in one word, for a file name or a line of output."""
        parts = (board, self.case, self.theme, "x".join(str(side) for side in self.size), "menu" * self.menu)
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Visit:
    """One opening of a board.

    Attributes:
        baseline: seconds that an empty board took in the same round.
        problems: errors on the page, and differences between the board and what Grafana would save.
    """

    board: str
    view: View
    page: PageLoad
    baseline: float
    problems: list[str]

    def line(self) -> str:
        """Return a one-line summary with the first five problems."""
        took = f"drawn after {self.page.seconds:.1f} s (an empty board: {self.baseline:.1f} s)"
        label = self.view.label(self.board)
        summary = f"{label}: {self.page.panels} panels, {took}, blocked {self.page.blocked:.1f} s"
        return "; ".join([summary, *self.problems[:5]])


def visit_boards(
    boards: Mapping[str, str],
    url: str,
    views: Sequence[View],
    folder: Path | None,
    rounds: int = 1,
    *,
    below: bool = True,
    paired: bool = False,
) -> Iterator[Visit]:
    """Open every board in every view; each round starts with an empty board.

    Args:
        boards: JSON text by file name.
        url: base address of Grafana.
        views: themes, sizes and variables to combine with each board.
        folder: where screenshots are written; None takes none.
        rounds: how often everything is repeated.
        below: scroll to each board's end, and look there, too.
        paired: open an empty board before each, as a busy machine is not equally busy for a whole round.

    Raises:
        BrowserError: no browser could be started, or it stopped answering.
        OSError: the folder or a screenshot could not be written.
    """
    program = find_chromium()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    models = {Path(name).stem: json.loads(text) for name, text in boards.items()}
    for _, view in product(range(rounds), views):
        first = next(iter(models.values()))
        baseline = load_board(program, _url(first, url, view), view.size, empty=True).seconds
        for name, board in models.items():
            if paired and board is not first:
                baseline = load_board(program, _url(first, url, view), view.size, empty=True).seconds
            picture = folder / f"{view.label(name)}.png" if folder else None
            page = load_board(program, _url(board, url, view), view.size, picture, docked=view.menu, below=below)
            changes = differences(board, page.save_model) if page.save_model else ["no save model"]
            yield Visit(name, view, page, baseline, [*page.problems, *changes])


def _url(board: dict[str, Any], url: str, view: View) -> str:
    return board_url(url, board["uid"], view.theme, view.times, view.variables, kiosk=not view.menu)


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:  # noqa: ANN401  any JSON
    """Return what Grafana would save differently, leaving out what belongs to the server or the viewer."""
    if _VOLATILE.search(where) or (ours in (None, 0) and theirs in (None, 0)):
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted({*ours, *theirs})
        return [each for key in keys for each in differences(ours.get(key), theirs.get(key), f"{where}/{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [each for at, (one, two) in pairs for each in differences(one, two, f"{where}[{at}]")]
    if ours == theirs or (ours, theirs) == _RENAMED:
        return []
    return [f"{where}: {json.dumps(ours)[:60]} would be saved as {json.dumps(theirs)[:60]}"]


def pixels(size: str) -> tuple[int, int]:
    """Return width and height of a window, such as ``1600x900``.

    Raises:
        ValueError: it isn't written so.
    """
    width, cross, height = size.partition("x")
    if not (cross and width.isdigit() and height.isdigit()):
        raise ValueError("expected --size=WIDTHxHEIGHT such as 1600x900")
    return int(width), int(height)


def timing_table(visits: Sequence[Visit], size: tuple[int, int]) -> str:
    """Return the median load times over all rounds as a Markdown table, next to those of an empty board."""
    baselines = [visit.baseline for visit in visits]
    rounds = sum(visit.board == visits[0].board for visit in visits)
    load, cores = os.getloadavg()[0], os.cpu_count()
    caption = (
        f"Median of {rounds} rounds at {size[0]}x{size[1]}, each board in a browser that had never seen "
        f"Grafana, at a load of {load:.1f} on {cores} cores. An empty board came first: it took "
        f"{median(baselines):.2f} s, which is Grafana's own start."
    )
    lines = [caption, "", "| board | panels | drawn after, s | beyond an empty board, s | times an empty board |"]
    lines.append("|---|---|---|---|---|")
    return "\n".join([*lines, *(_row(board, visits) for board in dict.fromkeys(visit.board for visit in visits))])


def _row(board: str, visits: Sequence[Visit]) -> str:
    own = [visit for visit in visits if visit.board == board]
    took = median(visit.page.seconds for visit in own)
    beyond = median(visit.page.seconds - visit.baseline for visit in own)
    ratio = median(visit.page.seconds / visit.baseline for visit in own)
    return f"| {board} | {own[0].page.panels} | {took:.2f} | {beyond:.2f} | {ratio:.2f} |"


def replace_between_marks(path: Path, text: str) -> None:
    """Replace the text between the lines BEGIN and END of a file.

    Raises:
        OSError: the file can't be read or written.
        ValueError: the file lacks one of the two lines.
    """
    whole = path.read_text(encoding="utf-8")
    before, begin, rest = whole.partition(f"\n{BEGIN}\n")
    _, end, after = f"\n{rest}".partition(f"\n{END}\n")
    if not begin or not end:
        raise ValueError(f"{path} has no lines {BEGIN} and {END}")
    path.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
