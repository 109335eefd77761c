"""The table of results, as Markdown, between two marks of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems.chroots import USERS
from pyrometer_simulator.systems.profiles import PROFILES
from pyrometer_simulator.systems.releases import RELEASES
from pyrometer_simulator.systems.trials import COMMANDS, Result

BEGIN, END = "<!-- results: written by make test-systems -->", "<!-- results end -->"


def render(results: Sequence[Result]) -> str:
    """Return a row per system, user and command, a column per profile; a cell without a trial says so."""
    head = ["system", "user", "command", *(profile.title for profile in PROFILES), "date"]
    rows = [head, ["---"] * len(head)]
    for system in _systems(results):
        for user in USERS:
            for command in COMMANDS:
                cells = [_find(results, (system, user, profile.name, command)) for profile in PROFILES]
                if any(cells):
                    dates = sorted({cell.date for cell in cells if cell is not None})
                    texts = [_cell(cell) for cell in cells]
                    rows.append([system, USERS[user].name, f"`{COMMANDS[command]}`", *texts, dates[-1]])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write(results: Sequence[Result], page: Path) -> None:
    """Put the table between the marks of a page.

    Raises:
        StackError: the page has no marks.
        OSError: it can't be read or written.
    """
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise StackError(f"{page}: no marks for the table ({BEGIN} ... {END})")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{render(results)}{END}{after}", encoding="utf-8")


def _systems(results: Iterable[Result]) -> list[str]:
    """Return the systems of the results, those that are known in their order first."""
    order = [release.name for release in RELEASES]
    named = {result.system for result in results}
    return [name for name in order if name in named] + sorted(named - set(order))


def _find(results: Iterable[Result], trial: tuple[str, ...]) -> Result | None:
    found = (each for each in results if (each.system, each.user, each.profile, each.command) == trial)
    return next(found, None)


def _cell(result: Result | None) -> str:
    if result is None:
        return "no trial"
    if result.outcome == "ok":
        return f"ok, {result.seconds:.0f} s" + (f" ({result.note})" if result.note else "")
    return f"{result.outcome}: {result.note}".replace("|", "\\|")
