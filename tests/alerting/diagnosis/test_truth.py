"""No sentence of a diagnosis contradicts the facts that it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from alerting_fakes import START, training_incident
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyrometer_alerting.diagnosis.candidates import Candidate, Case
from pyrometer_alerting.diagnosis.conclusion import concluded
from pyrometer_alerting.diagnosis.evidence.gpus import SLOWDOWNS
from pyrometer_alerting.diagnosis.ranking import STOPPED_SECONDS, candidates, causes
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Diagnosis

NODES = ("gpu-000", "gpu-001", "gpu-002", "gpu-003")
ROSTER = Roster("0", {node: tuple(map(str, range(8))) for node in NODES}, {node: {"rack": "r1"} for node in NODES[:2]})
NOW = START + 900
OF_GPUS = (*sorted(SLOWDOWNS), "power_limit", "clock_low", "power_cap", "clocks_setting", "pcie_width", "celsius")
OF_NODES = ("pressure", "least_wait", "rank_silent", "node_silent", "symptom")
OF_JOB = ("data", "gc", "checkpoint", "config", "restart", "tagged")
EVENTS = ("link_flap", "xid", "xid_fatal", "oom_kill", "sxid")
INCIDENTS = 4000
MEGA = st.floats(0.0, 2000.0)


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    kind = draw(st.sampled_from((*OF_GPUS, *OF_NODES, *OF_JOB, *EVENTS)))
    labels = {} if kind in OF_JOB else {"node": draw(st.sampled_from(NODES))}
    if kind in OF_GPUS or kind.startswith("xid"):
        labels["gpu"] = str(draw(st.integers(0, 7)))
    if kind == "link_flap":
        labels |= {"device": "mlx5_1", "port": "1"}
    began = draw(st.none() | st.floats(START - 1800, NOW))
    ended = None if began is None else draw(st.none() | st.floats(began, NOW))
    moments: tuple[tuple[float, float], ...] = ()
    if kind in EVENTS:
        times = sorted(draw(st.sets(st.floats(START - 1000, NOW), min_size=1, max_size=5)))
        moments, began, ended = tuple((at, 1.0) for at in times), times[0], times[-1]
    share = kind in ("power_cap", "clocks_setting", "pressure", "least_wait", *OF_JOB)
    numbers = st.floats(0.0, 1.0).map(lambda number: round(number, 3)) if share else MEGA
    return Fact(
        kind,
        labels,
        detail="rank 7" if kind in ("least_wait", "rank_silent") else "memory" if kind == "pressure" else "79",
        began=began,
        precision=draw(st.sampled_from((0.0, 5.0, 60.0))),
        chronic=draw(st.booleans()),
        ended=ended,
        strength=draw(st.floats(0.0, 1.0)),
        value=draw(numbers),
        peers=draw(st.none() | numbers),
        before=draw(st.none() | numbers),
        moments=moments,
        first_at=NOW,
        seen_at=NOW,
    )


CASES = st.builds(
    lambda drop, back: Case(NOW, (START,) if drop else (), START + back if drop and back else None, ROSTER),
    st.booleans(),
    st.sampled_from((0, 300)),
)


def lasts_or_ends(one: Candidate) -> list[float | None]:
    return [fact.moments[-1][0] if fact.kind == "link_flap" else fact.ended for fact in one.facts]


def contradictions(one: Candidate, case: Case, sentences: tuple[str, ...]) -> list[str]:
    """Return the sentences that the candidate's facts contradict."""
    began = [fact.began for fact in one.facts if fact.began is not None and not fact.chronic]
    lags = [at - min(case.drops, key=lambda drop: abs(at - drop)) for at in began] if case.drops else []
    ends = lasts_or_ends(one)
    over = all(end is not None for end in ends)
    last = max((end for end in ends if end is not None), default=0.0)
    true = {
        r"began .* after the drop": bool(lags) and min(lags) > 0,
        r"began .* before the drop": bool(lags) and min(lags) < 0,
        r"it was already so long before": any(fact.chronic for fact in one.facts),
        r"(ended|not seen again since) .* before the drop": over and bool(case.drops) and last < case.drops[0],
        r"ended at": over and last < case.until,
        r" s in all$": max(fact.value or 0.0 for fact in one.facts) < 2.0,
        r"SM clock down to (\d+) MHz against": any(
            fact.value is not None and fact.value < max(fact.before or 0.0, fact.peers or 0.0)
            for fact in one.facts
            if fact.kind == "clock_low"
        ),
        r" instead of ": any(fact.value is not None and fact.value < (fact.before or 0.0) for fact in one.facts),
        r"not seen lower": not any(fact.kind == "clock_low" for fact in (*one.facts, *one.support)),
    }
    return [
        sentence
        for sentence in sentences
        if any(re.search(pattern, sentence) and not holds for pattern, holds in true.items())
        or any(float(share) > 100 for share in re.findall(r"(\d+) % of the time", sentence))
    ]


@settings(max_examples=250, deadline=None)
@given(st.lists(facts(), max_size=25, unique_by=lambda fact: fact.key), CASES)
def test_no_sentence_contradicts_its_facts(known: list[Fact], case: Case) -> None:
    for one in (ranked := candidates(known, case)):
        (*convincing,), (*seen,) = causes([one], case)
        told = [*convincing, *seen]
        sentences = tuple(sentence for cause in told for sentence in (*cause.evidence, *cause.against))
        assert contradictions(one, case, sentences) == []
        assert all(case.kinds[fact.kind].family != "context" for fact in one.facts)
    convincing, seen = causes(ranked, case)
    assert [cause for cause in convincing if cause.confidence == "low"] == []
    assert [cause for cause in seen if cause.confidence != "low"] == []


