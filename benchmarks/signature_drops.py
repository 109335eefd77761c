"""Measure how early and how often the kind of a drop is right, by how much of the drop has been observed.

Each run is good for an hour and loses a link three times right before its trouble begins; the alert and the onset are
found as in service. The figures of signature.py are from here, with the first seeds; the page has those of the others.

python benchmarks/signature_drops.py           # the tables, as in docs/signatures.md
python benchmarks/signature_drops.py --write   # and into that page (`make docs` does)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from harness import replace_between_marks

from pyrometer_alerting.diagnosis.batches import WINDOW_SECONDS, MfuCurve, Run
from pyrometer_alerting.diagnosis.examination import AROUND_DROP
from pyrometer_alerting.diagnosis.look import LOOK_BACK_SECONDS
from pyrometer_alerting.diagnosis.onset import STEP_SECONDS, drop_onset
from pyrometer_alerting.diagnosis.signature import LEAST_BATCHES, LEAST_SECONDS, MAX_CONFIDENCE, Drop, verdict_on
from pyrometer_simulator.mfu_traces import Fall, fall

KINDS = (
    "step_down",
    "spell",
    "frequent_dips",
    "gradual_decline",
    "stall_burst",
    "regular_stalls",
    "rare_stalls",
    "noisy",
    "unknown",
)
STEPS = (0.25, 1.0, 3.0, 10.0, 30.0)
AGES = (30, 60, 90, 120, 300, 600, 1200)
LEAST_SEEN = 10  # batches; fewer can't be fitted
SEEDS = range(1000, 1008)  # different from those that the thresholds were chosen with (0 to 19)
PAGE = Path(__file__).parents[1] / "docs" / "signatures.md"
BEGIN, END = "<!-- begin generated: drops -->\n", "<!-- end generated: drops -->\n"


@dataclass(frozen=True)
class Answer:
    """The kind that was reported for a drop after so many seconds and batches."""

    drawn: str
    step_seconds: float
    age: int
    batches: int
    said: str

    @property
    def named(self) -> bool:
        return self.said not in ("unknown", "steady")

    @property
    def right(self) -> bool:
        return self.said == self.drawn


def curve_until(run: Fall, now: float) -> MfuCurve:
    """Return the window that the service analyses."""
    window = Run("", "", WINDOW_SECONDS / (run.run.at[1] - run.run.at[0])).window(AROUND_DROP * (now - run.began))
    seen = (run.run.at <= now) & (run.run.at > now - window)
    return MfuCurve(run.run.at[seen], run.run.mfu[seen], run.run.step[seen], run.run.attempt[seen])


def drop_picture_of(run: Fall, step_seconds: float) -> Drop | None:
    """Return the drop as TrainMfuDropped and its incident's evidence see it; None if the alert does not fire."""
    at, mfu = run.run.at, pd.Series(run.run.mfu)
    seconds, least = (30.0, 0.85) if step_seconds <= 3 else (120.0, 0.93) if step_seconds <= 24 else (600.0, 0.93)
    window = mfu.rolling(round(seconds / step_seconds))
    low = (window.mean() if step_seconds <= 3 else window.median()) < least
    fired = at[low.to_numpy() & (at > run.began)]
    return Drop(float(fired[0]), _onset(curve_until(run, float(fired[0])))) if len(fired) else None


def _onset(curve: MfuCurve) -> float | None:
    seen = curve.part(curve.at[-1] - LOOK_BACK_SECONDS)
    behind = (curve.at[-1] - seen.at) // STEP_SECONDS
    grid = pd.Series(seen.ratio).groupby(curve.at[-1] - STEP_SECONDS * behind).mean()
    return drop_onset(grid)


def answers(kind: str, seed: int, step_seconds: float) -> Iterator[Answer]:
    run = fall(kind, seed, step_seconds)
    drop = drop_picture_of(run, step_seconds)
    if drop is None:
        return
    began = drop.began(curve_until(run, drop.fired_at))
    for age in AGES:
        now = began + age
        if not drop.fired_at <= now <= run.run.at[-1]:
            continue
        curve = curve_until(run, now)
        batches = len(curve.part(began).at)
        if batches < LEAST_SEEN:
            continue
        drawn = "step_down" if kind == "spell" and now <= run.back else kind
        yield Answer(drawn, step_seconds, age, batches, verdict_on(curve, began).kind)


def measured(seeds: Sequence[int] = SEEDS) -> list[Answer]:
    return [one for kind in KINDS for step in STEPS for seed in seeds for one in answers(kind, seed, step)]


def share(found: Iterable[Answer]) -> str:
    counts = Counter(one.right for one in found)
    return f"{counts[True]} of {counts.total()}" if counts else ""


def earned(found: Iterable[Answer]) -> float:
    """Return Laplace's estimate of the share of right answers."""
    counts = Counter(one.right for one in found)
    return (counts[True] + 1) / (counts.total() + 2)


def old_enough(found: Iterable[Answer]) -> list[Answer]:
    """Return the answers that the service gives."""
    return [one for one in found if one.named and one.age >= LEAST_SECONDS and one.batches >= LEAST_BATCHES]


def page(found: Sequence[Answer]) -> str:
    return "\n".join([*_by_age(found), "", *_by_kind(found), ""])


def _by_age(found: Sequence[Answer]) -> Iterator[str]:
    yield "Right, of the answers that named a kind, by how much of the drop was seen, and by step time:"
    yield ""
    yield "| seen | " + " | ".join(f"{seconds:g} s" for seconds in STEPS) + " |"
    yield "|---:|" + "---:|" * len(STEPS)
    for age in AGES:
        named = [one for one in found if one.named and one.age == age]
        cells = [share(one for one in named if one.step_seconds == seconds) for seconds in STEPS]
        yield f"| {age} s | " + " | ".join(cells) + " |"


def _by_kind(found: Sequence[Answer]) -> Iterator[str]:
    yield f"By kind, of drops of which {LEAST_SECONDS:.0f} s and {LEAST_BATCHES} batches were seen:"
    yield ""
    yield "| answer | right | drawn, where wrong | at most so sure |"
    yield "|---|---:|---|---:|"
    for kind, surest in MAX_CONFIDENCE.items():
        said = [one for one in old_enough(found) if one.said == kind]
        wrong = Counter(one.drawn for one in said if not one.right).most_common()
        drawn = ", ".join(f"`{name}` {count}" for name, count in wrong)
        yield f"| `{kind}` | {share(said)} | {drawn} | {100 * surest:.0f} % |"


def main() -> None:
    text = page(measured())
    print(text)
    if "--write" in sys.argv:
        replace_between_marks(PAGE, BEGIN, END, text)


if __name__ == "__main__":
    main()
