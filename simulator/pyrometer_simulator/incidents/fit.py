"""Fit the weights by which the alerting service ranks causes, on incidents to learn from; judge them on others.

``python -m pyrometer_simulator.incidents.fit --learn 204-207 --held-out 208-209`` plays incidents and prints the table
of weights as they are and as fitted, with what each gets right on the seeds that the fit has not seen.

A candidate is right if it would be as the first cause. The candidates of a look compete: that one of them is the
likeliest has a probability that is logistic in the weights against all others, and against none of them. The weights
are held to their present figures as far as the incidents say nothing else, and each right candidate has twins that are
wrong (`counterfactuals.py`). A feature keeps the sense of its definition, as generated incidents are too few to
overturn it: what speaks against a cause never speaks less against it, what speaks for one never against it, and a
silence or a restart is not made a cause.
"""

from __future__ import annotations

import argparse
import logging
import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pyrometer_alerting.diagnosis.catalog import load
from pyrometer_alerting.diagnosis.conclusion import concluded
from pyrometer_alerting.diagnosis.weights import Weights, probability
from pyrometer_alerting.model.incident import Diagnosis
from pyrometer_simulator.incidents.__main__ import cases_of, catalogue, grouped, play, seeds_of
from pyrometer_simulator.incidents.counterfactuals import rivals, twins, without_waits
from pyrometer_simulator.incidents.examples import Example, Floats, Table, examples, table
from pyrometer_simulator.incidents.score import MOMENTS, at_moment, verdict, whole_watch
from pyrometer_simulator.incidents.watch import Look, Watched
from pyrometer_simulator.incidents.world import Truth

HOLD = 4.0  # how many looks a weight's present figure counts as
ROUNDS = 3000
RATE = 0.03
KEPT = (
    "node_silent",
    "maintenance",
    "restart",
    "celsius",
    "symptom",
    "alert",
)  # kinds whose priors are no matter of a fit


def fitted(examples_: Table, present: Floats) -> Floats:
    """Return the weights that make the looks likely, held to the present ones and within what is no matter of a fit."""
    weights, first, second = present.copy(), np.zeros(len(present)), np.zeros(len(present))
    least, most = _bounds(examples_.names, present)
    for number in range(1, ROUNDS + 1):
        slope = examples_.slope(weights) + HOLD * (weights - present)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        step = (first / (1 - 0.9**number)) / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)
        weights = (weights - RATE * step).clip(least, most)
    return weights


def _bounds(names: Sequence[str], present: Floats) -> tuple[Floats, Floats]:
    kept = np.array([name.removeprefix("kind ") in KEPT and name.startswith("kind ") for name in names])
    feature = np.array([not name.startswith("kind ") for name in names])
    least = np.where(kept, present, np.where(feature & (present > 0), 0.0, -np.inf))
    most = np.where(kept | (feature & (present < 0)), present, np.inf)
    return least, most


