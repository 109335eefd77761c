"""Judge a watched incident against its truth: at four moments, at every look, and by what its sentences say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pyrometer_alerting.channel.card import NOT_PROVEN, SURE, card_of, words
from pyrometer_alerting.channel.first_steps import SLURM
from pyrometer_alerting.model.incident import Cause, Diagnosis, part_of
from pyrometer_simulator.incidents.sentences import untrue
from pyrometer_simulator.incidents.watch import Look, Watched
from pyrometer_simulator.incidents.world import Truth, World

RIGHT, COARSE, WRONG, UNKNOWN, SILENT = "right", "coarse", "wrong", "unknown", "silent"
VERDICTS = (RIGHT, COARSE, WRONG, UNKNOWN, SILENT)
MOMENTS = (60.0, 300.0, 600.0, 900.0)
FIRST_SECONDS = 600.0


@dataclass(frozen=True)
class Score:
    """The verdicts on one incident.

    Attributes:
        moments: the verdict at each of MOMENTS.
        watch: the verdict on the whole: right only if right at each moment and never again not right.
        first_right: seconds from the webhook to the end of the look that was first right.
        changes: how often the first cause changed from one part to another.
        calls: calls to Slack in the first ten minutes.
        confidences: (how sure the card says it is, verdict) of each moment.
        untrue: sentences that the world contradicts.
        answers: (seconds after the webhook, first cause) whenever it changed.
    """

    kind: str
    seed: int
    severity: str
    moments: tuple[str, ...]
    watch: str
    first_right: float | None
    changes: int
    calls: int
    confidences: tuple[tuple[str, str], ...] = ()
    untrue: tuple[str, ...] = ()
    answers: tuple[tuple[float, str], ...] = ()
    truth: str = ""
    herrings: tuple[str, ...] = ()
    seconds: float = 0.0
    webhook: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def verdict(truth: Truth, diagnosis: Diagnosis | None) -> str:
    """Return the verdict on one diagnosis."""
    if diagnosis is None or not diagnosis.causes:
        return UNKNOWN
    first = diagnosis.causes[0]
    said = " ".join((first.part, first.cause, *first.evidence, *diagnosis.missing))
    if first.part == "unknown":
        silent = truth.silent and re.search(truth.silent, said)
        return RIGHT if "unknown" in truth.exact or silent else UNKNOWN
    if first.part in truth.exact:
        return (
            RIGHT if not truth.words or re.search(truth.words, f"{first.cause} {' '.join(first.evidence)}") else COARSE
        )
    return COARSE if first.part in truth.coarse else WRONG


def score(world: World, truth: Truth, watched: Watched, herrings: Sequence[str]) -> Score:
    """Return the score of one watched incident."""
    begin = watched.webhook
    if begin is None:
        calm = RIGHT if truth.benign else SILENT
        return Score(
            world.kind, world.seed, world.severity, (calm,) * len(MOMENTS), calm, None, 0, 0,
            truth=str(truth.exact), herrings=tuple(herrings),
        )  # fmt: skip
    judged = [(look.at - begin, verdict(truth, look.diagnosis), look) for look in watched.looks]
    moments = tuple(at_moment(judged, moment) for moment in MOMENTS)
    first = next(((at + look.seconds) for at, said, look in judged if said == RIGHT), None)
    return Score(
        world.kind,
        world.seed,
        world.severity,
        moments,
        whole_watch(judged, moments),
        first,
        _changes([look for _at, _said, look in judged]),
        _calls(world, watched),
        tuple(_confidences(judged)),
        tuple(untrue(world, truth, watched)),
        tuple(_answers(judged)),
        str(truth.exact),
        tuple(herrings),
        round(watched.seconds, 2),
        round(begin - world.at, 1),
        {
            "looks": len(judged),
            "look_seconds": round(max((each.seconds for *_rest, each in judged), default=0.0), 3),
            "message": _message(world, watched, begin),
            "words": _words(watched),
            "evidence_calls": _calls(world, watched, on_evidence=True),
            "pings": sum(call.pings for call in watched.calls),
            "seen": sum(call.seen for call in watched.calls),
            "harmless_reds": _harmless_reds(world, truth, watched),
            "errors": watched.errors[:3],
        },
    )


def _calls(world: World, watched: Watched, *, on_evidence: bool = False) -> int:
    """Count the calls on the run's message and its thread in its first ten minutes, the post included.

    The evidence, which follows its card and calls nobody, is counted apart.

    A message that was first about a part and then became the run's counts from its first post.
    """
    about = {call.incident for call in watched.calls if world.layout.run in call.text}
    first: dict[str, float] = {}
    for call in watched.calls:
        first.setdefault(call.incident, call.at)
    counts = Counter(
        call.incident
        for call in watched.calls
        if call.incident in about
        and call.on_evidence is on_evidence
        and call.at - first[call.incident] <= FIRST_SECONDS
    )
    return max(counts.values(), default=0)


def _harmless_reds(world: World, truth: Truth, watched: Watched) -> list[str]:
    """Return the headers of red messages about parts of which no run was slower.

    The run's own message, a part that is to blame, and a part on which another job is are not among them.
    """
    guilty = [*truth.exact, *truth.coarse]
    others = {world.layout.names[node] for node in world.layout.strangers}
    harmed = {
        incident.id
        for incident in watched.incidents
        if incident.run == world.layout.run
        or any(part_of(alert.labels) in guilty or alert.labels.get("node") in others for alert in incident.members)
    }
    cards = (call for call in watched.calls if call.text.startswith("\U0001f534") and call.incident not in harmed)
    return list(dict.fromkeys(call.text.partition("\n")[0] for call in cards))


def _message(world: World, watched: Watched, begin: float) -> str:
    """Return the run's card and its evidence as they were after a minute."""
    shown = [call.text for call in watched.calls if call.at <= begin + MOMENTS[0]]
    card = next(
        (text for text in reversed(shown) if world.layout.run in text.partition("\n")[0] and _is_card(text)), ""
    )
    return card and f"{card}\n\n{next((text for text in reversed(shown) if not _is_card(text)), '')}".rstrip()


