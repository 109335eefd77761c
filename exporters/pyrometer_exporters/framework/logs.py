"""Logging as Prometheus components do it: logfmt or JSON lines on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

LEVELS = ("debug", "info", "warn", "error")


class _Fields(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        level = "warn" if record.levelno == logging.WARNING else record.levelname.lower()
        stamp = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        found = {
            "time": stamp.replace("+00:00", "Z"),
            "level": level,
            "source": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return found


class Logfmt(_Fields):
    """``time=... level=info source=... msg="..."``, one line per record."""

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        return " ".join(f"{key}={_quoted(value)}" for key, value in self.fields(record).items())


class JsonLines(_Fields):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        return json.dumps(self.fields(record), ensure_ascii=False)


def set_up(level: str, form: str) -> None:
    """Send all records from ``level`` on (one of LEVELS) to standard error in ``form`` (logfmt or json)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Logfmt())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel({"warn": "WARNING"}.get(level, level.upper()))
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _quoted(value: str) -> str:
    # What can't be printed is escaped too: a carriage return would overwrite the line on a terminal.
    plain = value and value.isprintable() and not any(c in value for c in ' "=\\')
    return value if plain else json.dumps(value, ensure_ascii=False)
