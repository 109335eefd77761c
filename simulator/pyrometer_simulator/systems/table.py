"""The table of results, as Markdown, between two marks of a page: what was not tried again stays, with its date."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems.profiles import PROFILES, USERS
from pyrometer_simulator.systems.releases import RELEASES
from pyrometer_simulator.systems.trials import COMMANDS, Result

BEGIN, END = "<!-- results: written by make test-systems -->", "<!-- results end -->"
NO_TRIAL = "no trial"
TITLES = {profile.name: profile.title for profile in PROFILES}
HEAD = ["system", "user", "command", *TITLES.values(), "date"]
_DATED = re.compile(r"(?P<text>.*), on (?P<date>\d{4}-\d\d-\d\d)")
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


class Cell(NamedTuple):
    """A trial's outcome and its day."""

    text: str
    date: str


# The first three columns, and a cell for each column of the profiles that was tried.
Rows = Mapping[tuple[str, ...], Mapping[str, Cell]]


def render(results: Sequence[Result], earlier: Rows | None = None) -> str:
    """Return a row per system, user and command, a column per profile; a cell without a trial says so."""
    rows = _newest(earlier or {}, _rows(results))
    lines = [HEAD, ["---"] * len(HEAD), *(_line(key, rows[key]) for key in sorted(rows, key=_place))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write(results: Sequence[Result], page: Path) -> None:
    """Put the table between the marks of a page, with the cells there that no result is newer than.

    Raises:
        StackError: the page has no marks, or another table between them.
        OSError: it can't be read or written.
    """
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise StackError(f"{page}: no marks for the table ({BEGIN} ... {END})")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    earlier = _read(text.split(BEGIN)[1].split(END)[0], page)
    page.write_text(f"{before}{BEGIN}\n{render(results, earlier)}{END}{after}", encoding="utf-8")


def _rows(results: Iterable[Result]) -> Rows:
    rows: defaultdict[tuple[str, ...], dict[str, Cell]] = defaultdict(dict)
    for each in results:
        key = (each.system, USERS[each.user].name, f"`{COMMANDS[each.command]}`")
        rows[key].setdefault(TITLES[each.profile], Cell(_text(each), each.date))
    return rows


def _read(table: str, page: Path) -> Rows:
    """Return the rows of a table that `render` wrote; none where there is no table yet."""
    lines = [_BETWEEN_CELLS.split(line.strip())[1:-1] for line in table.strip().splitlines()]
    head, *rows = [[cell.strip() for cell in line] for line in lines] or [HEAD]
    if head != HEAD or any(len(row) != len(HEAD) for row in rows):
        raise StackError(f"{page}: the table between the marks has other columns; take it away first")
    return {tuple(row[:3]): _tried(row[3:-1], row[-1]) for row in rows[1:]}


def _tried(cells: Sequence[str], date: str) -> Mapping[str, Cell]:
    found = {title: text for title, text in zip(TITLES.values(), cells, strict=True) if text != NO_TRIAL}
    dated = {title: _DATED.fullmatch(text) for title, text in found.items()}
    return {title: Cell(*match.groups()) if (match := dated[title]) else Cell(found[title], date) for title in found}


def _newest(earlier: Rows, later: Rows) -> Rows:
    """Return the cells of both; of two in one place the one of the later date, and of the same day the second."""
    merged = {key: dict(cells) for key, cells in earlier.items()}
    for key, cells in later.items():
        row = merged.setdefault(key, {})
        row.update({title: cell for title, cell in cells.items() if title not in row or row[title].date <= cell.date})
    return merged


def _place(key: tuple[str, ...]) -> tuple[object, ...]:
    """Return the sort key of a row: systems that are known in their order, then the others by name."""
    order = [release.name for release in RELEASES]
    users, commands = [user.name for user in USERS.values()], [f"`{each}`" for each in COMMANDS.values()]
    system = order.index(key[0]) if key[0] in order else len(order)
    return system, key[0], _index(users, key[1]), _index(commands, key[2]), key


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _line(key: tuple[str, ...], cells: Mapping[str, Cell]) -> list[str]:
    """Return a row's texts: its date is that of the last trial, and a cell of an earlier day has its own."""
    last = max(cell.date for cell in cells.values())
    tried = {title: cell.text if cell.date == last else f"{cell.text}, on {cell.date}" for title, cell in cells.items()}
    return [*key, *(tried.get(title, NO_TRIAL) for title in TITLES.values()), last]


def _text(result: Result) -> str:
    if result.outcome == "ok":
        return f"ok, {result.seconds:.0f} s" + (f" ({result.note})" if result.note else "")
    return f"{result.outcome}: {result.note}".replace("|", "\\|")
