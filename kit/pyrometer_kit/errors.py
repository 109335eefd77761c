"""The error for what the user gave and the program cannot use, and the one line that reports it."""

from __future__ import annotations

import sys


class UsageError(Exception):
    """Something the user gave cannot be used. The message is one line: what, where, what to do."""


def fail(prog: str, error: UsageError) -> int:
    """Print a usage error as one line on standard error; return the exit status 2."""
    sys.stderr.write(f"{prog}: {error}\n")
    return 2
