"""Log lines as logfmt or JSON on stderr, one line each: a stack trace's lines are joined."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import datetime, timezone

# Whatever ends up in a message: tokens of Slack and credentials in URLs must not.
_SECRETS = re.compile(r"xox[a-z]-[\w-]+|xapp-[\w-]+|(?<=[?&]ticket=)[^\s&]+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


class LineFormatter(logging.Formatter):
    """`ts=... level=... logger=... msg="..."` or the same as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """One line, without secrets."""
        message = record.getMessage()
        if record.exc_info:
            message += " | " + " | ".join(self.formatException(record.exc_info).splitlines())
        pairs = {
            "ts": datetime.fromtimestamp(record.created, tz=timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _SECRETS.sub("[redacted]", message),
        }
        if self._as_json:
            return json.dumps(pairs)
        return " ".join(f"{name}={_quoted(value)}" for name, value in pairs.items())


def configure(level: str, form: str) -> None:
    """Send the package's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=form == "json"))
    root = logging.getLogger("pyrometer_alerting")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False) if re.search(r'[\s"=\\]', value) or not value else value
