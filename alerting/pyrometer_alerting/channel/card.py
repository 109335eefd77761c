"""The card: an incident in at most sixty words: what happened, who did it, how sure that is, and what to do now.

Everything else is evidence, for the first reply of the thread. A figure here is that of now, not of the alert.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyrometer_alerting.channel.first_steps import first_step, scheduler_of
from pyrometer_alerting.model import text
from pyrometer_alerting.model.alert_names import DEATH, FELL, LOW, NAMED_CAUSES
from pyrometer_alerting.model.culprits import culprits
from pyrometer_alerting.model.harm import NAMELESS, SLOWED_BY, urgency
from pyrometer_alerting.model.incident import LEAST_GPU_HOURS, SLOWER, Alert, Cause, Incident, part_of

MOST_WORDS = 60
MOST_HEADER_WORDS, MOST_STEP_WORDS = 22, 26
HEADER = 150  # Slack's limit of a header
NOT_PROVEN = "not proven"
SURE: Mapping[str, str] = {"high": "certain", "medium": "likely", "low": NOT_PROVEN}
# Evidence that would prove the best lead, by its kind of trouble.
PROOFS: Mapping[str, str] = {
    "throttle": "a clock below the other GPUs'",
    "clock": "whatever holds its clock",
    "link": "another loss while the run is slow",
    "rank": "a fault of its GPU, host or port",
}
AWAITED = "rank"  # the family of causes that say for whom the others wait
OTHER_PROOF = "ranks there that the others wait for"


@dataclass(frozen=True)
class Card:
    """The header as plain text; the sentences and the step to take now in mrkdwn; what may be left out comes last."""

    header: str
    body: str
    now: str
    state: tuple[str, ...] = ()  # silenced, acknowledged, how often it fired, the cluster

    @property
    def lines(self) -> list[str]:
        """All of it in mrkdwn."""
        now = f"*Now:* {self.now}" if self.now else ""
        return [line for line in (text.escape(self.header), self.body, now, ", ".join(self.state)) if line]


def words(mrkdwn: str) -> int:
    """Count the words that a reader sees: a command counts as one, a sign without a letter as none."""
    seen = re.sub(r"`[^`]*`", " command ", mrkdwn.replace("({ago})|", "|14 minutes ago "))
    seen = re.sub(r"<[^|<>]*\|([^<>]*)>", r"\1", seen)
    return sum(any(char.isalnum() or char == "%" for char in word) for word in seen.split())


def card_of(incident: Incident, scheduler: str) -> Card:
    """Return the card; `scheduler` names whose command takes a node out of service."""
    header, state = headline(incident), _state_notes(incident)
    now = _cut(_now(incident, scheduler), MOST_STEP_WORDS)
    room = MOST_WORDS - words(header) - words(now) - words(" ".join(state)) - (1 if now else 0)
    kept: list[str] = []
    sentences = _sentences(incident)
    if words(" ".join(sentences)) > room:  # since when it lasts says how long
        sentences = [sentence.replace(" ({ago})", "") for sentence in sentences]
    for sentence in sentences:
        if words(" ".join([*kept, sentence])) <= room:
            kept.append(sentence)
        elif not kept:
            kept.append(_cut(sentence, room))
    return Card(header, " ".join(kept), now, state)


def headline(incident: Incident) -> str:
    """Return the incident in one line, with culprit and cause: clean but not escaped, at most 150 units."""
    state, blame = _happened(incident), _blamed(incident)
    tail = f": {text.plain(blame, 90)}" if blame else ""
    over = "" if incident.firing else "Resolved: "
    # The culprit must survive the cut: what happened is shortened.
    room = HEADER - text.units(tail) - text.units(f"{sign(incident)} {over}")
    most = MOST_HEADER_WORDS - words(tail)
    return f"{sign(incident)} {over}{_cut(text.plain(state, room), max(most, 6))}{tail}"


def sign(incident: Incident) -> str:
    """Return the state as one coloured character, readable in a list of channels and in a terminal."""
    if not incident.firing:
        return "\u2705"
    return {"critical": "\U0001f534", "warning": "\U0001f7e0"}.get(urgency(incident), "\U0001f535")


def is_domain(incident: Incident) -> bool:
    """Return whether it has several parts with a common domain and no run."""
    return bool(incident.domain) and not incident.run


def lost(incident: Incident) -> str:
    """Return `12 GPU-hours lost`; empty while the cost is negligible."""
    cost = incident.diagnosis.cost if incident.diagnosis is not None else None
    if cost is None or cost.gpu_hours < LEAST_GPU_HOURS:
        return ""
    return f"{text.amount(cost.gpu_hours)} GPU-hours lost"


def lasted(incident: Incident) -> float:
    """Return the seconds from its first alert to its end."""
    return (incident.resolved_at or incident.started_at) - incident.started_at


def times(incident: Incident) -> str:
    """Return `3 times in 10 min`."""
    first = incident.episodes[0][0] if incident.episodes else incident.started_at
    return f"{len(incident.episodes) + 1} times in {text.duration(incident.started_at - first)}"


def measured(incident: Incident) -> str:
    """Return the measurement: for many parts a count by alert and the latest, for a resolved incident the last."""
    latest = text.mrkdwn(incident.newest().annotations.get("description", ""), 600)
    if is_domain(incident):
        counts = Counter(alert.name for alert in incident.members if alert.firing == incident.firing)
        tally = ", ".join(f"{count} {name}" for name, count in counts.most_common(5))
        latest = text.mrkdwn(tally, 250) + (f"; the latest: {latest}" if latest else "")
    return f"While it fired: {latest}" if latest and incident.wants_diagnosis and not incident.firing else latest


def speaking(incident: Incident) -> Alert:
    """Return the alert that the card speaks of: a death that fires, else the one that stands for the incident."""
    died = [alert for alert in incident.members if alert.firing and alert.name == DEATH]
    return max(died, key=lambda alert: alert.starts_at, default=incident.newest())


def summary_of(incident: Incident) -> str:
    """Return the alert's own summary; for many parts what they have in common."""
    if is_domain(incident):
        return _domain_summary(incident)
    where = f" (run {text.clean(incident.run_title)})" if incident.run else ""
    fallback = f"{text.clean(incident.alertname)}{where}" or "unnamed alert"
    return _titled(incident, text.clean(speaking(incident).annotations.get("summary", ""))) or fallback


