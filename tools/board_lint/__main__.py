"""Check our boards, or the given files; one line per finding.

python -m tools.board_lint [FILE...]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence, Sized
from pathlib import Path
from typing import Any

from tools.board_lint import board_file, run, schema

from pyrometer_dashboards.main import rendered

PROG = "board_lint"


def main(argv: Sequence[str] | None = None) -> int:
    """Check the boards; return 1 if there are findings, 2 if a file has no board."""
    parser = argparse.ArgumentParser(prog=PROG, description="Check our boards, or the given files.")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    files = parser.parse_args(argv).files
    ours = {name: json.loads(text) for name, text in rendered().items()}
    boards, refused = _read(files) if files else (ours, [])
    context = run.load_context(Path(__file__).parents[2], boards, ours)
    findings = list(run.findings(boards, context, ours=not files))
    sys.stdout.write("".join(f"{finding.line()}\n" for finding in findings))
    if boards and not schema.sdk_available():
        sys.stderr.write("round trip not checked: grafana-foundation-sdk is not installed\n")
    for line in refused:
        sys.stderr.write(f"{PROG}: {line}\n")
    if boards:
        sys.stderr.write(f"{_count(boards, 'board')}, {_count(findings, 'finding')}\n")
    return 2 if refused else bool(findings)


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def _read(files: Sequence[Path]) -> tuple[dict[str, Any], list[str]]:
    """Return the boards by file, and an error for each file without a board: the others are checked all the same."""
    boards: dict[str, Any] = {}
    refused: list[str] = []
    for path in files:
        try:
            boards[str(path)] = board_file.read(path)
        except board_file.NotABoardError as error:
            refused.append(str(error))
    return boards, refused


if __name__ == "__main__":
    sys.exit(main())
