"""Each machine of the zoo plays its week and its losses: no check accuses it while healthy, and each loss is named."""

from __future__ import annotations

import pytest

from pyrometer_simulator.zoo.machine import Description
from pyrometer_simulator.zoo.player import descriptions, play


@pytest.mark.parametrize("machine", descriptions(), ids=lambda machine: machine.folder.name)
def test_a_healthy_machine_is_not_accused_and_its_losses_are_named(machine: Description) -> None:
    played = play(machine)
    assert played.wrong == []
    assert [loss.what for loss in played.losses if not loss.named] == []
