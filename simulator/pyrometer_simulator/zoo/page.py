"""Write ``docs/zoo.md``: each machine, its sources, its week, and what was planted and found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pyrometer_simulator.zoo.machine import Description
from pyrometer_simulator.zoo.player import Loss, Played
from pyrometer_simulator.zoo.prints import READERS

HEAD: Final = """# The zoo

Whole machines, each with its files, its kernel log and its driver's answers, as data in `tests/zoo/machines`. Generated
by playing each through a week of its ordinary life, on a moved clock and under the real checks, and then through its
losses: change a machine, then run `make zoo`, which also runs the real exporter and evaluates the alert rules, for half
an hour. `make test` plays each machine once under the checks.
`tests/zoo/README.md` says what a machine consists of.

"""

SOURCES: Final = """## Sources

Where a part of a file is *as published*, each of its values is what the source prints; how much of an output the source
shows is said. *Rebuilt* files have the published facts, in the form of the program that prints them, and assumptions.
*Assumed* is all that no source shows.

"""


def page(every: Sequence[Played]) -> str:
    """Return the text of ``docs/zoo.md``."""
    losses = [loss for played in every for loss in played.losses]
    sourced = sum(bool(played.machine.sources) for played in every)
    printed = sum(bool(played.machine.published) for played in every)
    events = sum(len(played.machine.week) for played in every)
    named = sum(loss.named for loss in losses)
    accused = sum(len(played.wrong) for played in every)
    counts = (
        f"{len(every)} machines: {printed} have published outputs, {sourced - printed} are rebuilt from published "
        f"facts, {len(every) - sourced} are assumptions. {events} events, {accused} verdicts and alerts on the "
        f"healthy; {len(losses)} losses, {named} of them named. The alert rules were evaluated over the weeks of "
        f"{sum(played.evaluated for played in every)} machines and over {sum(loss.evaluated for loss in losses)} "
        "losses.\n\n"
    )
    parts = [
        HEAD,
        counts,
        "## Machines\n\n| machine | a week | accused | planted | named |\n|---|---|---|---|---|\n",
        *map(_row, every),
        "\n## Losses\n\nThe checks that named a loss, and the alerts that came of it within half an hour.\n\n",
        "| loss | planted | checks | alerts |\n|---|---|---|---|\n",
        *_kinds(losses),
        "\n",
        sources([played.machine for played in every]),
    ]
    return "".join(parts)


def _row(played: Played) -> str:
    machine = played.machine
    week = "; ".join(str(event.get("what", "")) for event in machine.week)
    planted = _listed(loss.verb.replace("_", " ") for loss in played.losses)
    missed = [loss.what for loss in played.missed]
    named = f"{len(played.losses) - len(missed)} of {len(played.losses)}"
    if missed:
        named += f"; not: {', '.join(missed)}"
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


def sources(every: Sequence[Description]) -> str:
    """Return the page's part on where machines come from, which depends on no play."""
    return SOURCES + "".join(map(_source, every))


def _source(machine: Description) -> str:
    rebuilt = [name for name in READERS if name not in machine.published and (machine.folder / name).exists()]
    lines = [
        *(machine.sources or ["none published: an assumption"]),
        *(f"as published: `{name}` ({part})" for name, part in machine.published.items()),
        *([f"rebuilt: {', '.join(rebuilt)}"] if machine.sources and rebuilt else []),
        *([f"assumed: {'; '.join(machine.assumptions)}"] if machine.assumptions else []),
    ]
    return f"- {machine.name} (`{machine.folder.name}`)\n" + "".join(f"    - {line}\n" for line in lines)
