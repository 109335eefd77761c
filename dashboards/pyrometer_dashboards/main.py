"""The program ``pyrometer-dashboards``: writes the boards as JSON for Grafana's provisioning."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pyrometer_dashboards import boards, panels


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def rendered() -> dict[str, str]:
    """Every board as JSON text, by file name."""
    found = {}
    for module in pkgutil.iter_modules(boards.__path__, f"{boards.__name__}."):
        board = importlib.import_module(module.name).board()
        name = f"{module.name.rpartition('.')[2].replace('_', '-')}.json"
        found[name] = panels.to_json(board)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit status."""
    parser = _Flags(prog="pyrometer-dashboards", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Flags)
    generate = commands.add_parser("generate", help="write all boards into a folder")
    generate.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in rendered().items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"pyrometer-dashboards: can't write to {folder}: {error.strerror}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
