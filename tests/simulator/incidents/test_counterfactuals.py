"""A right cause without what made it right is an example of a wrong one; a fit that has seen them is not convinced."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from pyrometer_alerting.diagnosis.weights import Weights, probability
from pyrometer_simulator.incidents.counterfactuals import PRINCIPLES, rivals, twins, without_waits
from pyrometer_simulator.incidents.examples import Example, table
from pyrometer_simulator.incidents.fit import convinced, fitted

HOT = {"began_with_drop": 1.0, "strength": 0.5, "unlike_peers": 1.0, "waited_for": 1.0, "another_kind": 2.0}
SILENT = {"began_with_drop": 1.0, "run_stands": 1.0}


def example(kind: str, features: Mapping[str, float], *, right: bool = True, look: int = 0) -> Example:
    return Example("case", 1, look, kind, 0.0, features, right)


def broken(one: Example) -> dict[str, Mapping[str, float]]:
    return {twin.incident.partition(", but: ")[2]: twin.features for twin in twins([one])}


def test_a_hot_gpu_is_wrong_where_it_began_late_ended_early_slowed_nothing_or_nobody_waits_for_it() -> None:
    assert broken(example("hw_thermal", HOT)) == {
        "began minutes after the drop": {
            "began_after_drop": 1.0,
            "strength": 0.5,
            "unlike_peers": 1.0,
            "another_kind": 2.0,
        },
        "was over before the drop": {
            "began_before_drop": 1.0,
            "ended_before_drop": 1.0,
            "strength": 0.5,
            "unlike_peers": 1.0,
            "another_kind": 2.0,
        },
        "throttles with clocks and temperature as its peers'": {
            "began_with_drop": 1.0,
            "strength": 0.5,
            "unlike_peers": 1.0,
            "clock_unaffected": 1.0,
            "temperature_normal": 1.0,
        },
        "the run waits for a part elsewhere": {
            "began_with_drop": 1.0,
            "strength": 0.5,
            "unlike_peers": 1.0,
            "another_kind": 2.0,
            "others_waited_for": 1.0,
        },
    }


def test_a_wrong_candidate_has_no_twin() -> None:
    assert broken(example("hw_thermal", HOT, right=False)) == {}


def test_every_principle_is_broken_by_some_example() -> None:
    seen = [example("hw_thermal", HOT), example("node_silent", SILENT), example("", {})]
    assert {twin.incident.partition(", but: ")[2] for twin in twins(seen)} == {each.name for each in PRINCIPLES}


def test_a_run_that_names_no_parts_has_the_same_candidates_without_waits() -> None:
    other = example("pcie_width", {"others_waited_for": 1.0}, right=False)
    rank = example("least_wait", {"began_with_drop": 1.0}, right=False)
    (hot, pcie) = without_waits([example("hw_thermal", HOT), other, rank])
    assert hot.features == {name: value for name, value in HOT.items() if name != "waited_for"}
    assert (pcie.features, pcie.right, pcie.incident) == ({}, False, hot.incident)


def test_a_rival_is_a_link_that_is_quiet_since() -> None:
    same, link = rivals([example("hw_thermal", HOT)])
    assert (same.kind, same.right, same.features) == ("hw_thermal", True, HOT)
    assert (link.kind, link.right, link.incident) == ("link_flap", False, same.incident)
    assert link.features == {name: value for name, value in HOT.items() if name != "waited_for"} | {
        "quiet_since_drop": 1.0
    }


@pytest.mark.parametrize(
    "principle", [each.name for each in PRINCIPLES if each.name != "fell silent while the run goes on"]
)
def test_a_fit_that_has_seen_the_twins_believes_the_right_ones_and_none_of_the_twins(principle: str) -> None:
    weights = Weights()
    present = {f"kind {name}": value for name, value in weights.priors.items()} | dict(weights.features)
    names, figures = tuple(present), np.array(list(present.values()))
    seen = [example("hw_thermal", HOT, look=look) for look in range(40)]
    wrong = list(twins(seen))
    after = fitted(table([*seen, *wrong], names), figures)
    assert probability(float(table(seen, names).logits(after)[0])) >= weights.confidence["high"]
    told = list(convinced(wrong, table(wrong, names).logits(after), weights))
    assert [line for line in told if principle in line and ": 0 of " not in line] == []
