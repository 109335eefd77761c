"""What a collector keeps across restarts of the exporter: one JSON object in a file of the state folder."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile:
    """The file ``<folder>/<name>``; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = folder / name if folder else None
        self.unusable = False
        """Whether a file was there that could not be used: what was kept is unknown, which is not the same as none."""

    @property
    def kept(self) -> bool:
        """Whether there is a place to keep anything."""
        return self._path is not None

    def load(self, decode: Callable[[Mapping[str, Any]], T]) -> T | None:
        """What ``decode`` makes of the file; None where there is none.

        ``decode`` raises ValueError, KeyError or TypeError for what isn't its own: the file is set aside with one
        warning.
        """
        if self._path is None:
            return None
        try:
            return decode(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.unusable = True
            log.warning("%s can't be used, its counts start again at 0: %r", self._path, error)
            with contextlib.suppress(OSError):
                self._path.replace(self._path.with_name(f"{self._path.name}.corrupt"))
            return None

    def save(self, data: Mapping[str, Any]) -> None:
        """Replace the file with ``data``; see :meth:`replace`."""
        self.replace(json.dumps(data))

    def replace(self, text: str) -> None:
        """Replace the file, so that a crash leaves the old or the new one whole. Raises ``OSError``."""
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
