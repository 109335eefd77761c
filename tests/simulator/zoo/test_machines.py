"""Each machine of the zoo plays its week and its losses: no check accuses it while healthy, and each loss is named."""

from __future__ import annotations

import pytest

from pyrometer_simulator.situations.verdict import Rules
from pyrometer_simulator.stack import Stack
from pyrometer_simulator.zoo.machine import Description
from pyrometer_simulator.zoo.player import (
    TOLD_BY_ALERTS,
    Played,
    at_work,
    descriptions,
    lose,
    losses,
    play,
    take_alerts,
)

EVERY = descriptions()


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.folder.name)
def test_a_healthy_machine_is_not_accused_and_its_losses_are_named(machine: Description) -> None:
    played = play(machine)
    assert played.wrong == []
    assert [loss.what for loss in played.missed] == []


def test_what_no_check_sees_an_alert_tells(stack: Stack) -> None:
    rules = Rules()
    every = []
    for description in EVERY:
        played = Played(description)
        for verb, argument in losses(description):
            if verb in TOLD_BY_ALERTS:
                with at_work(description) as machine:
                    played.losses += lose(machine, verb, argument, rules.metrics)
        every.append(played)
    take_alerts(stack.promtool, rules, every)
    assert [loss.what for played in every for loss in played.losses] != []
    assert [(played.machine.name, loss.what) for played in every for loss in played.missed] == []
