"""How long boards take to be drawn, as a table: beside what Grafana itself needs to start on the same machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pyrometer_dashboards.seen.boards import Seen

BEGIN, END = "<!-- seen: begin -->", "<!-- seen: end -->"


def table(seen: Sequence[Seen], size: tuple[int, int]) -> str:
    """The medians over all rounds as Markdown."""
    starts = [each.start for each in seen if each.board == seen[0].board]
    load, cores = os.getloadavg()[0], os.cpu_count()
    told = (
        f"Median of {len(starts)} rounds at {size[0]}x{size[1]}, each board in a browser that had never seen Grafana, "
        f"at a load of {load:.1f} on {cores} cores. In each round an empty board came first: it took "
        f"{median(starts):.2f} s, which is Grafana's own start."
    )
    lines = [told, "", "| board | panels | drawn after, s | beyond an empty board, s | times an empty board |"]
    lines.append("|---|---|---|---|---|")
    return "\n".join([*lines, *(_row(board, seen) for board in dict.fromkeys(each.board for each in seen))])


def _row(board: str, seen: Sequence[Seen]) -> str:
    own = [each for each in seen if each.board == board]
    took, beyond, times = (
        median(each.look.seconds for each in own),
        median(each.look.seconds - each.start for each in own),
        median(each.look.seconds / each.start for each in own),
    )
    return f"| {board} | {own[0].look.panels} | {took:.2f} | {beyond:.2f} | {times:.2f} |"


def put(path: Path, text: str) -> None:
    """Put a table between its two marks, each on its own line.

    Raises OSError, and ValueError where the marks aren't there.
    """
    whole = path.read_text(encoding="utf-8")
    before, begin, rest = whole.partition(f"\n{BEGIN}\n")
    _, end, after = f"\n{rest}".partition(f"\n{END}\n")
    if not begin or not end:
        raise ValueError(f"{path} has no lines {BEGIN} and {END}")
    path.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
