"""Errors that several modules raise: unusable input of a user, and no answer over HTTP."""

from __future__ import annotations

import sys


class UsageError(Exception):
    """A setting or argument cannot be used. The message is one line: what, where, what to do."""


class HttpError(OSError):
    """No valid answer; the message is one printable line without credentials.

    Attributes:
        reason: one word for a label: ``deadline``, ``too_large``, ``tls``, ``eai`` (the name was not resolved),
            ``http_503``, ``bad_answer``, or the name of an errno such as ``econnrefused``.
        status: of HTTP, 0 where none came.
        sent: whether the service may have received the request.
    """

    def __init__(self, message: str, reason: str, *, status: int = 0, sent: bool = True) -> None:
        super().__init__(message)
        self.reason, self.status, self.sent = reason, status, sent


def fail(prog: str, error: UsageError) -> int:
    """Print a usage error as one line on standard error; return the exit status 2."""
    sys.stderr.write(f"{prog}: {error}\n")
    return 2
