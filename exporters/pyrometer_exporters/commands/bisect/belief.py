"""Infer from tests of groups which hosts and switches are bad, and how surely.

A test fails if a bad host takes part, or if it crosses the uplinks of a bad switch; a good group fails and a bad one
passes at the rates of :class:`Noise`. The probabilities come from belief propagation over that graph, which is exact
while no two tests share two suspects and close to it otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

ITERATIONS: Final = 25
DAMPING: Final = 0.5
MOST_LOG_ODDS: Final = 30.0


class Outcome(NamedTuple):
    """A group of hosts that ran the command, and whether it passed."""

    hosts: tuple[str, ...]
    passed: bool


@dataclass(frozen=True)
class Noise:
    """How tests and hosts behave by chance; all are probabilities.

    Attributes:
        false_alarm: a test of a good group fails.
        missed: a test of a bad group passes.
        bad_host: a host is bad, before anything is known.
        bad_switch: a switch is.
    """

    false_alarm: float = 0.01
    missed: float = 0.02
    bad_host: float = 0.01
    bad_switch: float = 0.002


Switches = Mapping[str, str]
"""The switch of each host, where known."""
SWITCH_MARK: Final = "switch "


def causes_of(hosts: Sequence[str], switches: Switches) -> list[str]:
    """Return all that can make a test of these hosts fail: each host, and each switch whose uplinks it crosses."""
    below = {switches.get(host) for host in hosts}
    crossed = sorted(name for name in below if name is not None) if len(below) > 1 else []
    return [*hosts, *(f"{SWITCH_MARK}{name}" for name in crossed)]


def probabilities(hosts: Sequence[str], switches: Switches, tests: Sequence[Outcome], noise: Noise) -> dict[str, float]:
    """Return the probability to be bad of each host, and of each switch as ``switch NAME``."""
    names = [*hosts, *sorted({f"{SWITCH_MARK}{name}" for name in switches.values()})]
    odds = {name: _log_odds(noise.bad_switch if name.startswith(SWITCH_MARK) else noise.bad_host) for name in names}
    asked = [(causes_of(test.hosts, switches), test.passed) for test in tests]
    suspects = {cause for causes, passed in asked if not passed for cause in causes}
    cleared = math.log(noise.missed) - math.log1p(-noise.false_alarm)
    edges = []
    for causes, passed in asked:
        involved = [cause for cause in causes if cause in suspects]
        for cause in causes:
            if cause not in suspects:  # it has only ever passed
                odds[cause] += cleared
        if involved:
            edges.append((involved, passed))
    odds.update(_propagate({name: odds[name] for name in suspects}, edges, noise))
    return {name: _probability(value) for name, value in odds.items()}


def _propagate(
    prior: Mapping[str, float], tests: Sequence[tuple[list[str], bool]], noise: Noise
) -> Mapping[str, float]:
    """Return the log odds of suspects after all tests: the sum-product algorithm, damped."""
    messages = [[0.0] * len(causes) for causes, _ in tests]
    total = dict(prior)
    for _ in range(ITERATIONS):
        for (causes, passed), sent in zip(tests, messages, strict=True):
            extrinsic = [_clamped(total[cause] - old) for cause, old in zip(causes, sent, strict=True)]
            fresh = _answers(extrinsic, noise, passed=passed)
            for number, cause in enumerate(causes):
                new = DAMPING * sent[number] + (1 - DAMPING) * fresh[number]
                total[cause] += new - sent[number]
                sent[number] = new
    return total


def _answers(extrinsic: Sequence[float], noise: Noise, *, passed: bool) -> list[float]:
    """Return the log likelihood ratio that the test gives for each of its causes, all others being as they are."""
    innocent = [math.log1p(-_probability(value)) for value in extrinsic]
    everyone = math.fsum(innocent)
    bad = noise.missed if passed else 1 - noise.missed
    good = 1 - noise.false_alarm if passed else noise.false_alarm
    answers = []
    for probability in innocent:
        others_good = math.exp(min(0.0, everyone - probability))
        answers.append(math.log(bad) - math.log(others_good * good + (1 - others_good) * bad))
    return answers


def _log_odds(probability: float) -> float:
    return math.log(probability) - math.log1p(-probability)


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-_clamped(log_odds)))


def _clamped(value: float) -> float:
    return max(-MOST_LOG_ODDS, min(MOST_LOG_ODDS, value))
