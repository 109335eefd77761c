"""The fit learns from what was right, keeps what it sees nothing of, and stays within what is no matter of a fit."""

from __future__ import annotations

import numpy as np
import pytest

from pyrometer_simulator.incidents.examples import Example, table
from pyrometer_simulator.incidents.fit import fitted, judged

NAMES = ("kind link_flap", "kind hw_thermal", "waited_for", "blip")
PRESENT = np.array([0.5, 0.5, 0.0, -1.0])
# In each of forty looks the link that is waited for is right, and the GPU beside it is not.
EXAMPLES = [
    Example("case", 1, look, kind, 0.0, features, right)
    for look in range(40)
    for kind, features, right in (("link_flap", {"waited_for": 1.0}, True), ("hw_thermal", {"waited_for": 0.0}, False))
]


def test_the_fit_raises_what_the_right_ones_have_and_lowers_what_the_wrong_ones_have() -> None:
    after = dict(zip(NAMES, fitted(table(EXAMPLES, NAMES), PRESENT), strict=True))
    assert after["kind link_flap"] > 0.7
    assert after["waited_for"] > 0.2
    assert after["kind hw_thermal"] < 0.3


def test_a_weight_that_no_example_has_stays_as_it_is() -> None:
    after = dict(zip(NAMES, fitted(table(EXAMPLES, NAMES), PRESENT), strict=True))
    assert after["blip"] == pytest.approx(-1.0)


def test_a_feature_that_speaks_for_a_cause_never_comes_to_speak_against_it() -> None:
    turned = [Example("case", 1, each.look, each.kind, 0.0, each.features, not each.right) for each in EXAMPLES]
    present = np.array([0.5, 0.5, 0.4, -1.0])
    after = dict(zip(NAMES, fitted(table(turned, NAMES), present), strict=True))
    assert after["waited_for"] == 0.0
    assert after["kind link_flap"] < 0.0, "a prior may"


def test_an_alert_keeps_the_prior_of_its_rule() -> None:
    alert = Example("case", 1, 0, "", 1.25, {"waited_for": 1.0}, right=True)
    rows = table([alert], NAMES)
    assert rows.logits(PRESENT) == pytest.approx([1.25])
    assert not rows.rows[0, :2].any()


def test_what_speaks_against_a_cause_never_speaks_less_against_it() -> None:
    short = [Example("case", 1, look, "link_flap", 0.0, {"blip": 1.0}, right=True) for look in range(40)]
    assert fitted(table(short, NAMES), PRESENT)[3] == -1.0


def test_how_often_the_likeliest_is_right_counts_the_looks_in_which_one_is() -> None:
    nobody = Example("case", 2, 0, "hw_thermal", 0.0, {}, right=False)
    found = [*EXAMPLES, nobody]
    said = judged(found, table(found, NAMES).logits(np.array([2.0, 0.0, 0.0, 0.0])))
    assert said.startswith("likeliest is right in 40 of 40 looks that could be")
