"""Serve the project's own runbooks, so that a message's link opens without a copy of the project anywhere else."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from pathlib import Path

from pyrometer_alerting.channel.document import document, response
from pyrometer_kit.http_message import Response

BASE = "/runbooks"
# Named as rules and our own alerts name them: docs/alerts.md#gpulost. The wheel holds these files of docs/.
PAGES = {
    "alerts.md": "Alerts",
    "alertmanager.md": "The alerting service's own messages",
    "no-data.md": "No data on a board",
}
_CHECKOUT = Path(__file__).resolve().parents[3] / "docs"
_ALERT = re.compile(r"^##+ ((?:[A-Z][a-z0-9]+)+)$", re.MULTILINE)
_OTHER_PAGE = re.compile(r'<a href="(?!https?://|#)(?!(?:alerts|alertmanager)\.md)[^"]*">(.*?)</a>', re.DOTALL)
_CACHE = "max-age=300"  # they change with the version alone


def pages() -> dict[str, Callable[[], Response]]:
    """Return the page of each path: all runbooks' names, the two documents that have them, and each alert's own."""
    found: dict[str, Callable[[], Response]] = {BASE: _index, f"{BASE}/": _index}
    for name in PAGES:
        found[f"{BASE}/docs/{name}"] = partial(_runbooks, name)
        found |= {f"{BASE}/{heading}": partial(_single, name, heading) for heading in names(name)}
    return found


def source(name: str) -> str:
    """Return a document's Markdown: of the installed package, or of the checkout that this runs from."""
    packaged = resources.files("pyrometer_alerting") / "runbooks" / name
    if packaged.is_file():
        return packaged.read_text("utf-8")
    return (_CHECKOUT / name).read_text("utf-8")


def names(name: str) -> list[str]:
    """Return the alerts that a document has a heading for, in its order."""
    return _ALERT.findall(source(name))


def to_html(markdown: str) -> str:
    """Return CommonMark with tables as HTML, each heading with the anchor that rules link to.

    Links to pages of the manual that are not served here become plain text.
    """
    from markdown_it import MarkdownIt  # noqa: PLC0415  few processes are ever asked for a runbook

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(markdown)
    for opening, inline in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", _anchor(inline.content))
    return _OTHER_PAGE.sub(r"\1", reader.renderer.render(tokens, reader.options, {}))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


def _index() -> Response:
    return _page("Runbooks", "".join(f"<h2>{title}</h2>{_links(name)}" for name, title in PAGES.items()))


def _links(name: str) -> str:
    return '<ul class="names">' + "".join(_link(name, heading) for heading in names(name)) + "</ul>"


def _link(name: str, heading: str) -> str:
    return f'<li><a href="{BASE}/docs/{name}#{_anchor(heading)}">{html.escape(heading)}</a></li>'


def _runbooks(name: str) -> Response:
    return _page("Runbooks", "".join(_sections(to_html(source(name)))))


def _single(name: str, heading: str) -> Response:
    """Return one alert's runbook, at an address that needs nothing but its name."""
    start = f'<article id="{_anchor(heading)}">'
    found = [each for each in _sections(to_html(source(name))) if each.startswith(start)]
    return _page(heading, "".join(found))


def _sections(text: str) -> Iterator[str]:
    """Yield each alert as a card of its own, so that the one that was asked for stands out."""
    before, *sections = re.split(r"(?=<h[23] )", text)
    yield f"<article>{before}</article>"
    for section in sections:
        anchor = section.partition('id="')[2].partition('"')[0]
        yield f'<article id="{anchor}">{section.replace(f" id={chr(34)}{anchor}{chr(34)}", "", 1)}</article>'


def _page(title: str, body: str) -> Response:
    header = f'<header><h1><a href="/">Pyrometer</a></h1><a href="{BASE}">{title}</a></header>'
    return response(document(title, f"{header}<main>{body}</main>", body_class="runbooks"), cache=_CACHE)
