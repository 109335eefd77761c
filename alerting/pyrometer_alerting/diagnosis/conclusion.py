"""Draw the conclusion from the ranked causes, and revise an earlier one only for evidence against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyrometer_alerting.diagnosis.candidates import Candidate, Case
from pyrometer_alerting.diagnosis.catalog import Catalog
from pyrometer_alerting.diagnosis.evidence.alerts import cause_alerts
from pyrometer_alerting.diagnosis.ranking import candidates, causes, to_cause
from pyrometer_alerting.diagnosis.weights import Weights
from pyrometer_alerting.model.fact import Roster
from pyrometer_alerting.model.incident import NO_SINGLE_PART, Cause, Diagnosis, Incident, part_of
from pyrometer_alerting.model.text import counted


def case_of(incident: Incident, found: Diagnosis, weights: Weights) -> Case:
    """Return what the facts are weighed against."""
    stalled = any(alert.name == "TrainStalled" and alert.firing for alert in incident.members)
    stands = stalled or (found.shape is not None and found.shape.kind == "stopped")
    return Case(found.at, found.drops, found.recovered, found.roster or Roster(), found.shape, stands, weights)


def concluded(
    incident: Incident, found: Diagnosis, others: Sequence[Incident] = (), weights: Weights | None = None
) -> Diagnosis:
    """Return the diagnosis with its causes; `others` are the recent incidents in the store."""
    figures = weights or Weights()
    before, case = incident.diagnosis, case_of(incident, found, figures)
    ranked = candidates(found.facts, case)
    convincing, seen = causes(ranked, case)
    first, unknown = _first(before), _unknown(incident, found, others, figures.catalog)
    if before is None or first is None:
        return _told(unknown, found, convincing, seen, concluded_at=found.at if convincing else None)
    if convincing and _key(convincing[0]) == _key(first):
        return replace(
            _told(unknown, found, convincing, seen, concluded_at=before.concluded_at), revision=before.revision
        )
    earlier = next((candidate for candidate in ranked if _is(candidate, first)), None)
    leader = next((candidate for candidate in ranked if convincing and _is(candidate, convincing[0])), None)
    if _stays(before, found, figures, first=first, earlier=earlier, leader=leader):
        # With its present evidence, no surer than before.
        kept = first if earlier is None else to_cause(earlier, case, first.confidence or "medium")
        rest = [cause for cause in convincing if _key(cause) != _key(first)]
        weak = [cause for cause in seen if _key(cause) != _key(first)]
        told = _told(unknown, found, [kept, *rest], weak, concluded_at=before.concluded_at)
        return replace(told, revision=before.revision)
    told = _told(unknown, found, convincing, seen, concluded_at=found.at)
    now = told.causes[0]
    # The same part, better explained, or the same trouble, which was everywhere, at its place.
    refined = now.part == first.part and first.family in ("rank", "")
    refined |= first.part == NO_SINGLE_PART and now.family == first.family
    # The first look at another episode takes nothing back: its card said nothing of this one yet.
    unsaid = refined or (before.onset is None and bool(before.drops))
    return replace(told, revision=before.revision if unsaid else _revision(first, earlier, told.causes[0]))


def _first(before: Diagnosis | None) -> Cause | None:
    """Return the earlier conclusion; `unknown` is none."""
    first = before.causes[0] if before is not None and before.causes else None
    return first if first is not None and first.cause else None


def _key(cause: Cause) -> tuple[str, str]:
    return cause.part, cause.family or cause.cause


def _is(one: Candidate, cause: Cause) -> bool:
    """Return whether the candidate is that cause; one of a stored document from before families has its words only."""
    return one.part == cause.part and (cause.family or cause.cause) in (one.family, one.name)


def _stays(
    before: Diagnosis,
    found: Diagnosis,
    weights: Weights,
    *,
    first: Cause,
    earlier: Candidate | None,
    leader: Candidate | None,
) -> bool:
    """Return whether the earlier conclusion stays the first one.

    It does after the run's recovery, without new evidence, and against a cause that is hardly better. It goes when
    something speaks against it that did not before, or when what is new leads.
    """
    if found.recovered is not None:
        return True
    doubts = set() if earlier is None else {_figureless(sentence) for sentence in earlier.against}
    fresh_doubts = doubts - {_figureless(sentence) for sentence in first.against}
    since = before.concluded_at if before.concluded_at is not None else before.at
    if leader is None:
        return not fresh_doubts
    is_new = any(fact.first_at > since for fact in (*leader.facts, *leader.support))
    if earlier is None:
        return not is_new
    if earlier.part == leader.part and earlier.family == "rank":
        return False  # the same part, better explained
    return not (is_new or fresh_doubts) or leader.logit - earlier.logit < weights.lead


def _figureless(sentence: str) -> str:
    return "".join(char for char in sentence if not char.isdigit())


def _revision(first: Cause, earlier: Candidate | None, now: Cause) -> str:
    """Return why the first cause is another one now, for the thread."""
    doubts = "; ".join(earlier.against[:2]) if earlier is not None else ""
    gone = f"{first.part} ({first.cause}) is no longer named first" + (f": {doubts}" if doubts else "")
    if not now.cause:
        return f"{gone}. No cause convinces now."
    evidence = f": {'; '.join(now.evidence[:2])}" if now.evidence else ""
    return f"{gone}. Now {now.part}, {now.cause}{evidence}."


def _told(
    unknown: Cause,
    found: Diagnosis,
    convincing: Sequence[Cause],
    seen: Sequence[Cause],
    *,
    concluded_at: float | None,
) -> Diagnosis:
    shown = tuple(convincing) or (unknown,)
    return replace(found, causes=shown, seen=tuple(seen[:5]), concluded_at=concluded_at if convincing else None)


def _unknown(incident: Incident, found: Diagnosis, others: Sequence[Incident], catalog: Catalog) -> Cause:
    """Return `unknown` with what was looked at, so that nobody looks at it again."""
    notes = []
    roster = found.roster
    asked = [query for name, query in catalog.queries.items() if found.answered.get(name) == found.at]
    looked = [query.subject for query in asked if query.subject]
    if roster is not None and looked:
        reporting = f"{roster.reporting} of " if roster.silent else ""
        where = f"{reporting}{counted(roster.size, 'GPU')} of {counted(len(roster.nodes), 'node')}"
        notes.append(f"examined on {where}: {', '.join(looked)}")
    if found.shape is not None and found.shape.look_at:
        notes.append(f"for such an MFU curve, check {found.shape.look_at}")
    if roster is None:
        notes += [
            f"{part_of(alert.labels) or NO_SINGLE_PART} {alert.name} fires; it is not known whether the run uses it"
            for alert in cause_alerts(others, incident.cluster)[:3]
        ]
    return Cause("unknown", "", tuple(notes))