def drawn(random: Random) -> Fact:
    """Draw a fact as the providers make them, from far more incidents than a search tries."""
    kind = random.choice((*OF_GPUS, *OF_NODES, *OF_JOB, *EVENTS, "alert", "link_down", "clocks_setting"))
    labels = {} if kind in OF_JOB else {"node": random.choice(NODES)}
    if kind in OF_GPUS or kind in ("alert", "xid", "xid_fatal"):
        labels["gpu"] = str(random.randrange(8))
    if kind in ("link_flap", "link_down"):
        labels |= {"device": f"mlx5_{random.randrange(4)}", "port": "1"}
    began = None if random.random() < 0.2 else NOW - random.expovariate(1 / 600.0)
    ended = None if began is None or random.random() < 0.5 else random.uniform(began, NOW)
    moments: tuple[tuple[float, float], ...] = ()
    if kind in EVENTS:
        times = sorted(NOW - random.expovariate(1 / 400.0) for _each in range(random.randint(1, 6)))
        moments, began, ended = tuple((at, 1.0) for at in times), times[0], times[-1]
    share = kind in ("power_cap", "clocks_setting", "pressure", "least_wait", *OF_JOB)
    scale = 1.0 if share else random.choice((16.0, 90.0, 700.0, 1980.0))
    lasted = ((NOW if ended is None else ended) - began) if began is not None else 0.0
    value = random.uniform(0.0, lasted) if kind in SLOWDOWNS else scale * random.random()
    return Fact(
        kind,
        labels,
        {"alert": "GpuThrottledThermal", "pressure": "memory", "tagged": "eval"}.get(kind, "rank 7"),
        began=began,
        precision=random.choice((0.0, 5.0, 15.0)),
        chronic=random.random() < 0.2,
        ended=ended,
        strength=random.random(),
        value=None if kind == "alert" else value,
        peers=random.choice((None, scale * random.random())),
        before=random.choice((None, scale * random.random())),
        moments=moments,
        read_at=NOW - random.uniform(0.0, 5.0),
        first_at=NOW,
        seen_at=NOW,
    )


def falsehoods(sentence: str, about: Sequence[Fact]) -> Iterator[str]:
    """Yield what a sentence claims and no fact of the incident bears out."""
    if any(float(share) > 100 for share in re.findall(r"([\d.]+) %", sentence)):
        yield "more than all"
    if any(int(some) > int(of) for some, of in re.findall(r"(\d+) of (?:its|the run's) (\d+)", sentence)):
        yield "more than there are"
    if (found := re.search(r"waits? least: ([\d.]+) % of the step, ([\d.]+) %", sentence)) and float(found[1]) > float(
        found[2]
    ):
        yield "waits more than the median"
    if " firing since" in sentence and all(fact.ended is not None for fact in about if fact.kind == "alert"):
        yield "no alert fires"
    if "its link is down" in sentence and all(fact.ended is not None for fact in about if fact.kind == "link_down"):
        yield "no link is down"
    if found := re.search(r"went down (\d+) times", sentence):
        counts = [fact.count for fact in about if fact.kind == "link_flap"]
        if int(found[1]) not in counts:
            yield "another number of losses"
    if (found := re.search(r"from (\S+) UTC to (\S+) UTC", sentence)) and found[1] > found[2]:
        yield "ended before it began"


@pytest.mark.parametrize("part", range(4))
def test_thousands_of_incidents_say_nothing_that_their_facts_contradict(part: int) -> None:
    random = Random(part)  # noqa: S311 - no secret
    for number in range(INCIDENTS // 4):
        known = tuple({fact.key: fact for fact in (drawn(random) for _each in range(random.randint(1, 14)))}.values())
        drops = () if number % 5 == 0 else (NOW - random.choice((40.0, 200.0, 600.0)),)
        found = Diagnosis(NOW, facts=known, drops=drops, onset=next(iter(drops), None), roster=ROSTER)
        told = concluded(training_incident(), found)
        for cause in (*told.causes, *told.seen):
            for sentence in (*cause.evidence, *cause.against):
                assert list(falsehoods(sentence, known)) == [], (part, number, sentence)


@settings(max_examples=60, deadline=None)
@given(st.lists(facts(), max_size=25, unique_by=lambda fact: fact.key))
def test_without_new_facts_the_conclusion_stays_and_nothing_weak_is_blamed(known: list[Fact]) -> None:
    # That a trouble has been over for so long while the run is slow is news, which may end a conclusion.
    ends = [at for fact in known for at in (fact.ended, *(moment for moment, _count in fact.moments)) if at is not None]
    assume(not any(STOPPED_SECONDS - 10 <= NOW - at <= STOPPED_SECONDS for at in ends))
    found = Diagnosis(NOW, facts=tuple(known), drops=(START,), roster=ROSTER, onset=START)
    first = concluded(training_incident(), found)
    again = concluded(training_incident(diagnosis=first), Diagnosis(**{**vars(found), "at": NOW + 10}))
    assert (again.causes[0].part, again.causes[0].cause) == (first.causes[0].part, first.causes[0].cause)
    assert again.revision == ""
    blamed = {cause.part for cause in first.causes}
    assert set(culprits(training_incident(diagnosis=first))) <= blamed
