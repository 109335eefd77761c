"""The board as a whole and the layout of its panels: identity, texts, positions, and the number of queries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, combinations

from tools.board_lint.finding import Finding, Json, LintContext, panels, targets, title, visible

_WIDTH = 24
_SCHEMA = 42
_REFRESH = ("30s", "1m", "5m", "")
MOST_PANELS = 25
MOST_QUERIES = 60
# Rows of the grid on a screen of 900 pixels. A panel on it costs the browser 60 to 80 ms before the board is drawn, a
# panel of which only the title can be seen as much as any.
FIRST_SCREEN, TITLE = 24, 2
MOST_FIRST = 10


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:  # noqa: ARG001  all checks look alike
    """Yield findings in a board's own settings and its layout."""
    for problem, remedy in (*_identity(board), *_settings(board), *_amount(board)):
        yield Finding(name, "", problem, remedy)
    yield from _overlaps(name, board)
    for panel in panels(board):
        yield from (Finding(name, title(panel), *each) for each in _words(panel))
        yield from (Finding(name, title(panel), *each) for each in _place(panel))


def unique_uids(boards: Mapping[str, Json]) -> Iterator[Finding]:
    """Yield boards that share a uid: Grafana accepts them silently, and they overwrite each other at every poll."""
    counts = Counter(str(board.get("uid")) for board in boards.values())
    for name, board in boards.items():
        if counts[str(board.get("uid"))] > 1:
            yield Finding(name, "", f"another board has the uid {board.get('uid')} too", "Give each its own.")


def _identity(board: Json) -> Iterator[tuple[str, str]]:
    if not re.fullmatch(r"[a-z0-9-]{1,40}", str(board.get("uid") or "")):
        yield f"the uid {board.get('uid')!r} is no address", "Use lower case, digits and dashes, 40 at most."
    if not board.get("title") or not board.get("description"):
        yield "no title or no description", "Say which question the board answers."
    if not board.get("tags"):
        yield "no tag", "Tag it, so that the menu of boards finds it."
    if board.get("id") is not None or board.get("__inputs") or board.get("version"):
        yield "it carries id, version or __inputs of the server that it came from", "Remove them."


def _settings(board: Json) -> Iterator[tuple[str, str]]:
    if board.get("schemaVersion") != _SCHEMA:
        yield f"schemaVersion {board.get('schemaVersion')}", f"Write {_SCHEMA}: others are migrated, and lose settings."
    if board.get("editable") is not False:
        yield "it is editable: what is changed by hand is lost at the next start", "Set editable to false."
    if board.get("timezone") != "utc":
        yield "its clock is the viewer's", "Set timezone to utc, so that two on-call sites read the same time."
    if board.get("refresh") not in _REFRESH:
        yield f"it refreshes every {board.get('refresh')}", f"Use one of {', '.join(filter(None, _REFRESH))}."
    for variable in board.get("templating", {}).get("list", []):
        if variable.get("type") == "query" and variable.get("refresh") != 2:
            yield f"${variable['name']} is not asked again when the time changes", "Set refresh to 2."


def _amount(board: Json) -> Iterator[tuple[str, str]]:
    shown = visible(board)
    queries = sum(len(targets(panel)) for panel in shown)
    if len(shown) > MOST_PANELS:
        yield f"{len(shown)} panels at once", f"Fold rows until {MOST_PANELS} are left."
    if queries > MOST_QUERIES:
        yield f"{queries} queries at once", f"Fold rows until {MOST_QUERIES} are left."
    tops = [panel["gridPos"]["y"] for panel in shown if _placed(panel.get("gridPos", {}))]
    first = [top for top in tops if top < FIRST_SCREEN]
    if len(first) > MOST_FIRST:
        yield f"{len(first)} panels on the first screen", f"Make rows taller until {MOST_FIRST} are left."
    if any(top >= FIRST_SCREEN - TITLE for top in first):
        yield "of some panels the first screen shows only the title", "Make a row above them taller."


def _words(panel: Json) -> Iterator[tuple[str, str]]:
    if not panel.get("title"):
        yield "no title", "Ask the question that it answers."
    elif len(str(panel["title"])) > 60:
        yield "a title of more than 60 characters", "Say the rest in the description."
    if len(str(panel.get("description", ""))) < 40:
        yield "no description", "Say what it shows, what is healthy and what to do."


def _place(panel: Json) -> Iterator[tuple[str, str]]:
    place = panel.get("gridPos", {})
    if not _placed(place):
        yield "no place, or one in fractions", "Give x, y, w and h as whole numbers."
    elif place["x"] < 0 or place["x"] + place["w"] > _WIDTH or place["w"] < 1 or place["h"] < 1:
        yield "it reaches beyond the board", f"The board is {_WIDTH} columns wide."


def _placed(place: Json) -> bool:
    return all(isinstance(place.get(side), int) for side in "xywh")


def _overlaps(name: str, board: Json) -> Iterator[Finding]:
    counts = Counter(
        panel.get("id") for panel in (*board.get("panels", []), *panels(board)) if panel.get("type") != "row"
    )
    titles = Counter(title(panel) for panel in panels(board))
    for panel in panels(board):
        if counts[panel.get("id")] > 2 or (panel not in board["panels"] and counts[panel.get("id")] > 1):
            yield Finding(name, title(panel), "another panel has the same id", "Give each its own.")
        if titles[title(panel)] > 1:
            yield Finding(name, title(panel), "another panel has the same title", "Ask another question.")
    rows = [row.get("panels", []) for row in board.get("panels", []) if row.get("type") == "row"]
    for one, other in chain.from_iterable(combinations(together, 2) for together in (visible(board), *rows)):
        if _over(one.get("gridPos", {}), other.get("gridPos", {})):
            yield Finding(name, title(one), f"it lies over '{title(other)}'", "Move one of them.")


def _over(one: Json, other: Json) -> bool:
    if not (_placed(one) and _placed(other)):
        return False
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not beside and not above
