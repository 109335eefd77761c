"""Promtool's objections to rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.stack.promtool import objections


@pytest.fixture
def promtool(tmp_path: Path) -> Path:
    """In its place: says what it is given and how seldom it is to collect garbage; ends with its first argument."""
    program = tmp_path / "promtool"
    program.write_text('#!/bin/sh\n[ "$2" = silent ] || echo "$@ at $GOGC"\nexit $1\n')
    program.chmod(0o755)
    return program


def test_what_promtool_refuses_is_told_and_what_it_takes_is_not(promtool: Path) -> None:
    assert objections(promtool, "1", "rules") == "1 rules at 400\n"
    assert objections(promtool, "0", "rules") == ""


def test_a_promtool_that_fails_without_a_word_is_no_success(promtool: Path) -> None:
    assert objections(promtool, "3", "silent") == "status 3"


def test_how_often_garbage_is_collected_can_be_set(promtool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOGC", "50")
    assert objections(promtool, "1").endswith(" at 50\n")
