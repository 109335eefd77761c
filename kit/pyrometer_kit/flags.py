"""Command-line flags in the Prometheus ecosystem's spelling; a wrong flag ends in one line that names the fix."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from urllib.parse import SplitResult


class Flags(argparse.ArgumentParser):
    """A parser whose errors are one line and whose flags cannot be abbreviated (a new flag would break scripts)."""

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


# Names under which no other host can reach this one.
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def place(url: SplitResult) -> str:
    """Return host and port of an address, without a password."""
    return url.netloc.rpartition("@")[2]


class Address(NamedTuple):
    """Where to listen; an empty host is all interfaces."""

    host: str
    port: int


def address(text: str) -> Address:
    """Parse ``host:port``, ``:port`` or ``[v6]:port``.

    Raises:
        argparse.ArgumentTypeError: It has none of these forms.

    >>> address("127.0.0.1:9935")
    Address(host='127.0.0.1', port=9935)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        msg = f"{text!r} is not host:port, such as 127.0.0.1:9935"
        raise argparse.ArgumentTypeError(msg)
    return Address(host.strip("[]"), int(port))


def regexp(text: str) -> re.Pattern[str]:
    """Parse a regular expression, anchored at both ends as Prometheus does.

    Raises:
        argparse.ArgumentTypeError: It is not one.
    """
    try:
        return re.compile(f"^(?:{text})$")
    except re.error as error:
        msg = f"{text!r} is not a regular expression: {error}"
        raise argparse.ArgumentTypeError(msg) from None


def number_between(low: float, high: float, name: str) -> Callable[[str], float]:
    """Return a parser of numbers from ``low`` to ``high``, both included; ``name`` ends the error "... is not"."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            msg = f"{text!r} is not {name}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return parse
