"""Blocks of a page, which its reader pastes and runs, with loopback ports for its hosts."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyrometer_simulator.ports import free_port

_BLOCK = re.compile(r'^( *)```\w+ title="([^"]+)"\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> dict[str, str]:
    """Return the blocks of a page that have a title, by title."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return {title: textwrap.dedent(text) for _, title, text in found}


def merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with another's keys put into it, as somebody does who follows a page."""
    whole = dict(below)
    for key, value in above.items():
        own = whole.get(key)
        whole[key] = merged(own, value) if isinstance(own, dict) and isinstance(value, Mapping) else value
    return whole


class Hosts:
    """The hosts that a page names; each of their ports is a free one of this machine."""

    def __init__(self, *names: str) -> None:
        self._names = "|".join(sorted(names, key=len, reverse=True))
        self._ports: dict[tuple[str, str], int] = {}

    def port(self, name: str, port: int) -> int:
        """Return the port on loopback for a host's port."""
        return self._ports.setdefault((name, str(port)), free_port())

    def local(self, text: str, folders: Mapping[str, Path]) -> str:
        """Return a text with loopback addresses for its hosts, and folders of a test for those that it names."""
        text = re.sub(
            rf"\b({self._names}):(\d+)\b", lambda found: f"127.0.0.1:{self.port(found[1], int(found[2]))}", text
        )
        for path, folder in folders.items():
            text = text.replace(path, str(folder) + "/" * path.endswith("/"))
        return text

    def command(self, text: str, folders: Mapping[str, Path]) -> list[str]:
        """Return the one command of a block, as arguments."""
        return shlex.split(self.local(text, folders).replace("\\\n", " "))
