"""Fuzz every reader of outside data for some time: ``python -m pyrometer_simulator.fuzz --seconds 60``.

Findings are added to ``tests/simulator/fuzz/found``, which the tests replay; ``--keep`` adds to the corpus what reached
new code. The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyrometer_simulator.fuzz.catalogue import CORPUS, corpus_of, keep, targets
from pyrometer_simulator.fuzz.run import Result, fuzz, selected

FOUND = CORPUS.parent / "found"


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz the targets one after the other and print a line for each."""
    options = _parser().parse_args(argv)
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write("fuzz: atheris is not installed: pip install --group fuzz (Python 3.11 to 3.13 on x86-64)\n")
        return 2
    chosen = [targets()[name] for name in options.targets] if options.targets else list(targets().values())
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for target in chosen:
            results.append(fuzz(target, Path(folder), seconds=options.seconds, seed=options.seed))
            _report(results[-1], keeps=options.keep)
            if options.write:
                _write(options.write, results, options)
    return int(any(result.findings for result in results))


def _report(result: Result, *, keeps: bool) -> None:
    print(
        f"{result.name:16} {result.executions:>11,} inputs in {result.seconds:.0f} s, {result.edges:,} edges, "
        f"{len(result.findings)} findings",
        flush=True,
    )
    for finding in result.findings:
        print(f"    {finding.why}")
    if result.findings:
        keep(result.name, [*corpus_of(result.name, FOUND), *(finding.data for finding in result.findings)], FOUND)
    if keeps:
        keep(result.name, selected(result.grown))


def _write(path: Path, results: Sequence[Result], options: argparse.Namespace) -> None:
    """Write the figures so far; those of other targets by the same seed and for as long stay."""
    document = {"seed": options.seed, "seconds": options.seconds, "python": platform.python_version()}
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    stays = before.get("targets", []) if all(before.get(name) == value for name, value in document.items()) else []
    rows = {row["target"]: row for row in (*stays, *(result.as_json() for result in results))}
    ordered = [rows[name] for name in targets() if name in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document | {"targets": ordered}, indent=1) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=[*targets(), []], help="default: all of them")
    parser.add_argument("--seconds", type=int, default=30, help="for each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep in the tree what reached new code")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the figures as JSON, for docs/reliability.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
