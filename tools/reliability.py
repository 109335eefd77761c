"""Write docs/reliability.md from the results of fuzzing, mutation testing and attacks: ``make reliability``.

    python tools/reliability.py [--measure] [--write docs/reliability.md]

``--measure`` plays the attacks of benchmarks/attacks.yaml first: each is a test or several. The results of all three
are JSON files in benchmarks/results/; the page is made from them alone.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ATTACKS = ROOT / "benchmarks" / "attacks.yaml"
BEGIN, END = "<!-- begin generated -->", "<!-- end generated -->"


def played() -> list[dict[str, Any]]:
    """Return each attack with the verdict of its tests: held, failed, or no test here."""
    rows = []
    for subject, attacks in yaml.safe_load(ATTACKS.read_text(encoding="utf-8")).items():
        for attack in attacks:
            began = time.monotonic()
            verdicts = [_verdict(test) for test in attack["tests"]]
            worst = max(verdicts, key=("held", "no test here", "failed").index)
            rows.append({"subject": subject, **attack, "verdict": worst, "seconds": round(time.monotonic() - began, 1)})
            print(f"{worst}: {attack['attack']}", flush=True)
    return rows


def _verdict(test: str) -> str:
    words = shlex.split(test)
    if not (ROOT / words[0]).exists():
        return "no test here"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    status = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode
    return {0: "held", 5: "no test here"}.get(status, "failed")


def page(results: Path = RESULTS) -> Iterator[str]:
    """Yield the generated part of the page, from what results there are."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    if "attacks" in found:
        yield from _attacks(found["attacks"])
    if "mutation" in found:
        yield from _mutation(found["mutation"])
    if "fuzz" in found:
        yield from _fuzz(found["fuzz"])


def _attacks(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    held = sum(row["verdict"] == "held" for row in rows)
    yield from ("## Attacks", "", f"{held} of {len(rows)} held when they were last played.", "")
    yield from ("| attack | before | now | last played |", "|---|---|---|---|")
    for row in rows:
        tests = ", ".join(f"`{test.partition(' ')[0]}`" for test in row["tests"])
        yield f"| {row['subject']}: {row['attack']} | {row['before']} | {row['now']} | {row['verdict']}: {tests} |"
    yield ""


def _mutation(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from (
        "## Mutants",
        "",
        "| module | mutants | noticed by a test | equivalent | survived |",
        "|---|---|---|---|---|",
    )
    for row in rows:
        real = row["mutants"] - len(row["equivalent"])
        yield (
            f"| {row['subject']} (`{row['module']}`) | {row['mutants']} | {row['killed']} "
            f"({row['killed'] / real:.1%}) | {len(row['equivalent'])} | {len(row['survivors'])} |"
        )
    yield ""
    for row in rows:
        yield from (f"- {row['subject']}, survived: `{one.replace('|', '¦')}`" for one in row["survivors"])
    yield ""


def _fuzz(document: dict[str, Any]) -> Iterator[str]:
    targets = document["targets"]
    total, found = sum(one["executions"] for one in targets), sum(len(one["findings"]) for one in targets)
    yield from ("## Fuzzing", "")
    yield f"{total:,} inputs, {document['seconds']} s for each reader, seed {document['seed']}; {found} new findings."
    yield from ("", "| reader | reads | inputs | edges of our code |", "|---|---|---|---|")
    for one in targets:
        yield f"| `{one['target']}` | {one['reads']} | {one['executions']:,} | {one['edges']:,} |"
    yield ""


def written(text: str, lines: Sequence[str]) -> str:
    """Return the page with its generated part replaced."""
    made = "\n".join((BEGIN, *lines, END))
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: made, text, flags=re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Play, write, and return 1 if an attack did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="play the attacks first")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page; otherwise its generated part is printed")
    options = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    if options.measure:
        rows = played()
        (RESULTS / "attacks.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    lines = list(page())
    if options.write:
        options.write.write_text(written(options.write.read_text(encoding="utf-8"), lines), encoding="utf-8")
    else:
        print("\n".join(lines))
    return int(any(row["verdict"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
