"""Logging as Prometheus components do it: logfmt or JSON lines on standard error, without secrets."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timezone

LEVELS = ("debug", "info", "warn", "error")
FORMATS = ("logfmt", "json")

# Secrets that end up in a message or a stack trace: Slack's tokens, Socket Mode tickets, credentials of HTTP headers
# and of URLs, bcrypt hashes and private keys.
_SECRETS = re.compile(
    r"xox[a-z]-[\w-]+|xapp-[\w-]+"
    r"|(?<=[?&]ticket=)[^\s&]+"
    r"|(?P<header>(?i:authorization)\W{1,6}(?i:basic|bearer)\s+)[^\s'\"]+"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
    r"|\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
REDACTED = "[redacted]"


def redacted(text: str) -> str:
    """Return ``text`` with every secret in it replaced.

    >>> redacted("http://me:hunter2@host/")
    'http://[redacted]@host/'
    """
    return _SECRETS.sub(lambda match: (match["header"] or "") + REDACTED, text)


class _Formatter(logging.Formatter):
    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        level = "warn" if record.levelno == logging.WARNING else record.levelname.lower()
        stamp = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        fields = {
            "time": stamp.replace("+00:00", "Z"),
            "level": level,
            "source": record.name,
            "msg": redacted(record.getMessage()),
        }
        if record.exc_info:
            fields["exception"] = redacted(self.formatException(record.exc_info))
        return fields


class Logfmt(_Formatter):
    """``time=... level=info source=... msg="..."``, one line per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        return " ".join(f"{key}={_quoted(value)}" for key, value in self.fields(record).items())


class JsonLines(_Formatter):
    """One JSON object per record, with the fields of logfmt."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        return json.dumps(self.fields(record), ensure_ascii=False)


def set_up(level: str, form: str, quiet: Iterable[str] = ("asyncio",)) -> None:
    """Send all records from ``level`` on (one of LEVELS) to standard error in ``form`` (one of FORMATS).

    The loggers named ``quiet``, which belong to libraries, send only warnings and errors.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Logfmt())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel({"warn": "WARNING"}.get(level, level.upper()))
    for name in quiet:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _quoted(value: str) -> str:
    # Unprintable characters are escaped too: a carriage return would overwrite the line on a terminal.
    plain = value and value.isprintable() and not any(char in value for char in ' "=\\')
    return value if plain else json.dumps(value, ensure_ascii=False)
