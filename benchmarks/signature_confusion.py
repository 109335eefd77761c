"""Measure how often the signature classifier is right: every kind of fault, many seeds, several step times.

python benchmarks/signature_confusion.py           # the tables, as in docs/signatures.md
python benchmarks/signature_confusion.py --write   # and into that page (`make docs` does)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import replace_between_marks

from pyrometer_alerting.diagnosis.batches import curve_of
from pyrometer_alerting.diagnosis.signature import KINDS as SIGNATURES
from pyrometer_alerting.diagnosis.signature import LOOK_AT, Reference, classify
from pyrometer_simulator.mfu_traces import KINDS, Trace, trace

STEP_SECONDS = (0.25, 1.0, 3.0, 10.0, 30.0)
SEEDS = range(1000, 1010)  # different from those that the thresholds were chosen with (0 to 9)
PAGE = Path(__file__).parents[1] / "docs" / "signatures.md"
BEGIN, END = "<!-- begin generated -->\n", "<!-- end generated -->\n"

Table = dict[tuple[str, float], Counter[str]]


def verdict(run: Trace) -> str:
    curve = curve_of(run.at, run.mfu / run.expected, run.step, run.attempt, run.tagged)
    found = classify(curve, Reference(), run.silent_seconds)
    return "unknown" if found is None else found.kind


def confusion(seeds: Sequence[int] = SEEDS, rough: float = 1.0) -> Table:
    return {
        (kind, seconds): Counter(verdict(trace(kind, seed, seconds, rough)) for seed in seeds)
        for kind in KINDS
        for seconds in STEP_SECONDS
    }


def share(table: Table) -> str:
    right = sum(counts[kind] for (kind, _), counts in table.items())
    unknown = sum(counts["unknown"] for (kind, _), counts in table.items() if kind != "unknown")
    total = sum(sum(counts.values()) for counts in table.values())
    return f"{right} of {total} curves right, {total - right - unknown} wrong, {unknown} wrongly `unknown`"


def page(table: Table, rough: Table) -> str:
    noise = f"With three times the noise (0.9 to 3 %), where every curve is `noisy` as well: {share(rough)}."
    return "\n".join([*_meanings(), "", *_matrix(table), "", *_by_step_time(table), "", noise, ""])


def measured() -> str:
    return page(confusion(), confusion(SEEDS[:3], rough=3.0))


def _meanings() -> Iterator[str]:
    yield "| signature | the curve | look at |"
    yield "|---|---|---|"
    for kind, said in SIGNATURES.items():
        yield f"| `{kind}` | {said} | {LOOK_AT.get(kind, '')} |"


def _matrix(table: Table) -> Iterator[str]:
    answers = [kind for kind in SIGNATURES if any(counts[kind] for counts in table.values())]
    yield f"{share(table)}."
    yield f"Rows are what was drawn ({len(SEEDS)} seeds at each of {len(STEP_SECONDS)} step times), columns the answer."
    yield ""
    yield "| drawn | " + " | ".join(f"`{answer}`" for answer in answers) + " |"
    yield "|---|" + "---:|" * len(answers)
    for kind in KINDS:
        counts = sum((table[kind, seconds] for seconds in STEP_SECONDS), Counter[str]())
        shown = [_cell(counts[answer], answer == kind) for answer in answers]
        yield f"| `{kind}` | " + " | ".join(shown) + " |"


def _cell(count: int, right: bool) -> str:
    return f"**{count}**" if right else str(count or "")


def _by_step_time(table: Table) -> Iterator[str]:
    yield "Right, by step time:"
    yield ""
    yield "| drawn | " + " | ".join(f"{seconds:g} s" for seconds in STEP_SECONDS) + " |"
    yield "|---|" + "---:|" * len(STEP_SECONDS)
    for kind in KINDS:
        rights = [f"{table[kind, seconds][kind]} of {len(SEEDS)}" for seconds in STEP_SECONDS]
        yield f"| `{kind}` | " + " | ".join(rights) + " |"


def main() -> None:
    text = measured()
    print(text)
    if "--write" in sys.argv:
        replace_between_marks(PAGE, BEGIN, END, text)


if __name__ == "__main__":
    main()
