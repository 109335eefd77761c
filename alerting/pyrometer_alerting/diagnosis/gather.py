"""Gather the facts on a run: one look with all queries, merged with what the incident knows already.

Import this late, in the diagnosis worker: it needs pandas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyrometer_alerting.diagnosis.batches import run_of
from pyrometer_alerting.diagnosis.catalog import Catalog, load
from pyrometer_alerting.diagnosis.death import died_by, without_later_facts
from pyrometer_alerting.diagnosis.evidence.alerts import cause_alerts, unrelated
from pyrometer_alerting.diagnosis.evidence.links import LOSSES
from pyrometer_alerting.diagnosis.examination import Examination, examine
from pyrometer_alerting.diagnosis.look import Kind, Look, Query, Questions
from pyrometer_alerting.diagnosis.onset import drops_of, has_run_since, mfu_of, next_onset, onset_without_a_fall, stalls
from pyrometer_alerting.diagnosis.roster import kept_roster, ranks_of, silent_nodes
from pyrometer_alerting.diagnosis.signature import Drop
from pyrometer_alerting.incidents.topology import ports_at, scope_of, shared_places
from pyrometer_alerting.model.fact import MOST_MOMENTS, Fact, Roster
from pyrometer_alerting.model.incident import Diagnosis, Incident, part_of
from pyrometer_alerting.model.text import clock_utc
from pyrometer_kit.prometheus import Prometheus, PrometheusError

# A state that was not seen for this long has ended: one look below a threshold is no end, and a node counts as silent
# before what was last seen on it counts as over.
GONE_SECONDS = 100.0
MOST_FACTS = 400


@dataclass(frozen=True)
class Evidence:
    """The result of a look: facts, roster, drops, the examination of the curve, and what is missing."""

    facts: tuple[Fact, ...] = ()
    roster: Roster = field(default_factory=Roster)
    drops: tuple[float, ...] = ()
    recovered: float | None = None
    looked: Examination | None = None
    missing: tuple[str, ...] = ()
    answered: Mapping[str, float] = field(default_factory=dict)
    strangers: tuple[str, ...] = ()
    complete: bool = True  # all queries were answered


def gather(
    prometheus: Prometheus,
    incident: Incident,
    others: Sequence[Incident],
    now: float,
    *,
    quick: bool = False,
    drop: Drop | None = None,
    catalog: Catalog | None = None,
) -> Evidence:
    """Look once; gaps are named in `missing`, and after the second query without an answer nothing more is asked.

    Facts that Prometheus was not asked for, or did not answer, stay as they were.
    """
    known, catalog = incident.diagnosis or Diagnosis(now), catalog or load()
    drops = known.drops or (() if known.onset is None else (known.onset,))
    evidence = Evidence(known.facts, known.roster or Roster(), drops, known.recovered, answered=known.answered)
    looks: list[Look] = []
    questions = Questions(prometheus, incident, now, known.onset, evidence.roster, others, known.facts, known.answered)
    try:
        mfu = mfu_of(prometheus, incident, now, known.onset)
        if drops and known.onset is None:  # another episode of the incident
            again = (next_onset(mfu, known.recovered, incident.started_at),) if has_run_since(mfu, drops[-1]) else ()
            drops, recovered = (*drops, *again), None
        else:
            before, (drops, recovered) = drops, drops_of(mfu, drops, known.recovered)
            is_first = not drops or (not before and stalls(incident))
            onset = onset_without_a_fall(questions) if is_first else None
            drops = drops if onset is None else (onset,)
            recovered = None if stalls(incident) else recovered
        evidence = replace(evidence, drops=drops, recovered=recovered)
        questions = _with_roster(replace(questions, onset=drops[-1] if drops else None))
        evidence = replace(evidence, roster=questions.roster)
        if questions.roster.gpus:
            evidence = _ask(questions, _queries(catalog, quick=quick), looks, evidence)
            strangers = unrelated(questions.incident, questions.roster, questions.ports)
            evidence = replace(evidence, strangers=tuple(strangers))
        if not quick:
            evidence = replace(evidence, looked=_looked(questions, drop))
    except PrometheusError as error:
        evidence = replace(evidence, missing=(str(error),), complete=False)
    quiet = set(evidence.roster.silent) | {
        fact.labels["node"]
        for fact in known.facts
        if fact.labels.get("node", "") not in evidence.roster.gpus and "node" in fact.labels
    }
    gaps = (*evidence.missing, *_silence(evidence.roster), *(note for look in looks for note in look.missing))
    if not evidence.roster.gpus and evidence.complete:
        gaps = (*gaps, "no data on which nodes the run uses")
    newest = evidence.drops[-1] if len(evidence.drops) > 1 else None
    return replace(evidence, facts=merged(known.facts, looks, quiet, catalog, now, again=newest), missing=gaps)


def _with_roster(questions: Questions) -> Questions:
    ranks, now = ranks_of(questions)
    roster = kept_roster(questions.roster if questions.roster.gpus else None, now)
    questions = replace(questions, roster=roster, ranks=ranks)
    if not roster.gpus:
        return questions
    silent = silent_nodes(questions)
    possible = cause_alerts(questions.others, questions.incident.cluster)
    cluster = questions.incident.cluster
    lost = [fact.labels for fact in questions.found if fact.kind in LOSSES]
    scopes = {scope_of(alert.labels) for alert in possible}
    scopes |= shared_places(questions.prometheus, cluster, lost, questions.now)
    ports = ports_at(questions.prometheus, cluster, roster.nodes, scopes, questions.now)
    wired = {part_of(port.labels): {"switch": port.switch, "rail": port.rail} for port in ports}
    roster = replace(roster, silent=silent, ports={**roster.ports, **wired})
    return replace(questions, roster=roster, ports=ports)


def _queries(catalog: Catalog, *, quick: bool) -> list[Query]:
    """Return the queries in their order: those of the first look, for which the message waits, then all others."""
    ordered = sorted(catalog.queries.values(), key=lambda query: query.first_look or math.inf)
    return [query for query in ordered if query.first_look or not quick]


def _ask(questions: Questions, queries: Iterable[Query], looks: list[Look], evidence: Evidence) -> Evidence:
    """Ask one after the other, first what was answered longest ago; a second failure ends it.

    Where each look ends with failed queries somewhere, the next ones continue there. A Prometheus that is away is asked
    only twice.
    """
    answered, failure = dict(questions.answered), ""
    for query in sorted(queries, key=lambda query: answered.get(query.name, 0.0)):
        try:
            look = without_later_facts(query.find(questions), died_by(questions.incident))
        except PrometheusError as error:
            if failure:
                break
            failure = str(error)
            continue
        looks.append(look)
        answered[query.name] = questions.now
        questions = replace(questions, found=(*questions.found, *look.facts))
    missing = (failure,) if failure else evidence.missing
    return replace(evidence, answered=answered, missing=missing, complete=not failure)


def _looked(questions: Questions, drop: Drop | None) -> Examination | None:
    incident = questions.incident
    run = run_of(questions.prometheus, incident.cluster, incident.run, questions.now, incident.job_id)
    dated = drop.seen_at(questions.onset) if drop is not None else None
    return examine(questions.prometheus, run, questions.now, drop=dated)


def _silence(roster: Roster) -> list[str]:
    """Return `40 of the run's 48 GPUs report: no data from gpu-300 since 03:12:05 UTC`."""
    if not roster.silent:
        return []
    notes = [
        f"no data from {node} since {clock_utc(at)}" if at else f"no data from {node}"
        for node, at in sorted(roster.silent.items())[:3]
    ]
    more = [f"no data from {len(roster.silent) - 3} more nodes"] if len(roster.silent) > 3 else []
    return [f"{roster.reporting} of the run's {roster.size} GPUs report: {', '.join([*notes, *more])}"]


def merged(
    known: Iterable[Fact],
    looks: Sequence[Look],
    silent: Iterable[str],
    catalog: Catalog,
    now: float,
    *,
    again: float | None = None,
) -> tuple[Fact, ...]:
    """Merge a look into what is known.

    A fact ends only when a look that was answered shows that it ended, and not on a node that does not report. One
    that was last seen before the run fell ``again`` has ended where a look after that does not show it.
    """
    facts = {fact.key: fact for fact in known}
    seen = {fact.key: fact for look in looks for fact in look.facts}
    answered = frozenset[str]().union(*(look.kinds for look in looks)) if looks else frozenset[str]()
    quiet = set(silent)
    for key, fact in facts.items():
        long_ago = now - fact.seen_at > GONE_SECONDS or (again is not None and fact.seen_at < again)
        gone = fact.ended is None and long_ago and fact.kind in answered
        if key not in seen and gone and fact.labels.get("node") not in quiet:
            facts[key] = replace(fact, ended=fact.seen_at)
    for key, fact in seen.items():
        kind, fresh = catalog.kinds[fact.kind], replace(fact, first_at=now, seen_at=now)
        facts[key] = _continued(facts[key], fresh, kind) if key in facts else fresh
    kept = [fact for fact in facts.values() if fact.ended is None or now - fact.ended <= fact.expires]
    return tuple(sorted(kept, key=lambda fact: (fact.first_at, -fact.strength))[:MOST_FACTS])


def _continued(old: Fact, new: Fact, kind: Kind) -> Fact:
    """Return the fact with its first onset, unless it paused for long: then it began again."""
    last = old.seen_at if old.ended is None else old.ended  # nobody looked between two episodes of an incident
    began_again = new.began is not None and new.began - last > kind.pause
    moments = tuple(sorted({**dict(old.moments), **dict(new.moments)}.items()))[-MOST_MOMENTS:]
    if began_again:
        return replace(new, moments=moments, before=old.before)
    earlier = old if old.began is None or new.began is None or old.began <= new.began else new
    return replace(
        new,
        began=earlier.began,
        precision=earlier.precision,
        chronic=old.chronic,
        strength=max(old.strength, new.strength),
        value=_measured(old, new, kind),
        base=old.base if old.base is not None else new.base,
        before=old.before if old.before is not None else new.before,
        moments=moments,
        first_at=old.first_at,
    )


def _measured(old: Fact, new: Fact, kind: Kind) -> float | None:
    """Return what was measured: seconds since the onset, lowest clock, highest temperature, else the newest."""
    if old.value is None or new.value is None:
        return old.value if new.value is None else new.value
    if old.base is not None and new.base is not None:
        return max(old.value, new.value + new.base - old.base)  # a counter that was reset says less
    return new.value if kind.extreme is None else kind.extreme(old.value, new.value)
