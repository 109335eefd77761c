"""Orders to a program of the demo, through a file that it looks at: the director's to its jobs, the user's to it."""

from __future__ import annotations

import contextlib
from pathlib import Path


class Orders:
    """Orders to the program of this name; ``folder`` is shared with who gives them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.order"

    def give(self, text: str) -> None:
        """Give an order; one that was not taken yet is replaced."""
        new = self._path.with_suffix(".new")
        new.write_text(text)
        new.replace(self._path)

    def latest(self) -> str:
        """Return the latest order, empty if there is none."""
        with contextlib.suppress(OSError):
            return self._path.read_text()
        return ""

    def take(self) -> str:
        """Return the latest order and forget it."""
        text = self.latest()
        if text:
            self._path.unlink(missing_ok=True)
        return text
