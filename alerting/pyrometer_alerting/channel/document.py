"""The HTML document that all pages of the service are: one style sheet, no script, nothing external."""

from __future__ import annotations

from importlib import resources

from pyrometer_kit.http_message import Response

# The pages hold no script and nothing of another host.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NEVER_STORED = "no-store"


def document(title: str, body: str, *, reload_seconds: int | None = None, body_class: str = "") -> str:
    """Return a whole document; ``title`` and ``body`` are HTML, the class of its body may be empty."""
    style = resources.files("pyrometer_alerting.channel").joinpath("page.css").read_text("utf-8")
    refresh = f'<meta http-equiv="refresh" content="{reload_seconds}">' if reload_seconds is not None else ""
    of_class = f' class="{body_class}"' if body_class else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} - Pyrometer</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">{refresh}<style>{style}</style></head>'
        f"<body{of_class}>{body}</body></html>"
    )


def response(html: str, *, cache: str = NEVER_STORED, refresh: str = "") -> Response:
    """Return the response with a document; ``cache`` is its Cache-Control, ``refresh`` the seconds to its reload."""
    headers = _HEADERS | {"Cache-Control": cache} | ({"Refresh": refresh} if refresh else {})
    return Response(200, html.encode(), "text/html; charset=utf-8", headers)
