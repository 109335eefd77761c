"""The candidates that the service ranked in watched incidents, as examples that weights are fitted to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrometer_alerting.diagnosis.conclusion import case_of
from pyrometer_alerting.diagnosis.ranking import candidates
from pyrometer_alerting.diagnosis.weights import Weights
from pyrometer_alerting.model.incident import Cause, Diagnosis
from pyrometer_simulator.incidents.score import MOMENTS, RIGHT, verdict
from pyrometer_simulator.incidents.watch import Look, Watched
from pyrometer_simulator.incidents.world import Truth

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Example:
    """One candidate of one look: its kind (empty: an alert, whose prior is the rule's), its features, is it right."""

    incident: str
    seed: int
    look: int
    kind: str
    prior: float
    features: Mapping[str, float]
    right: bool
    weight: float = 1.0
    """Multiply the look's influence on the fit: 0.3 counts as three tenths of a look."""


def examples(name: str, seed: int, truth: Truth, watched: Watched) -> Iterator[Example]:
    """Yield the candidates at each moment of a watched incident."""
    weights = Weights()
    for number, moment in enumerate(MOMENTS):
        looks = [look for look in watched.looks if look.at - (watched.webhook or 0.0) <= moment]
        if looks:
            yield from _of_look(looks[-1], truth, weights, (name, seed, number))


def _of_look(look: Look, truth: Truth, weights: Weights, key: tuple[str, int, int]) -> Iterator[Example]:
    found = look.diagnosis
    for one in candidates(found.facts, case_of(look.incident, found, weights)):
        cause = Cause(one.part, one.name, tuple(fact.detail for fact in one.facts), labels=dict(one.labels) or None)
        right = one.part != "unknown" and verdict(truth, Diagnosis(found.at, (cause,))) == RIGHT
        own = sum(weights.features[name] * value for name, value in one.features.items())
        alert = one.kind == "alert"
        yield Example(*key, "" if alert else one.kind, one.logit - own, one.features, right)


@dataclass(frozen=True)
class Table:
    """Examples as a matrix of features, whose first columns are the kinds' priors, and the look that each is of."""

    names: tuple[str, ...]
    rows: Floats
    fixed: Floats
    right: Floats
    looks: npt.NDArray[np.intp]
    weights: Floats

    def logits(self, weights: Floats) -> Floats:
        """Return the logit of each example."""
        result: Floats = self.rows @ weights + self.fixed
        return result

    def slope(self, weights: Floats) -> Floats:
        """Return how the looks' unlikelihood grows with each weight.

        A look's likelihood is the share of its right candidates among all and none; of none, where no one is right.
        """
        odds = np.exp(self.logits(weights).clip(-30, 30))
        good = odds * self.right
        among_all = odds / (1 + np.bincount(self.looks, odds))[self.looks]
        among_right = good / np.maximum(np.bincount(self.looks, good), 1e-12)[self.looks]
        result: Floats = self.rows.T @ (self.weights * (among_all - among_right))
        return result


def table(found: Sequence[Example], names: Sequence[str]) -> Table:
    """Return examples as a table."""
    place = {name: number for number, name in enumerate(names)}
    rows = np.zeros((len(found), len(names)))
    for number, each in enumerate(found):
        if each.kind:
            rows[number, place[f"kind {each.kind}"]] = 1.0
        for name, value in each.features.items():
            rows[number, place[name]] = value
    keys = [(each.incident, each.seed, each.look) for each in found]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    fixed = np.array([0.0 if each.kind else each.prior for each in found])
    right = np.array([float(each.right) for each in found])
    counts = np.array([each.weight for each in found])
    return Table(tuple(names), rows, fixed, right, np.array([numbers[key] for key in keys]), counts)
