"""Open the boards in a running Grafana: errors, load times, differences on Save, pictures.

python -m tools.screenshots --grafana-url http://localhost:3000 [--pictures FOLDER] [--board overview]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tools.screenshots.boards import (
    BEGIN,
    END,
    SCREENS,
    View,
    pixels,
    replace_between_marks,
    timing_table,
    visit_boards,
)
from tools.screenshots.browser import BrowserError

from pyrometer_dashboards.main import rendered


def main(argv: Sequence[str] | None = None) -> int:
    """Open the boards; return 1 if a board has problems, 2 if no board could be opened."""
    flags = _parser().parse_args(argv)
    try:
        return _see(flags)
    except (BrowserError, OSError, ValueError) as error:
        sys.stderr.write(f"screenshots: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="screenshots", description="Open the boards in a running Grafana.")

    def add(flag: str, text: str, **more: Any) -> None:  # noqa: ANN401  argparse's own keywords
        parser.add_argument(flag, help=text, **more)

    add("--grafana-url", "address of a Grafana that has the boards and allows anonymous read access", required=True)
    again: dict[str, Any] = {"action": "append", "default": []}
    add("--board", "open only this board, such as overview; may be repeated", metavar="NAME", **again)
    add("--pictures", "write a screenshot of each board to this folder", metavar="FOLDER", type=Path)
    add("--theme", "default: dark; may be repeated", choices=("dark", "light"), **again)
    add("--size", "size of the browser window; default: 1600x900; may be repeated", metavar="WIDTHxHEIGHT", **again)
    add("--screens", "open the boards on the screens that people have, most with the menu docked", action="store_true")
    add("--from", "start of the time range, in Grafana's notation (default: now-1h)", dest="start", default="now-1h")
    add("--to", "end of the time range (default: now)", dest="end", default="now")
    add("--rounds", "number of times that each board is opened (default: 1)", metavar="N", type=int, default=1)
    add("--write", f"write the load times to FILE as a table, between {BEGIN} and {END}", metavar="FILE", type=Path)
    add("--texts", "write the text that can be read on each screen to FILE, as JSON", metavar="FILE", type=Path)
    add("--variable", "value of a board variable; may be repeated", metavar="NAME=VALUE", **again)
    several = "a named set of variable values; repeat it to open the boards with each set in turn"
    add("--case", several, metavar="CASE:NAME=VALUE[,...]", **again)
    return parser


def _see(flags: argparse.Namespace) -> int:
    if flags.rounds < 1:
        raise ValueError("--rounds must be at least 1")
    chosen = {name: text for name, text in rendered().items() if not flags.board or Path(name).stem in flags.board}
    if not chosen:
        raise ValueError(f"no board is named {', '.join(flags.board)}")
    views, visits = list(_views(flags)), []
    for visit in visit_boards(chosen, flags.grafana_url, views, flags.pictures, flags.rounds):
        sys.stdout.write(visit.line() + "\n")
        sys.stdout.flush()
        visits.append(visit)
    if flags.texts is not None:
        texts = {visit.view.label(visit.board): visit.page.texts for visit in visits}
        flags.texts.write_text(json.dumps(texts, indent=2) + "\n", encoding="utf-8")
    if flags.write is not None:
        replace_between_marks(flags.write, timing_table(visits, views[0].size))
    return 1 if any(visit.problems for visit in visits) else 0


def _views(flags: argparse.Namespace) -> Iterator[View]:
    """Yield every case in every theme and size."""
    common = _choices(flags.variable)
    screens = SCREENS if flags.screens else [(pixels(size), False) for size in flags.size or ["1600x900"]]
    for case, theme, (size, menu) in product(flags.case or [":"], flags.theme or ["dark"], screens):
        name, _, values = case.partition(":")
        variables = common | _choices(values.split(",") if values else [])
        yield View(theme, (flags.start, flags.end), size, variables, name, menu)


def _choices(pairs: Sequence[str]) -> dict[str, str]:
    if not all("=" in pair for pair in pairs):
        raise ValueError(
            "--variable needs NAME=VALUE such as node=gpu-042, --case CASE:NAME=VALUE such as hot:node=gpu-042"
        )
    return dict(pair.split("=", 1) for pair in pairs)


if __name__ == "__main__":
    sys.exit(main())
