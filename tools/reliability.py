"""Write docs/reliability.md and docs/threat-model.md: ``make reliability`` tries everything of them first.

    python tools/reliability.py [--measure] [--figures [NAME...]] [--write]

``--measure`` plays the attacks of benchmarks/attacks.yaml first: each is a test or several. ``--figures`` runs the
programs of benchmarks/figures.yaml, all or those that are named. The results are JSON files in benchmarks/results/;
the pages are made from them and from the attacks.
"""

from __future__ import annotations

import argparse
import json
import os
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
sys.path.insert(0, str(ROOT))

from tools.mutate_subjects import SUBJECTS, current_version  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
ATTACKS = ROOT / "benchmarks" / "attacks.yaml"
FIGURES = ROOT / "benchmarks" / "figures.yaml"
PAGE, THREATS = ROOT / "docs" / "reliability.md", ROOT / "docs" / "threat-model.md"
BEGIN, END = "<!-- begin generated -->", "<!-- end generated -->"


def played() -> list[dict[str, Any]]:
    """Return each attack with the verdict of its tests: held, failed, or no test here."""
    rows = []
    for actor, part in yaml.safe_load(ATTACKS.read_text(encoding="utf-8")).items():
        for attack in part["attacks"]:
            began = time.monotonic()
            verdicts = [_verdict(test) for test in attack["tests"]]
            worst = max(verdicts, key=("held", "no test here", "failed").index)
            rows.append({"actor": actor, **attack, "verdict": worst, "seconds": round(time.monotonic() - began, 1)})
            print(f"{worst}: {attack['attack']}", flush=True)
    return rows


def _verdict(test: str) -> str:
    words = shlex.split(test)
    if not (ROOT / words[0]).exists():
        return "no test here"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", *words]
    status = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode
    return {0: "held", 5: "no test here"}.get(status, "failed")


def measured(names: Sequence[str], kept: Path) -> None:
    """Run the programs of figures.yaml and keep the lines that match; all of them if none is named."""
    known = yaml.safe_load(FIGURES.read_text(encoding="utf-8"))
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name in names or known:
        one = known[name]
        command = [sys.executable, *shlex.split(one["command"])]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        lines = [line for line in answer.stdout.splitlines() if re.search(one["lines"], line)]
        found[name] = {
            "what": one["what"], "command": one["command"], "lines": lines, "status": answer.returncode,
            "load": round(os.getloadavg()[0], 1), "cores": os.cpu_count(),
            "alone": os.sched_getscheduler(0) == os.SCHED_RR,
        }  # fmt: skip
        print(f"{name}: {answer.returncode}", *lines, sep="\n    ", flush=True)
        kept.write_text(
            json.dumps({key: found[key] for key in known if key in found}, indent=1) + "\n", encoding="utf-8"
        )


def page(results: Path = RESULTS) -> Iterator[str]:
    """Yield the generated part of the page, from what results there are."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    if "figures" in found:
        yield from _figures(found["figures"])
    if "mutation" in found:
        yield from _mutation(found["mutation"])
    if "fuzz" in found:
        yield from _fuzz(found["fuzz"])


def threats(results: Path = RESULTS) -> Iterator[str]:
    """Yield the generated part of the threat model: what each actor may do, and what was tried with which end."""
    kept = results / "attacks.json"
    rows = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    verdicts = {row["attack"]: row["verdict"] for row in rows}
    for actor, part in yaml.safe_load(ATTACKS.read_text(encoding="utf-8")).items():
        yield from (f"## {actor}", "", f"**May** {part['may']}.", "")
        yield from ("| tried | before | what protects | tests |", "|---|---|---|---|")
        for attack in part["attacks"]:
            tests = ", ".join(dict.fromkeys(f"`{test.partition(' ')[0]}`" for test in attack["tests"]))
            verdict = verdicts.get(attack["attack"], "held")  # a new one: its tests are in every run
            said = tests if verdict == "held" else f"**{verdict}**: {tests}"
            yield f"| {attack['attack']} | {attack['before']} | {attack['now']} | {said} |"
        yield ""


def _figures(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield from ("## Figures", "")
    for one in found.values():
        how = ", ahead of the other programs" if one["alone"] else ""
        verdict = "" if one["status"] == 0 else f", **status {one['status']}**"
        machine = f"load {one['load']} on {one['cores']} cores{how}{verdict}"
        yield f"{one['what'][0].upper()}{one['what'][1:]}: `{one['command']}`, {machine}."
        yield from ("", "```", *one["lines"], "```", "")


def _mutation(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from (
        "## Mutants",
        "",
        "| module | mutants | noticed by a test | equivalent | survived | measured on |",
        "|---|---|---|---|---|---|",
    )
    found = {row["subject"]: row for row in rows}
    for name, subject in SUBJECTS.items():
        row = found.get(name)
        if row is None:
            yield f"| {name} (`{subject.module}`) | **not measured** | | | | |"
            continue
        real = row["mutants"] - len(row["equivalent"])
        of = "" if row.get("of", row["mutants"]) == row["mutants"] else f" of {row['of']}"
        yield (
            f"| {name} (`{row['module']}`) | {row['mutants']}{of} | {row['killed']} ({row['killed'] / real:.1%}) "
            f"| {len(row['equivalent'])} | {len(row['survivors'])} | {_measured_on(row, current_version(name))} |"
        )
    yield ""
    for row in rows:
        yield from (f"- {row['subject']}, survived: `{one.replace('|', '¦')}`" for one in row["survivors"])
    yield ""


def _measured_on(row: dict[str, Any], current: str) -> str:
    """Return the version of the code that a row is about, and whether it is another one by now."""
    version = row.get("version", "")
    if version and version == current:
        return f"`{version}`"
    return f"**stale**: `{version or 'not noted'}`, now `{current or 'gone'}`"


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
    parser.add_argument("--figures", nargs="*", metavar="NAME", help="run the programs of figures.yaml first")
    parser.add_argument("--write", action="store_true", help="the pages; otherwise their generated parts are printed")
    options = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    if options.measure:
        rows = played()
        (RESULTS / "attacks.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.figures is not None:
        measured(options.figures, RESULTS / "figures.json")
    for file, lines in ((PAGE, list(page())), (THREATS, list(threats()))):
        if options.write:
            file.write_text(written(file.read_text(encoding="utf-8"), lines), encoding="utf-8")
        else:
            print("\n".join(lines))
    return int(any(row["verdict"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
