"""The few words of evidence on a card, from the facts."""

from __future__ import annotations

from typing import Any

import pytest

from pyrometer_alerting.diagnosis.catalog import load
from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.wording import brief, evidence
from pyrometer_alerting.model.fact import Fact, Roster

KINDS = load().kinds
NODE = {"node": "n1"}
GPU = {"node": "n1", "gpu": "3"}
ROSTER = Roster(gpus={"n1": tuple("01234567"), "n2": ("0",)})
AT = 1_700_000_000.0


def fact(kind: str, labels: dict[str, str] | None = None, **more: Any) -> Fact:
    return Fact(kind, GPU if labels is None else labels, **{"began": AT, "seen_at": AT + 60, **more})


def node(kind: str, **more: Any) -> Group:
    facts = tuple(fact(kind, {"node": "n1", "gpu": str(gpu)}, **more) for gpu in range(8))
    return Group(NODE, facts, 8, 8, 8)


HOT = fact("hw_thermal", value=60.0)
SLOWED = fact("hw_slowdown", value=60.0)
CLOCK = fact("clock_low", value=1230.0, peers=1980.0)
WARM = fact("celsius", value=92.0, peers=61.0)
WAITS = fact("least_wait", detail="ranks 16-23", value=0.05, peers=0.28)
FLAP = fact("link_flap", moments=((AT, 1.0), (AT + 30, 1.0)))


@pytest.mark.parametrize(
    ("groups", "support", "said"),
    [
        (
            [Group.single(one) for one in (HOT, SLOWED, CLOCK, WARM)], [WAITS],
            "held at 1230 MHz (others 1980), 92 \u00b0C; the other ranks wait for it",
        ),
        ([node("hw_power_brake", value=60.0), node("clock_low", value=1320.0, peers=1939.0)], [],
         "all 8 GPUs held at 1320 MHz (others 1939)"),
        ([Group.single(FLAP)], [], "link went down 2 times"),
        ([Group.single(fact("xid_fatal", detail="79", moments=((AT, 1.0),)))], [],
         "Xid 79: the GPU has fallen off the bus"),
        ([Group.single(fact("rank_silent", detail="rank 21"))], [], "rank 21 is behind the others"),
        ([Group.single(fact("data", {}, value=0.31, before=0.015))], [],
         "data loading takes 31.0 % of the median rank's step up from 1.5 %"),
    ],
    ids=["a hot GPU", "a node", "a link", "an Xid", "a rank", "nobody"],
)  # fmt: skip
def test_the_strongest_evidence_in_a_few_words_without_its_time(
    groups: list[Group], support: list[Fact], said: str
) -> None:
    assert brief(groups, support, ROSTER, KINDS) == said


def test_what_is_one_is_said_once() -> None:
    told = list(evidence([Group.single(HOT), Group.single(SLOWED)], [], ROSTER, KINDS))
    assert len(told) == 1
    assert "hardware slowdown" in next(evidence([Group.single(SLOWED)], [], ROSTER, KINDS))
