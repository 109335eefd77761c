"""The error for unusable user input, and the one line that reports it."""

from __future__ import annotations

import sys


class UsageError(Exception):
    """A setting or argument cannot be used. The message is one line: what, where, what to do."""


def fail(prog: str, error: UsageError) -> int:
    """Print a usage error as one line on standard error; return the exit status 2."""
    sys.stderr.write(f"{prog}: {error}\n")
    return 2
