"""Flags: what they take, and the one line that says the way out where they don't."""

from __future__ import annotations

import argparse

import pytest

from pyrometer_kit.errors import UsageError, fail
from pyrometer_kit.flags import Flags, address, regexp


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9935", "127.0.0.1", 9935), (":9935", "", 9935), ("[::1]:80", "::1", 80), ("host:0", "host", 0)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "9935", "host", "host:", "host:x", "host:-1", "host:65536", "host:1.5", ":"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"such as 127\.0\.0\.1:9935"):
        address(text)


def test_regexps_are_anchored() -> None:
    assert regexp("mlx5_[0-3]|eth0").match("mlx5_2")
    assert not regexp("mlx5_[0-3]").match("mlx5_22")
    assert not regexp("eth0").match("xeth0")
    assert not regexp("a|b").match("ac")


@pytest.mark.parametrize("text", ["(", "[", "*", "(?P<a>x)(?P<a>y)", "a{2,1}", "\\"])
def test_what_is_no_regexp(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a regular expression"):
        regexp(text)


@pytest.mark.parametrize("argv", [["--unknown"], ["--fi", "x"], ["--first"], ["stray"], ["--first", "host"]])
def test_an_error_is_one_line_and_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = Flags("prog", "what it does")
    flags.add_argument("--first", type=address)
    with pytest.raises(SystemExit) as caught:
        flags.parse_args(argv)
    assert caught.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("prog: ")
    assert line.endswith("(see prog --help)\n")
    assert line.count("\n") == 1


def test_fail_prints_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail("prog", UsageError("what, where, what to do")) == 2
    assert capsys.readouterr().err == "prog: what, where, what to do\n"
