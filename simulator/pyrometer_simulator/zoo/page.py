"""Write ``docs/zoo.md``: each machine, its sources, its week, and what was planted and found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyrometer_simulator.zoo.player import Played

HEAD: Final = """# The zoo

Whole machines, each with its files, its kernel log and its driver's answers, as data in `tests/zoo/machines`. Generated
by playing each through a week of its ordinary life, on a moved clock and under the real checks, and then through its
losses: change a machine, then run `make zoo`, which also evaluates the alert rules over each week. `make test` plays
each machine once and compares. `tests/zoo/README.md` says what a machine consists of.

"""


def page(every: Sequence[Played]) -> str:
    """Return the page."""
    losses = [loss for played in every for loss in played.losses]
    sourced = sum(bool(played.machine.sources) for played in every)
    events = sum(len(played.machine.week) for played in every)
    named = sum(loss.named for loss in losses)
    accused = sum(len(played.wrong) for played in every)
    counts = f"{len(every)} machines, {sourced} of them from published outputs; {events} events"
    table = "| machine | a week | verdicts | planted | named |\n|---|---|---|---|---|\n"
    parts = [HEAD, f"{counts}, {accused} verdicts on the healthy; {len(losses)} losses, {named} named.\n\n", table]
    parts += [_row(played) for played in every]
    parts.append("\n## Sources\n\n")
    parts += [_sources(played) for played in every]
    return "".join(parts)


def _row(played: Played) -> str:
    machine = played.machine
    week = "; ".join(str(event.get("what", "")) for event in machine.week)
    planted = ", ".join(dict.fromkeys(loss.what for loss in played.losses))
    missed = ", ".join(loss.what for loss in played.missed)
    named = f"{len(played.losses) - len(played.missed)} of {len(played.losses)}" + (
        f"; not: {missed}" if missed else ""
    )
    return f"| {machine.name} | {week} | {len(played.wrong)} | {planted} | {named} |\n"


def _sources(played: Played) -> str:
    machine = played.machine
    sources = "".join(f"    - {source}\n" for source in machine.sources) or "    - none published: an assumption\n"
    assumed = f"    - assumed: {'; '.join(machine.assumptions)}\n" if machine.assumptions else ""
    return f"- {machine.name} (`{machine.folder.name}`)\n{sources}{assumed}"