def _titled(incident: Incident, summary: str) -> str:
    """Return an alert's summary with the run's user and job beside its name."""
    name, title = text.clean(incident.run), text.clean(incident.run_title)
    for before in ("Run ", "run "):
        at = summary.find(f"{before}{name}") if name != title else -1
        end = at + len(before) + len(name)
        if at >= 0 and summary[end : end + 1] in ("", " ", ":", ","):
            return f"{summary[:at]}{before}{title}{summary[end:]}"
    return summary


def slower_now(incident: Incident) -> float | None:
    """Return by what share the run is slower: now, or of a resolved incident at its worst; None where unknown."""
    diagnosis = incident.diagnosis
    if diagnosis is not None and diagnosis.slowest is not None and diagnosis.slowest >= SLOWER:
        share = diagnosis.measured_slower if incident.firing else diagnosis.slowest
        if share is not None:
            return share
    told = re.search(r"fell by (\d+) %", summary_of(incident)) if speaking(incident).name == FELL else None
    return int(told[1]) / 100 if told else None


def _happened(incident: Incident) -> str:
    """Return what happened: `llama-70b 27 % slower`, else the alert's own words up to their colon."""
    summary = summary_of(incident)
    if not incident.wants_diagnosis:
        return summary
    newest = speaking(incident)
    share = None if newest.name == DEATH or _stands(incident) else slower_now(incident)
    run = text.clean(incident.run_title)
    if share is not None and share >= SLOWER:
        was = "" if incident.firing else "was "
        return f"{run} {was}{100 * share:.0f} % slower" + (" than expected" if newest.name == LOW else "")
    if newest.name in (FELL, LOW) and _stands(incident):
        return f"{run} makes no steps"
    if newest.name == FELL and share is not None:
        return f"{run} is back to its speed" if incident.firing else f"{run} was slower"
    return summary.partition(": ")[0]


