"""The part of a page that a program writes, between two marks of its own."""

from __future__ import annotations

from pathlib import Path


def put(page: Path, begin: str, end: str, text: str) -> None:
    """Put ``text`` where the page has the marks; all else stays."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(before + begin + text + end + rest.partition(end)[2], encoding="utf-8")
