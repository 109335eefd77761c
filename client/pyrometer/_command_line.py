"""Shared by the client's commands: argument types that refuse bad numbers in one line, and ``--version``."""

from __future__ import annotations

import argparse
import math
import sys

DISTRIBUTION = "pyrometer"


def add_version_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``, which prints the command, the installed version and that of Python, and exits."""
    parser.add_argument(
        "--version", action=_VersionAction, nargs=0, default=argparse.SUPPRESS, help="Print the version and exit."
    )


class _VersionAction(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        python = ".".join(map(str, sys.version_info[:3]))
        sys.stdout.write(f"{parser.prog}, version {installed_version()} (python {python})\n")
        parser.exit()


def installed_version() -> str:
    """Return the version of the installed distribution, ``unknown`` where the code runs without being installed."""
    import importlib.metadata  # noqa: PLC0415  needed by --version only

    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def positive(text: str) -> float:
    """Parse a number above zero.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above zero")
    return value


def positive_int(text: str) -> int:
    """Parse an integer above zero that fits a machine word.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    value = int(text) if text.isdecimal() and len(text) < 19 else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not an integer above zero")
    return value


def ratio(text: str) -> float:
    """Parse a number above 0, at most 1.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    value = positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text} is above 1: write 40 % as 0.4")
    return value