def _stands(incident: Incident) -> bool:
    return incident.diagnosis is not None and incident.diagnosis.lead[2]


def _blamed(incident: Incident) -> str:
    """Return culprit and cause with how sure that is: `gpu-042 GPU 3, hardware thermal throttling (certain)`."""
    first = _first(incident)
    if first is not None:
        sure = SURE.get(first.confidence)
        part = f"{text.clean(first.part)}, " if first.labels else ""
        if first.family == AWAITED and first.labels:  # who is waited for is as sure as that, and why is not known
            return f"{text.clean(first.part)}{f' ({sure})' if sure else ''}, cause not proven"
        return f"{part}{text.clean(first.cause)}" + (f" ({sure})" if sure else "")
    summary = summary_of(incident)
    if incident.wants_diagnosis:
        named = summary.partition(": ")[2] if _happened(incident) in summary else ""
        if named or not incident.firing:
            return named
        return "looking for the cause" if incident.diagnosis is None else "cause not proven"
    blamed = culprits(incident)
    # A domain's summary counts its parts, and most summaries name theirs.
    part = blamed[0] if blamed and not _names(summary, text.clean(blamed[0])) else ""
    return ", ".join(filter(None, (part, _use(incident))))


def _use(incident: Incident) -> str:
    """Return who uses the part: `run llama-70b is on it`; empty where it is not known or over."""
    if not incident.use or not incident.firing:
        return ""
    if incident.use in NAMELESS:
        return incident.use
    user, other, culprit = incident.use.partition(SLOWED_BY)
    return f"{text.clean(user)} is on it{other}{text.clean(culprit)}"


def _first(incident: Incident) -> Cause | None:
    diagnosis = incident.diagnosis
    return diagnosis.causes[0] if diagnosis is not None and diagnosis.names_cause else None


def _names(summary: str, part: str) -> bool:
    """Return whether the summary names the part: `rank 17 on gpu-042` is gpu-042 rank 17."""
    return part in summary or set(part.split()) <= set(re.split(r"[\s:,;]+", summary))


def _domain_summary(incident: Incident) -> str:
    """Summarize what a switch, a rack or a storm affects: `NicLinkFlapping at 300 parts of 38 nodes`."""
    names = incident.alertnames()
    parts = {part_of(alert.labels) for alert in incident.members}
    nodes = {alert.labels["node"] for alert in incident.members if "node" in alert.labels}
    more = f" (and {len(names) - 1} other alerts)" if len(names) > 1 else ""
    spread = f" of {len(nodes)} nodes" if len(nodes) > 1 else ""
    return f"{text.clean(names[0])}{more} at {len(parts)} parts{spread}"


def _sentences(incident: Incident) -> list[str]:
    """Return the sentences of the body, the most important first."""
    cost = f"{lost(incident)}." if lost(incident) else ""
    if incident.resolved_at is not None:
        end = f"After {text.duration(lasted(incident))}, at {text.slack_time(incident.resolved_at)}."
        brief = f"{_capital(_brief(incident))}." if _brief(incident) else ""
        said = [] if incident.wants_diagnosis else _of_alert(incident)
        return [*said, *(sentence for sentence in (end, cost, brief) if sentence)]
    again = incident.diagnosis.restart if incident.diagnosis is not None else ""
    cost = f"{_capital(text.mrkdwn(again, 200))}. {cost}".rstrip() if again else cost
    since = f"since {text.slack_time(incident.began, '{date_short_pretty} {time_secs} ({ago})')}"
    if not incident.wants_diagnosis:
        return [_capital(since) + ".", *_of_alert(incident)]
    if _first(incident) is not None:
        brief, _, rest = _brief(incident).partition("; ")
        told = _capital(f"{brief} {since}".strip()) + (f"; {rest}." if rest else ".")
        return [told, *filter(None, (cost, _second(incident)))]
    return [_capital(since) + ".", *filter(None, (cost, *_leads(incident)))]


