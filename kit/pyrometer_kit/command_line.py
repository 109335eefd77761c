"""``--version`` of every command."""

from __future__ import annotations

import argparse
import sys

from pyrometer_kit.version import installed


def add_version_flag(parser: argparse.ArgumentParser, distribution: str) -> None:
    """Add ``--version``, which prints the command, the version of its distribution and of Python, and exits."""
    parser.add_argument(
        "--version", action=_VersionAction, nargs=0, const=distribution, default=argparse.SUPPRESS,
        help="Print the version and exit.",
    )  # fmt: skip


class _VersionAction(argparse.Action):
    """Looks the version up only when it is asked for: it reads the folders of the import path."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(version_line(parser.prog, str(self.const)) + "\n")
        parser.exit()


def version_line(prog: str, distribution: str) -> str:
    """Return a line such as ``pyrometer-doctor, version 0.2.0 (python 3.11.7)``, in Prometheus's manner."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{prog}, version {installed(distribution)} (python {python})"