def judged(found: Sequence[Example], logits: Floats) -> str:
    """Return how often the likeliest candidate is right, and how sure it may be of it."""
    looks: dict[tuple[str, int, int], list[tuple[float, bool]]] = {}
    for each, logit in zip(found, logits, strict=True):
        looks.setdefault((each.incident, each.seed, each.look), []).append((float(logit), each.right))
    possible = [max(look) for look in looks.values() if any(right for _logit, right in look)]
    lines = [f"likeliest is right in {sum(right for _l, right in possible)} of {len(possible)} looks that could be"]
    for low, high in ((0.0, 0.3), (0.3, 0.6), (0.6, 0.8), (0.8, 0.93), (0.93, 0.98), (0.98, 1.01)):
        said = [right for logit, right in map(max, looks.values()) if low <= probability(logit) < high]
        if said:
            lines.append(f"  said {low:.2f}-{min(high, 1):.2f}: right {sum(said)} of {len(said)}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Played:
    """One incident that was watched."""

    kind: str
    seed: int
    truth: Truth
    watched: Watched


def concluded_again(one: Played, weights: Weights) -> str:
    """Return the verdict on the whole watch, had the service concluded with these weights from the same facts."""
    before: Diagnosis | None = None
    judged_looks: list[tuple[float, str, Look]] = []
    for look in one.watched.looks:
        found = replace(look.diagnosis, causes=(), seen=(), concluded_at=None, revision="")
        before = concluded(replace(look.incident, diagnosis=before), found, (), weights)
        at = look.at - (one.watched.webhook or 0.0)
        judged_looks.append((at, verdict(one.truth, before), replace(look, diagnosis=before)))
    moments = tuple(at_moment(judged_looks, moment) for moment in MOMENTS)
    return whole_watch(judged_looks, moments)


def figures_of(names: Sequence[str], figures: Floats) -> Weights:
    """Return weights with these figures in the order of the table."""
    known = dict(zip(names, map(float, figures), strict=True))
    priors = {name.removeprefix("kind "): value for name, value in known.items() if name.startswith("kind ")}
    features = {name: value for name, value in known.items() if not name.startswith("kind ")}
    kinds = {name: replace(kind, prior=priors[name]) for name, kind in load().kinds.items()}
    return Weights(replace(load(), kinds=kinds), features)


def main(argv: Sequence[str] | None = None) -> int:
    """Play, fit and print."""
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.incidents.fit", description=__doc__)
    parser.add_argument("--learn", default="21-24", metavar="SEEDS", help="a range of seeds to learn from")
    parser.add_argument("--held-out", default="25-26", metavar="SEEDS", help="a range of seeds to judge with")
    parser.add_argument("--played", type=Path, metavar="FOLDER", help="keep incidents here, or read those that it has")
    flags = parser.parse_args(argv)
    logging.basicConfig(level=logging.ERROR)
    learn, held = (_played(seeds, flags.played) for seeds in (flags.learn, flags.held_out))
    print("\n".join(report(learn, held)))
    return 0


def report(learn: Sequence[Played], held: Sequence[Played]) -> Iterator[str]:
    """Yield the lines of what the weights get right, as they are and as fitted, and the table of both."""
    weights = Weights()
    present = {f"kind {name}": value for name, value in weights.priors.items()} | dict(weights.features)
    names, figures = tuple(present), np.array(list(present.values()))
    seen = [row for one in learn for row in examples_of(one)]
    silent = list(without_waits(seen))
    after = fitted(table([*seen, *silent, *rivals(seen), *twins([*seen, *silent])], names), figures)
    for title, part in (("learned from", learn), ("held out", held)):
        found = [row for one in part for row in examples_of(one)]
        silent = list(without_waits(found))
        wrong = list(twins([*found, *silent]))
        for which, numbers in (("as they are", figures), ("fitted", after)):
            whole = Counter(concluded_again(one, figures_of(names, numbers)) for one in part)
            yield f"{title}, {which}: over the whole watch {dict(whole)}"
            yield judged(found, table(found, names).logits(numbers))
            yield f"no parts named: {judged(silent, table(silent, names).logits(numbers))}"
            yield from convinced(wrong, table(wrong, names).logits(numbers), weights)
    yield "| weight | before | fitted |\n|---|---:|---:|"
    for name, before, now in zip(names, figures, after, strict=True):
        yield f"| `{name.removeprefix('kind ')}` | {before:.2f} | {now:.2f} |"


def convinced(wrong: Sequence[Example], logits: Floats, weights: Weights) -> Iterator[str]:
    """Yield how many of the wrong twins would convince, by the principle that they break."""
    least = weights.confidence["medium"]
    every = Counter(each.incident.partition(", but: ")[2] for each in wrong)
    convincing = Counter(
        each.incident.partition(", but: ")[2]
        for each, logit in zip(wrong, logits, strict=True)
        if probability(float(logit)) >= least
    )
    for principle, count in every.items():
        yield f"  {principle}: {convincing[principle]} of {count} would convince"


def examples_of(one: Played) -> Iterator[Example]:
    """Yield the candidates of one incident."""
    yield from examples(one.kind, one.seed, one.truth, one.watched)


def _played(seeds: str, folder: Path | None) -> list[Played]:
    """Return the incidents of a range of seeds on which an alert fired, played at the service's own pace."""
    kept = folder / f"{seeds}.pickle" if folder is not None else None
    if kept is not None and kept.exists():
        return list(pickle.loads(kept.read_bytes()))  # noqa: S301 - our own file
    found: list[Played] = []
    for group in grouped(cases_of(list(catalogue().kinds), seeds_of(seeds), None)):
        for world, truth, _score, watched in play(group, every=0.0, show=True):
            if watched.webhook is not None:
                found.append(Played(world.kind, world.seed, truth, watched))
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
    return found


if __name__ == "__main__":
    sys.exit(main())
