"""Command-line flags in the Prometheus ecosystem's spelling; a wrong one ends in one line that says the way out."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn


class UsageError(Exception):
    """Something the user gave can't be used. The message is one line: what, where, what to do."""


class Flags(argparse.ArgumentParser):
    """A parser whose errors are one line and whose flags can't be abbreviated (a new flag would break scripts)."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class Address(NamedTuple):
    """Where to listen; an empty host is all interfaces."""

    host: str
    port: int


def address(text: str) -> Address:
    """Parse ``host:port``, ``:port`` or ``[v6]:port``.

    >>> address("127.0.0.1:9935")
    Address(host='127.0.0.1', port=9935)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        msg = f"{text!r} is not host:port, such as 127.0.0.1:9935"
        raise argparse.ArgumentTypeError(msg)
    return Address(host.strip("[]"), int(port))


def regexp(text: str) -> re.Pattern[str]:
    """Parse a regular expression, anchored at both ends as Prometheus does."""
    try:
        return re.compile(f"^(?:{text})$")
    except re.error as error:
        msg = f"{text!r} is not a regular expression: {error}"
        raise argparse.ArgumentTypeError(msg) from None


def number_between(low: float, high: float, called: str) -> Callable[[str], float]:
    """A parser of numbers from ``low`` to ``high``, both included; ``called`` ends the error's "is not ..."."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            msg = f"{text!r} is not {called}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return parse


def state_folder(given: str | None, default: Path) -> Path | None:
    """The folder for what must survive a restart, made when missing.

    A folder that was asked for and can't be used is an error; the default one that can't be used is None.
    """
    folder = Path(given) if given else default
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        if given:
            msg = f"--path.state: can't write to {folder}: {error.strerror}; give a folder this user may write to"
            raise UsageError(msg) from None
        return None
    return folder


def fail(prog: str, error: UsageError) -> int:
    """Print a usage error as its one line; the exit status to end with."""
    sys.stderr.write(f"{prog}: {error}\n")
    return 2
