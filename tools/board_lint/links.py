"""Links, variables and runbooks: their targets must exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tools.board_lint.finding import Finding, Json, LintContext, panels, targets, title

_BUILT_IN = re.compile(r"__\w+|timeFilter")
_USED = re.compile(r"\$\{(\w+)|\$([A-Za-z_]\w*)")
_BOARD = re.compile(r"/d/([\w-]+)")
_VAR = re.compile(r"[?&]var-(\w+)=")
_RUNBOOK = re.compile(r"docs/alerts\.md#([\w-]+)")
_TIME = "${__url_time_range}"


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:
    """Yield findings in the links, variables and runbooks of a board."""
    yield from _variables(name, board)
    for panel in panels(board):
        for column in _links_of_nothing(panel):
            remedy = "Give the column its own `links`, empty ones if it leads nowhere."
            yield Finding(name, title(panel), f"the column {column} links also its cells without a value", remedy)
        named = _named(panel)
        if named and not any(
            f"/runbooks/{alert}" in link.get("url", "") for link in panel.get("links", []) for alert in named
        ):
            yield Finding(name, title(panel), "its runbook is not one click away", "Link it in the panel's head.")
        for link in _links(panel):
            for problem, remedy in _link(link, context):
                yield Finding(name, title(panel), problem, remedy)
        for heading in _RUNBOOK.findall(str(panel.get("description", ""))):
            if context.runbooks and heading not in context.runbooks:
                yield Finding(name, title(panel), f"no runbook {heading}", "Name a heading of docs/alerts.md.")


def _named(panel: Json) -> list[str]:
    """Return the runbooks that a panel's description names, as their headings are spelled."""
    linked = " ".join(str(link.get("url", "")) for link in panel.get("links", []))
    found = _RUNBOOK.findall(str(panel.get("description", "")))
    spelled = {each.lower(): each for each in re.findall(r"/runbooks/(\w+)", linked)}
    return [spelled.get(heading, heading) for heading in found]


def _links_of_nothing(panel: Json) -> Iterator[str]:
    """Yield the columns of a table whose cells without a value say so and are links all the same."""
    if panel.get("type") != "table":
        return
    configuration = panel.get("fieldConfig", {})
    everywhere = configuration.get("defaults", {}).get("links", [])
    for override in configuration.get("overrides", []):
        own = {each["id"]: each["value"] for each in override.get("properties", [])}
        absent = [each for each in own.get("mappings", []) if each["type"] == "special"]
        says = any(each["options"]["result"].get("text", "").strip() == "-" for each in absent)
        if says and own.get("links", everywhere):
            yield str(override["matcher"].get("options"))


def _links(panel: Json) -> Iterator[str]:
    """Yield all addresses in a panel, of fields and of overrides."""
    configuration = panel.get("fieldConfig", {})
    found = list(configuration.get("defaults", {}).get("links", []))
    for override in configuration.get("overrides", []):
        for each in override.get("properties", []):
            found += each.get("value", []) if each["id"] == "links" else []
    yield from (link.get("url", "") for link in found)


def _link(url: str, context: LintContext) -> Iterator[tuple[str, str]]:
    if not url.isascii():
        yield f"the address {url!a} has characters that browsers don't follow", "Write it in ASCII."
    match = _BOARD.search(url)
    if match is None:
        return
    there = context.boards.get(match[1])
    if there is None:
        yield f"no board {match[1]}", "Link to the uid of a board that exists."
        return
    known = {variable["name"] for variable in there.get("templating", {}).get("list", [])}
    for variable in _VAR.findall(url):
        if variable not in known:
            yield f"the board {match[1]} has no variable {variable}", "Drop it, or add it there."
    if _TIME not in url:
        yield f"the link to {match[1]} forgets the time", f"End it with &{_TIME}."


def _variables(name: str, board: Json) -> Iterator[Finding]:
    defined = {variable["name"] for variable in board.get("templating", {}).get("list", [])}
    text = json.dumps(board)
    used = {one or other for one, other in _USED.findall(text)}
    used = {variable for variable in used if not _BUILT_IN.fullmatch(variable)}
    for panel in panels(board):
        for target in targets(panel):
            named = {one or other for one, other in _USED.findall(str(target.get("expr", "")))}
            for variable in sorted(named - defined):
                if not _BUILT_IN.fullmatch(variable):
                    yield Finding(name, title(panel), f"no variable ${variable}", "Define it, or use another.")
    for variable in sorted(defined - used):
        yield Finding(name, "", f"nothing uses the variable {variable}", "Remove it, or use it.")
