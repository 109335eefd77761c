"""Hooks of mkdocs: pages of the root become pages of the manual, and the built site loads nothing from another host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Where a list can begin after text, as in CommonMark: at a bullet or at number 1.
_ITEM = re.compile(r"(?:[-*+]|1\.) \S")
# Text that is neither indented (of an item) nor itself an item.
_TEXT = re.compile(r"(?![-*+] |\d+\. )\S")
PAGES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Return the page, or the root's file in place of its stand-in in docs/ with links as they are seen from docs/."""
    name = PAGES.get(page.file.src_uri)
    return with_lists(markdown if name is None else in_manual((ROOT / name).read_text(encoding="utf-8")))


def on_post_build(*, config: Mapping[str, Any], **_: object) -> None:
    """Point the theme's fallbacks for old browsers, which it would load from a CDN, to nowhere on this site."""
    for path in Path(config["site_dir"]).glob("assets/javascripts/*.js"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("https://unpkg.com/", "/not-loaded/"), encoding="utf-8")


def with_lists(text: str) -> str:
    """Return the page with an empty line before each list that follows a line of text.

    Python-Markdown takes such a list for more text; CommonMark, which the pages are written in, does not.
    """
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        if not fenced and _ITEM.match(line) and lines and _TEXT.match(lines[-1]):
            lines.append("")
        fenced ^= line.lstrip().startswith("```")
        lines.append(line)
    return "\n".join([*lines, ""])


def in_manual(text: str) -> str:
    """Return the page with links as seen from docs/, without the links to tags, which a built page can't follow."""
    text = re.sub(r"^\[([^\]]+)\]: \.\./\.\./.*\n", "", text, flags=re.MULTILINE)
    text = text.replace("](docs/", "](")
    text = re.sub(r"\[([^\]]+)\]\((?:SECURITY\.md|LICENSE)\)", r"`\1`", text)  # files of the root, not of the manual
    for page, name in PAGES.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text
