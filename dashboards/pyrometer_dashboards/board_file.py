"""Files that should hold a board: read, unwrapped, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class NotABoardError(Exception):
    """The file holds no board that can be checked; one line, which says why."""


def read(path: Path) -> Json:
    """The board in a file, also as Grafana's programming interfaces wrap it. Raises NotABoardError."""
    found = _parsed(path, _text(path))
    if not isinstance(found, dict):
        raise NotABoardError(f"{path} is no dashboard: it holds a {type(found).__name__}")
    board = _unwrapped(found)
    if not isinstance(board, dict):
        raise NotABoardError(f"{path} is no dashboard: what is wrapped in it is a {type(board).__name__}")
    if "elements" in board and "panels" not in board:
        raise NotABoardError(f"{path} is a board of Grafana's schema v2: export the classic model to have it checked")
    return board


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except IsADirectoryError:
        raise NotABoardError(f"{path} is a folder: name the files in it, such as {path}/*.json") from None
    except OSError as error:
        raise NotABoardError(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise NotABoardError(f"{path} is not in UTF-8 (byte {error.start}): save it so") from None
    if not text.strip():
        raise NotABoardError(f"{path} is empty")
    return text


def _parsed(path: Path, text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise NotABoardError(f"{path} is no JSON: {error}") from None
    except RecursionError:
        raise NotABoardError(f"{path} is no dashboard: it is nested too deeply") from None
    return found


def _unwrapped(found: Json) -> object:
    """Of ``{"dashboard": ..., "meta": ...}`` (/api/dashboards/uid/...) and of a Kubernetes object the board in it."""
    if "dashboard" in found and "panels" not in found:
        return found["dashboard"]
    if "spec" in found and str(found.get("apiVersion", "")).startswith("dashboard.grafana.app/"):
        return found["spec"]
    return found
