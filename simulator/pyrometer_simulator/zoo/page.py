"""Write ``docs/zoo.md``: each machine, its sources, its week, and what was planted and found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pyrometer_simulator.zoo.player import Loss, Played

HEAD: Final = """# The zoo

Whole machines, each with its files, its kernel log and its driver's answers, as data in `tests/zoo/machines`. Generated
by playing each through a week of its ordinary life, on a moved clock and under the real checks, and then through its
losses: change a machine, then run `make zoo`, which also runs the real exporter and evaluates the alert rules, for an
hour. `make test` plays each machine once under the checks.
`tests/zoo/README.md` says what a machine consists of.

"""


def page(every: Sequence[Played]) -> str:
    """Return the page."""
    losses = [loss for played in every for loss in played.losses]
    sourced = sum(bool(played.machine.sources) for played in every)
    events = sum(len(played.machine.week) for played in every)
    named = sum(loss.named for loss in losses)
    accused = sum(len(played.wrong) for played in every)
    counts = (
        f"{len(every)} machines, {sourced} of them from published facts and outputs; {events} events, {accused} "
        f"verdicts and alerts on the healthy; {len(losses)} losses, {named} of them named. The alert rules were "
        f"evaluated on {sum(played.evaluated for played in every)} machines.\n\n"
    )
    parts = [
        HEAD,
        counts,
        "## Machines\n\n| machine | a week | accused | planted | named |\n|---|---|---|---|---|\n",
        *map(_row, every),
        "\n## Losses\n\nThe checks that named a loss, and the alerts that came of it within half an hour.\n\n",
        "| loss | planted | checks | alerts |\n|---|---|---|---|\n",
        *_kinds(losses),
        "\n## Sources\n\n",
        *map(_sources, every),
    ]
    return "".join(parts)


def _row(played: Played) -> str:
    machine = played.machine
    week = "; ".join(str(event.get("what", "")) for event in machine.week)
    planted = _listed(loss.verb.replace("_", " ") for loss in played.losses)
    missed = ", ".join(loss.what for loss in played.missed)
    named = f"{len(played.losses) - len(played.missed)} of {len(played.losses)}" + (
        f"; not: {missed}" if missed else ""
    )
    return f"| {machine.name} | {week} | {len(played.wrong)} | {planted} | {named} |\n"


def _kinds(losses: Sequence[Loss]) -> list[str]:
    rows = []
    for verb in dict.fromkeys(loss.verb for loss in losses):
        alike = [loss for loss in losses if loss.verb == verb]
        checks = _listed(name for loss in alike for name in loss.told)
        alerts = _listed(name for loss in alike for name in loss.alerts)
        rows.append(f"| {verb.replace('_', ' ')} | {len(alike)} | {checks} | {alerts} |\n")
    return rows


def _listed(words: Iterable[str]) -> str:
    """Return words, the most frequent ones first, each with how often it was there."""
    return ", ".join(f"{times} {word}" if times > 1 else word for word, times in Counter(words).most_common())


def _sources(played: Played) -> str:
    machine = played.machine
    sources = "".join(f"    - {source}\n" for source in machine.sources) or "    - none published: an assumption\n"
    assumed = f"    - assumed: {'; '.join(machine.assumptions)}\n" if machine.assumptions else ""
    return f"- {machine.name} (`{machine.folder.name}`)\n{sources}{assumed}"
