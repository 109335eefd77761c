"""Gather the facts on a run: one look by all providers, merged with what the incident knows already.

To add evidence, write a function that takes `Questions` and returns a `Look`, give its kinds a line in `weights.py` and
a sentence in `wording.py`, and list it in PROVIDERS. Import this late, in the diagnosis worker: it needs pandas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from pyrometer_alerting.diagnosis import (
    alert_facts,
    collective_facts,
    flight_facts,
    gpu_facts,
    host_facts,
    job_facts,
    link_facts,
    rank_facts,
    spin_facts,
)
from pyrometer_alerting.diagnosis.batches import run_of, selected
from pyrometer_alerting.diagnosis.examination import Examination, examine
from pyrometer_alerting.diagnosis.extent import LINK_LOSSES
from pyrometer_alerting.diagnosis.look import LOOK_BACK_SECONDS, Look, Provider, Questions, merged
from pyrometer_alerting.diagnosis.signature import Drop
from pyrometer_alerting.incidents.topology import ports_at, scope_of, shared_places
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Diagnosis, Incident, part_of
from pyrometer_alerting.model.text import clock_utc
from pyrometer_kit.prometheus import Prometheus, PrometheusError, Series

STEP_SECONDS = 5  # the smallest scrape interval in use
RECOVERED = 0.95  # of the good level
ANOTHER_DROP_SECONDS = 60.0  # after a recovery or a further fall: the onset of one drop is found to within about 10 s
RECOVERED_SECONDS = 30.0

# The first look asks only these, since the first message waits for it; they name the culprit of most drops.
QUICK: Mapping[str, Provider] = {
    "slowdowns": gpu_facts.slowdowns,
    "losses": link_facts.losses,
    "power_limits": gpu_facts.power_limits,
    "clocks": gpu_facts.clocks,
    "alerts": alert_facts.alerts,
    "waits": rank_facts.waits,
    "silence": job_facts.silence,
}
PROVIDERS: Mapping[str, Provider] = {
    **QUICK,
    "limits": gpu_facts.limits,
    "xids": host_facts.xids,
    "kernel_events": host_facts.kernel_events,
    "pressures": host_facts.pressures,
    "pcie_widths": host_facts.pcie_widths,
    "rates": link_facts.rates,
    "parts": rank_facts.parts,
    "silent_ranks": rank_facts.silent_ranks,
    "collectives": collective_facts.collectives,
    "dumps": flight_facts.dumps,
    "idle_beside_spinning": spin_facts.idle_beside_spinning,
    "configuration": job_facts.configuration,
    "planned": job_facts.planned,
    "maintenance": host_facts.maintenance,
}


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
) -> Evidence:
    """Look once; gaps are named in `missing`, and after the second provider without an answer nothing more is asked.

    Facts that Prometheus was not asked for, or did not answer, stay as they were.
    """
    known = incident.diagnosis or Diagnosis(now)
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
            is_first = not drops or (not before and job_facts.stalls(incident))
            onset = job_facts.onset_without_a_fall(questions) if is_first else None
            drops = drops if onset is None else (onset,)
            recovered = None if job_facts.stalls(incident) else recovered
        evidence = replace(evidence, drops=drops, recovered=recovered)
        questions = _with_roster(replace(questions, onset=drops[-1] if drops else None))
        evidence = replace(evidence, roster=questions.roster)
        if questions.roster.gpus:
            evidence = _ask(questions, QUICK if quick else PROVIDERS, looks, evidence)
            evidence = replace(evidence, strangers=_strangers(questions))
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
    return replace(evidence, facts=merged(known.facts, looks, quiet, now), missing=gaps)


def _with_roster(questions: Questions) -> Questions:
    attempt, ranks, now = job_facts.ranks_of(questions)
    del attempt
    roster = job_facts.kept_roster(questions.roster if questions.roster.gpus else None, now)
    questions = replace(questions, roster=roster, ranks=ranks)
    if not roster.gpus:
        return questions
    silent = job_facts.silent_nodes(questions)
    possible = alert_facts.cause_alerts(questions.others, questions.incident.cluster)
    cluster = questions.incident.cluster
    lost = [fact.labels for fact in questions.found if fact.kind in LINK_LOSSES]
    scopes = {scope_of(alert.labels) for alert in possible}
    scopes |= shared_places(questions.prometheus, cluster, lost, questions.now)
    ports = ports_at(questions.prometheus, cluster, roster.nodes, scopes, questions.now)
    wired = {part_of(port.labels): {"switch": port.switch, "rail": port.rail} for port in ports}
    roster = replace(roster, silent=silent, ports={**roster.ports, **wired})
    return replace(questions, roster=roster, ports=ports)


def _ask(questions: Questions, providers: Mapping[str, Provider], looks: list[Look], evidence: Evidence) -> Evidence:
    """Ask the providers one after the other, first those that were answered longest ago; a second failure ends it.

    Where each look ends with failed queries somewhere, the next ones continue there. A Prometheus that is away is asked
    only twice.
    """
    answered, failure = dict(questions.answered), ""
    for name in sorted(providers, key=lambda each: answered.get(each, 0.0)):
        provider = providers[name]
        try:
            look = provider(questions)
        except PrometheusError as error:
            if failure:
                break
            failure = str(error)
            continue
        looks.append(look)
        answered[name] = questions.now
        questions = replace(questions, found=(*questions.found, *look.facts))
    missing = (failure,) if failure else evidence.missing
    return replace(evidence, answered=answered, missing=missing, complete=not failure)


def _looked(questions: Questions, drop: Drop | None) -> Examination | None:
    incident = questions.incident
    run = run_of(questions.prometheus, incident.cluster, incident.run, questions.now)
    dated = drop.seen_at(questions.onset) if drop is not None else None
    return examine(questions.prometheus, run, questions.now, drop=dated)


def _strangers(questions: Questions) -> tuple[str, ...]:
    return tuple(alert_facts.unrelated(questions.incident, questions.roster, questions.ports))


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


def mfu_of(prometheus: Prometheus, incident: Incident, now: float, onset: float | None) -> pd.Series[float]:
    """Return the run's MFU by time, from before the trouble on; one batch per 5 s shows where it fell.

    Raises:
        PrometheusError: the query failed.
    """
    began = incident.started_at if onset is None else onset
    start = max(min(began, now) - LOOK_BACK_SECONDS, now - 3 * 3600.0)
    step = max(STEP_SECONDS, round((now - start) / 2000))
    query = f"max(avg_over_time(pyrometer_train_batch_mfu_ratio{selected(incident.cluster, incident.run)}[{step}s]))"
    result = prometheus.range(query, start, now, step)
    return _series(result[0]) if result else pd.Series(dtype=float)


def drops_of(
    mfu: pd.Series[float], known: Sequence[float], recovered: float | None
) -> tuple[tuple[float, ...], float | None]:
    """Return the onsets of the drops and when the run recovered.

    The first onset is found once and kept. Another drop is one after a recovery.
    """
    if not known:
        onset = drop_onset(mfu)
        return ((onset,) if onset is not None else ()), None
    if len(mfu) < 6:
        return tuple(known), recovered
    smooth = mfu.rolling(3, center=True, min_periods=1).median()
    before = smooth[smooth.index < known[0]]
    good = float(before.quantile(0.9)) if len(before) else float(smooth.quantile(0.9))
    since = smooth[smooth.index >= known[-1]]
    well = since[since >= RECOVERED * good]
    present_well = len(since) > 0 and bool(since.iloc[-3:].median() >= RECOVERED * good)
    if present_well:
        low = since[since < RECOVERED * good]
        back = well[well.index > low.index[-1]] if len(low) else well
        lasted = float(back.index[-1] - back.index[0]) if len(back) else 0.0
        return tuple(known), float(back.index[0]) if lasted >= RECOVERED_SECONDS else recovered
    if recovered is None:
        return tuple(known), None
    again = drop_onset(smooth[smooth.index >= recovered])
    if again is not None and again - known[-1] > ANOTHER_DROP_SECONDS:
        return (*known, again), None
    return tuple(known), None


def has_run_since(mfu: pd.Series[float], drop: float) -> bool:
    """Return whether the run has ended batches after a drop: one that stopped then has no other drop."""
    return bool((mfu.index > drop + ANOTHER_DROP_SECONDS).any())


def next_onset(mfu: pd.Series[float], recovered: float | None, fired: float) -> float:
    """Return the onset of the drop of another episode, after the end of the last; without a fall, when it fired."""
    onset = drop_onset(mfu[mfu.index >= recovered] if recovered is not None else mfu)
    return fired if onset is None else onset


def drop_onset(mfu: pd.Series[float]) -> float | None:
    """Return when the MFU last fell from its good level to the present one; None if it is not lower now."""
    if len(mfu) < 6:
        return None
    smooth = mfu.rolling(3, center=True, min_periods=1).median()
    good, present = float(smooth.quantile(0.9)), float(smooth.iloc[-3:].median())
    if present > RECOVERED * good:
        return None
    high = smooth[smooth > (good + present) / 2]
    later = smooth.index[smooth.index > high.index[-1]] if len(high) else smooth.index
    return float(later[0]) if len(later) else None


def _series(series: Series) -> pd.Series[float]:
    points = dict(series.points)
    values: pd.Series[float] = pd.Series(list(points.values()), index=list(points), dtype=float)
    return values.dropna()