def _brief(incident: Incident) -> str:
    first = _first(incident)
    if first is None:
        return ""
    is_awaited = first.family == AWAITED and bool(first.labels)
    if first.brief.partition("; ")[0] == first.cause and not is_awaited:  # the header says it
        return ""
    said = dict.fromkeys(filter(None, (first.cause if is_awaited else "", first.brief)))
    return text.mrkdwn(", ".join(said), 200)


def _second(incident: Incident) -> str:
    """Return the second cause, where the first one is not certain."""
    causes = incident.diagnosis.causes if incident.diagnosis is not None else ()
    if len(causes) < 2 or causes[0].confidence == "high":
        return ""
    return f"Else {text.mrkdwn(causes[1].part, 100)}, {text.mrkdwn(causes[1].cause, 100)}."


def _leads(incident: Incident) -> list[str]:
    """Return the best lead of an unknown cause and what would prove it, else what was looked at."""
    diagnosis = incident.diagnosis
    if diagnosis is None:
        return _of_alert(incident)
    if diagnosis.seen:
        lead = diagnosis.seen[0]
        proof = f"{PROOFS.get(lead.family, OTHER_PROOF)} would prove it"
        return [f"Best lead: {text.mrkdwn(lead.part, 100)}, {text.mrkdwn(lead.cause, 100)}; {proof}."]
    notes = [f"{_capital(text.mrkdwn(note, 150))}." for note in diagnosis.missing[:1]]
    looked = next((note.partition(":")[0] for cause in diagnosis.causes for note in cause.evidence), "")
    return [*(["Nothing stands out."] if looked else []), *notes]


def _of_alert(incident: Incident) -> list[str]:
    """Return the alert's own sentences, as many as may be shown."""
    return [sentence for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", measured(incident))[:2] if sentence]


def _now(incident: Incident, scheduler: str) -> str:
    """Return the first step for the first cause, else for the alert; empty once it is over."""
    if not incident.firing:
        return ""
    first, newest = _first(incident), speaking(incident)
    labels = (first.labels or {}) if first is not None else newest.labels
    if is_domain(incident):
        labels = {"node": incident.domain} if " " not in incident.domain else {}
    cause = first.cause if first is not None else NAMED_CAUSES.get(newest.name, (0.0, newest.name))[1]
    step = first_step(
        (first.runbook if first is not None else "") or newest.name,
        labels,
        has_run=bool(incident.run),
        scheduler=scheduler_of(scheduler, incident.cluster),
        cause=cause,
        job=incident.job_id,
    )
    return _capital(step)


def _state_notes(incident: Incident) -> tuple[str, ...]:
    fired = f"fired {times(incident)}" if incident.episodes else ""
    acknowledged = f"{text.mrkdwn(incident.acknowledged, 60)} is on it" if incident.acknowledged else ""
    cluster = f"cluster {text.mrkdwn(incident.cluster, 60)}" if text.clean(incident.cluster) else ""
    return tuple(filter(None, (text.mrkdwn(incident.note, 100), acknowledged, fired, _cut(cluster, 3))))


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _cut(sentence: str, most: int) -> str:
    """Return the sentence cut to so many words, never inside a command or a link."""
    if words(sentence) <= most:
        return sentence
    pieces: Sequence[str] = re.findall(r"`[^`]*`\S*|<[^<>]*>\S*|\S+", sentence)
    kept: list[str] = []
    for piece in pieces:
        if words(" ".join([*kept, piece])) > most:
            break
        kept.append(piece)
    return " ".join(kept).rstrip(" ,;:.") + text.ELLIPSIS
