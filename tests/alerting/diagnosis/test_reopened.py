"""An incident that opens again keeps its facts, their onsets and what it cost, and its new drop is diagnosed as one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from alerting_situations import BEFORE, Situation, Watch, becomes, grows, look, stored, watch

from pyrometer_alerting.incidents.lifecycle import fold
from pyrometer_alerting.model.incident import Diagnosis, Incident
from pyrometer_kit.prometheus import HttpPrometheus
from pyrometer_simulator.stack import StackError

OVER, AGAIN = 300.0, 600.0  # seconds after the first drop
SOON_OVER, SOON_AGAIN = 45.0, 140.0  # another fault follows as soon as the first is told as over
FIRED_AFTER = 20.0
EVENTS, CLOCK = "pyrometer_gpu_clock_event_seconds_total", "DCGM_FI_DEV_SM_CLOCK"


def hot(name: str, later: str, over: float = OVER, again: float = AGAIN) -> Situation:
    """Overheat gpu-002 GPU 3 until it is over, and this GPU of gpu-001 or gpu-002 from the second drop on."""
    node, gpu = later.split()
    situation = Situation(name, recovers=over, falls_again=again)
    first = grows(0.95, since=-2, until=over)
    second = grows(0.95, since=again - 2)
    low = becomes(1230, 1980, until=over)
    if (node, gpu) == ("gpu-002", "3"):
        situation.set(EVENTS, lambda at: first(at) + second(at), node=node, gpu=gpu, reason="hw_thermal")
        return situation.set(CLOCK, lambda at: 1230 if at >= again else low(at), node=node, gpu=gpu)
    situation.set(EVENTS, first, node="gpu-002", gpu="3", reason="hw_thermal")
    situation.set(CLOCK, low, node="gpu-002", gpu="3")
    situation.set(EVENTS, second, node=node, gpu=gpu, reason="hw_thermal")
    return situation.set(CLOCK, becomes(1230, 1980, since=again), node=node, gpu=gpu)


SITUATIONS = (
    hot("same", "gpu-002 3"),
    hot("other", "gpu-001 5"),
    hot("other soon", "gpu-001 5", SOON_OVER, SOON_AGAIN),
)


def reopened(prometheus: HttpPrometheus, situation: Situation, drop: float) -> tuple[Incident, list[Incident]]:
    """Return the incident as it was resolved, and after each look at its second episode."""
    over = OVER if situation.recovers is None else situation.recovers
    fired = (AGAIN if situation.falls_again is None else situation.falls_again) + FIRED_AFTER
    first = watch(prometheus, situation, drop, until=over).incident
    assert first is not None
    ended = replace(first.members[0], firing=False, ends_at=drop + over + 80)
    resolved = fold(first, [ended], 0, drop + over + 81)
    assert resolved is not None
    again = fold(
        resolved.incident, [replace(ended, firing=True, starts_at=drop + fired, ends_at=None)], 0, drop + fired
    )
    assert again is not None
    assert again.events == ("reopened",)
    incidents = [again.incident]
    for at in (1, 11, 21, 41, 61, 121, 181, 241):
        incidents.append(look(prometheus, incidents[-1], drop + fired + at, Watch()))
    return resolved.incident, incidents


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Incident, list[Incident], float]]]:
    drop = time.time() // 15 * 15 - BEFORE - 3600
    try:
        with stored(tmp_path_factory.mktemp("prometheus"), SITUATIONS, drop) as prometheus:
            yield {one.name: (*reopened(prometheus, one, drop), drop) for one in SITUATIONS}
    except StackError as error:
        pytest.skip(str(error))


def of(incident: Incident) -> Diagnosis:
    assert incident.diagnosis is not None
    return incident.diagnosis


def test_facts_causes_and_onsets_are_there_before_the_first_new_look(
    episodes: dict[str, tuple[Incident, list[Incident], float]],
) -> None:
    resolved, (fresh, *_later), _drop = episodes["same"]
    assert of(fresh).facts == of(resolved).facts
    assert of(fresh).causes == of(resolved).causes
    assert of(fresh).causes[0].part == "gpu-002 GPU 3"


@pytest.mark.parametrize(
    ("name", "part"), [("same", "gpu-002 GPU 3"), ("other", "gpu-001 GPU 5"), ("other soon", "gpu-001 GPU 5")]
)
def test_the_second_drop_has_its_own_onset_and_its_own_culprit(
    episodes: dict[str, tuple[Incident, list[Incident], float]], name: str, part: str
) -> None:
    _resolved, (_fresh, *looks), drop = episodes[name]
    assert {of(one).causes[0].part for one in looks} == {part}
    again = SOON_AGAIN if name == "other soon" else AGAIN
    assert [at - drop for at in of(looks[-1]).drops] == pytest.approx([0, again], abs=20)
    assert of(looks[-1]).onset == of(looks[-1]).drops[-1]
    heat = next(fact for fact in of(looks[-1]).facts if fact.kind == "hw_thermal" and fact.ended is None)
    assert heat.began == pytest.approx(drop + again, abs=20)


def test_the_first_culprit_is_told_as_over_with_the_first_drop(
    episodes: dict[str, tuple[Incident, list[Incident], float]],
) -> None:
    _resolved, (_fresh, *looks), _drop = episodes["other"]
    told = [cause for cause in (*of(looks[-1]).causes, *of(looks[-1]).seen) if cause.part == "gpu-002 GPU 3"]
    assert all("before the drop" in " ".join(cause.against) for cause in told)
    kept = [fact for fact in of(looks[-1]).facts if fact.kind == "hw_thermal" and fact.labels["node"] == "gpu-002"]
    assert kept


def test_a_card_takes_nothing_back_of_an_episode_it_said_nothing_of(
    episodes: dict[str, tuple[Incident, list[Incident], float]],
) -> None:
    _resolved, (_fresh, *looks), _drop = episodes["other soon"]
    assert {of(one).revision for one in looks} == {""}


@pytest.mark.parametrize("name", ["other", "other soon"])
def test_what_was_over_before_the_newest_drop_is_no_cause_of_it(
    episodes: dict[str, tuple[Incident, list[Incident], float]], name: str
) -> None:
    _resolved, (_fresh, *looks), _drop = episodes[name]
    assert "gpu-002 GPU 3" not in {cause.part for one in looks for cause in of(one).causes}


def test_the_cost_counts_on_and_leaves_out_the_good_time_between(
    episodes: dict[str, tuple[Incident, list[Incident], float]],
) -> None:
    resolved, (_fresh, *looks), _drop = episodes["same"]
    first, both = of(resolved).cost, of(looks[-1]).cost
    assert first is not None
    assert both is not None
    assert both.gpu_hours - first.gpu_hours == pytest.approx(32 * 0.3 * 261 / 3600, rel=0.25)
