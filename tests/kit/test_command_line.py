"""``--version``: the command, its distribution's version, Python's."""

from __future__ import annotations

import argparse
import sys
from importlib import metadata

import pytest

from pyrometer_kit.command_line import add_version_flag

PYTHON = ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("distribution", "version"), [("pyrometer-kit", metadata.version("pyrometer-kit")), ("nowhere", "unknown")]
)
def test_the_version_is_printed_in_one_line(
    distribution: str, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser(prog="pyrometer-thing")
    add_version_flag(parser, distribution)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pyrometer-thing, version {version} (python {PYTHON})\n"


def test_the_flag_leaves_no_trace_among_the_others() -> None:
    parser = argparse.ArgumentParser()
    add_version_flag(parser, "pyrometer-kit")
    assert vars(parser.parse_args([])) == {}
