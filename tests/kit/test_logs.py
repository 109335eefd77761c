"""Log lines: one per record, whatever is in them."""

from __future__ import annotations

import json
import logging
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_kit import logs


def record(message: str, *arguments: object, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("pyrometer.x", level, __file__, 1, message, arguments, None)


def test_logfmt() -> None:
    line = logs.Logfmt().format(record("listening on %s", "127.0.0.1:1", level=logging.WARNING))
    fields = dict(part.split("=", 1) for part in shlex.split(line))
    assert fields["level"] == "warn"
    assert fields["source"] == "pyrometer.x"
    assert fields["msg"] == "listening on 127.0.0.1:1"
    assert fields["time"].endswith("Z")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("plain", "msg=plain"), ("two words", 'msg="two words"'), ("", 'msg=""'), ('a"b', r'msg="a\"b"'),
        ("a=b", 'msg="a=b"'), ("a\nb", r'msg="a\nb"'), ("a\rb", r'msg="a\rb"'), ("\x1b[2J", r'msg="\u001b[2J"'),
        ("back\\slash", r'msg="back\\slash"'), ("\U0001f525", "msg=\U0001f525"),
    ],
)  # fmt: skip
def test_logfmt_quotes_what_needs_it(message: str, text: str) -> None:
    assert logs.Logfmt().format(record(message.replace("%", "%%"))).endswith(text)


@given(st.text())
def test_one_record_is_one_line(message: str) -> None:
    for formatter in (logs.Logfmt(), logs.JsonLines()):
        line = formatter.format(record("%s", message))
        assert "\n" not in line
        assert "\r" not in line


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_reads_back(message: str) -> None:
    assert json.loads(logs.JsonLines().format(record("%s", message)))["msg"] == message


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        found = logging.LogRecord("x", logging.ERROR, "", 1, "failed", (), (ValueError, error, error.__traceback__))
    line = logs.Logfmt().format(found)
    assert "\n" not in line
    assert "exception=" in line


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warn", 2), ("error", 1)])
@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_levels(level: str, shown: int, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    try:
        logs.set_up(level, form)
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger("pyrometer.test").log(number, "x")
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)
    assert capsys.readouterr().err.count("\n") == shown
