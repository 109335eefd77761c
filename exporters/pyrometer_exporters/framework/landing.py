"""The page at ``/``: this exporter's endpoints, and what it cannot read and why."""

from __future__ import annotations

from collections.abc import Iterable

from pyrometer_exporters.framework.gather import CollectorState

_STYLE = """
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:56rem;padding:0 1rem}
h1{margin-bottom:0}p.version{margin-top:0;opacity:.7}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.4rem .8rem .4rem 0;border-bottom:1px solid #8884;vertical-align:top}
.ok{color:#1a7f37}.down{color:#b35900}.failed{color:#cf222e}
p.notice{border:1px dashed #b35900;color:#b35900;padding:.5rem .8rem;border-radius:.4rem;font-weight:600}
code{font-size:.95em}
"""

# html.escape does the same, but its module holds the names of all entities.
_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#x27;"}


def landing_page(title: str, version: str, notice: str, links: Iterable[str], states: Iterable[CollectorState]) -> str:
    """Return the page as HTML, from the states of the latest collection; a ``notice`` is shown on top."""
    banner = f'<p class="notice">{escape(notice)}</p>' if notice else ""
    items = "".join(f'<li><a href="{escape(link)}">{escape(link)}</a></li>' for link in links)
    rows = "".join(_row(state) for state in states)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f'<h1>{escape(title)}</h1><p class="version">{escape(version)}</p>{banner}<ul>{items}</ul>'
        f"<table><tr><th>collector</th><th>state</th><th>took, latest</th><th>not available</th></tr>{rows}</table>"
        "</body></html>"
    )


def _row(state: CollectorState) -> str:
    kind, word = ("failed", "failed") if state.failed else ("down", "partly") if state.downs else ("ok", "ok")
    downs = "<br>".join(
        f"<code>{escape(down.part or 'all')}</code>: {escape(down.detail or down.reason)}" for down in state.downs
    )
    took = f"{state.seconds * 1000:.1f} ms"
    return f'<tr><td>{escape(state.name)}</td><td class="{kind}">{word}</td><td>{took}</td><td>{downs}</td></tr>'


def escape(text: str) -> str:
    """Return a text for HTML, between tags and in attributes.

    >>> escape("<b title='x'>")
    '&lt;b title=&#x27;x&#x27;&gt;'
    """
    return text.translate(_ESCAPES)
