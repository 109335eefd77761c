"""Account for a diagnosis: every fact, with its times and its query, and what each weight added to each candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyrometer_alerting.diagnosis import wording
from pyrometer_alerting.diagnosis.candidates import Candidate
from pyrometer_alerting.diagnosis.conclusion import case_of
from pyrometer_alerting.diagnosis.extent import Group
from pyrometer_alerting.diagnosis.look import Kind
from pyrometer_alerting.diagnosis.ranking import candidates
from pyrometer_alerting.diagnosis.weights import Weights, probability
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Diagnosis, Incident, part_of
from pyrometer_alerting.model.text import clock_utc, utc


def lines(incident: Incident, weights: Weights | None = None) -> Iterator[str]:
    """Yield the account of an incident's newest diagnosis, one line of plain text after the other."""
    diagnosis = incident.diagnosis
    yield f"incident {incident.id}: {incident.alertname}" + (f" of run {incident.run}" if incident.run else "")
    if diagnosis is None:
        yield "no diagnosis: the alert names its own cause" if not incident.wants_diagnosis else "not diagnosed yet"
        return
    yield from _conclusion(diagnosis)
    weights = weights or Weights()
    for candidate in candidates(diagnosis.facts, case_of(incident, diagnosis, weights)):
        yield ""
        yield from _candidate(candidate, weights)
    yield from _facts(diagnosis, weights.catalog.kinds)


def _conclusion(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"diagnosed at {utc(diagnosis.at)}"
    yield "drops at " + (
        ", ".join(map(clock_utc, diagnosis.drops)) or "no known time: the times of the facts are not weighed"
    )
    if diagnosis.recovered is not None:
        yield f"recovered at {clock_utc(diagnosis.recovered)}"
    for cause in (*diagnosis.causes, *diagnosis.seen):
        sure = f" ({cause.confidence}, {cause.score:.0f} %)" if cause.confidence else ""
        yield f"  {cause.part}{f': {cause.cause}' if cause.cause else ''}{sure}"
    if diagnosis.revision:
        yield f"revised: {diagnosis.revision}"
    for gap in diagnosis.missing:
        yield f"missing: {gap}"
    if not diagnosis.facts:
        yield "no facts are stored with it"


def _candidate(one: Candidate, weights: Weights) -> Iterator[str]:
    yield f"candidate {one.part}: {one.name}, {100 * probability(one.logit):.0f} %"
    rest = one.logit - sum(weights.features[name] * value for name, value in one.features.items())
    yield f"  {rest:+6.2f}  prior of {one.facts[0].detail if one.kind == 'alert' else one.kind}"
    for name, value in one.features.items():
        added = weights.features[name] * value
        if added:
            yield f"  {added:+6.2f}  {name}" + (f" = {value:.2f}" if value != 1.0 else "")
    yield f"  {one.logit:+6.2f}  in all"
    for doubt in one.against:
        yield f"  against: {doubt}"


def _facts(diagnosis: Diagnosis, kinds: Mapping[str, Kind]) -> Iterator[str]:
    for fact in diagnosis.facts:
        yield ""
        part = part_of(fact.labels) or NO_SINGLE_PART
        yield f"fact {part}: {kinds[fact.kind].name or fact.kind} {fact.detail}".rstrip()
        said = wording.said(Group.single(fact), diagnosis.roster or Roster(), kinds)
        yield f"  {said or 'means nothing on its own'}"
        yield f"  {_times(fact)}, strength {fact.strength:.2f}"
        yield f"  query: {fact.source}"


def _times(fact: Fact) -> str:
    began = "with an unknown start" if fact.began is None else f"began at {clock_utc(fact.began)}"
    if fact.chronic:
        began = "was already so at the start of the examined period"
    elif fact.began is not None and fact.precision > 0:
        began += f" or up to {fact.precision:.0f} s earlier"
    ended = "lasts" if fact.ended is None else f"ended at {clock_utc(fact.ended)}"
    return f"{began}, {ended}, first found at {clock_utc(fact.first_at)}, last at {clock_utc(fact.seen_at)}"