def _is_card(text: str) -> bool:
    """Return whether a text has the sign of a card's header."""
    return text[:1] in "\U0001f534\U0001f7e0\U0001f535\u2705"


def _words(watched: Watched) -> int:
    """Return the words of the longest card of all looks."""
    incidents = [*(look.incident for look in watched.looks), *watched.incidents]
    return max((words("\n".join(card_of(each, SLURM).lines)) for each in incidents), default=0)


def at_moment(judged: Sequence[tuple[float, str, Look]], moment: float) -> str:
    """Return the verdict on the newest look at so many seconds after the webhook."""
    said = [each for at, each, _look in judged if at <= moment]
    return said[-1] if said else UNKNOWN


def whole_watch(judged: Sequence[tuple[float, str, Look]], moments: Sequence[str]) -> str:
    """Return right if it was right by the first moment and at each look after the first right one."""
    said = [each for _at, each, _look in judged]
    if all(each == RIGHT for each in moments) and set(said[said.index(RIGHT) :]) == {RIGHT}:
        return RIGHT
    later = said[said.index(RIGHT) :] if RIGHT in said else said
    bad = [each for each in (*moments, *later) if each != RIGHT]
    return next((each for each in (WRONG, UNKNOWN, COARSE) if each in bad), UNKNOWN)


def _changes(looks: Sequence[Look]) -> int:
    """Return how often one named part was replaced by another."""
    named = [look.diagnosis.causes[0].part for look in looks if look.diagnosis.causes]
    named = [part for part in named if part != "unknown"]
    return sum(one != other for one, other in pairwise(named))


def _confidences(judged: Sequence[tuple[float, str, Look]]) -> list[tuple[str, str]]:
    stated = []
    for moment in MOMENTS:
        looks = [(said, look) for at, said, look in judged if at <= moment]
        if looks and looks[-1][1].diagnosis.causes:
            said, look = looks[-1]
            stated.append((SURE.get(look.diagnosis.causes[0].confidence, NOT_PROVEN), said))
    return stated


def _answers(judged: Sequence[tuple[float, str, Look]]) -> list[tuple[float, str]]:
    answers: list[tuple[float, str]] = []
    for at, said, look in judged:
        line = f"[{said}] {_line(look.diagnosis.causes[0])}" if look.diagnosis.causes else f"[{said}] nothing"
        if not answers or answers[-1][1] != line:
            answers.append((round(at, 1), line))
    return answers


def _line(cause: Cause) -> str:
    return f"{cause.part}: {cause.cause}" if cause.cause else cause.part
