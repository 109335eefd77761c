"""Read files that should contain a board; unwrap the board, or refuse the file in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class NotABoardError(Exception):
    """The file contains no board that can be checked; the message is one line with the reason."""


def read(path: Path) -> Json:
    """Return the board in a file, unwrapped if it comes from one of Grafana's APIs.

    Raises:
        NotABoardError: the file can't be read, or contains no board.
    """
    found = _parsed(path, _text(path))
    if not isinstance(found, dict):
        raise NotABoardError(f"{path} is not a dashboard: it contains a {type(found).__name__}")
    board = _unwrapped(found)
    if not isinstance(board, dict):
        raise NotABoardError(f"{path} is not a dashboard: the wrapped value is a {type(board).__name__}")
    if "elements" in board and "panels" not in board:
        raise NotABoardError(f"{path} is a board of Grafana's schema v2: export the classic model to check it")
    return board


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except IsADirectoryError:
        raise NotABoardError(f"{path} is a folder: name its files, such as {path}/*.json") from None
    except OSError as error:
        raise NotABoardError(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise NotABoardError(f"{path} is not valid UTF-8 (byte {error.start}): save it as UTF-8") from None
    if not text.strip():
        raise NotABoardError(f"{path} is empty")
    return text


def _parsed(path: Path, text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise NotABoardError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise NotABoardError(f"{path} is not a dashboard: it is nested too deeply") from None
    return found


def _unwrapped(found: Json) -> object:
    """Return the board in ``{"dashboard": ..., "meta": ...}`` (/api/dashboards/uid/...) or in a Kubernetes object."""
    if "dashboard" in found and "panels" not in found:
        return found["dashboard"]
    if "spec" in found and str(found.get("apiVersion", "")).startswith("dashboard.grafana.app/"):
        return found["spec"]
    return found
