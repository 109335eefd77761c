"""Every reader of outside data keeps its promises on its kept inputs: seeds, the corpus, what a fuzzer once found."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyrometer_simulator.fuzz.catalogue import CORPUS, corpus_of, keep, targets
from pyrometer_simulator.fuzz.target import TracebackFound, forbid_tracebacks

FOUND = CORPUS.parent / "found"
TARGETS = targets()


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("name", TARGETS)
def test_no_kept_input_breaks_a_promise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = TARGETS[name]
    kept = [*target.seeds, *corpus_of(name), *corpus_of(name, FOUND)]
    assert len(kept) > len(target.seeds)
    with ExitStack() as at_end:
        check = target.build(tmp_path, at_end)
        forbid_tracebacks()
        for data in (*kept, b"", b"\x00", b"\xff" * 64):
            check(data)


def test_every_corpus_belongs_to_a_target() -> None:
    names = {path.stem for folder in (CORPUS, FOUND) for path in folder.iterdir()}
    assert names <= set(TARGETS)


def test_a_corpus_is_kept_as_it_is_and_sorted(tmp_path: Path) -> None:
    inputs = [b"\xff\x00\n", b"a", b"a", bytes(range(256))]
    keep("any", inputs, tmp_path)
    assert corpus_of("any", tmp_path) == [b"a", b"\xff\x00\n", bytes(range(256))]
    assert all(isinstance(json.loads(line), str) for line in (tmp_path / "any.jsonl").read_text().splitlines())


def test_a_traceback_in_the_log_is_a_finding() -> None:
    forbid_tracebacks()
    try:
        raise ValueError("bad input")
    except ValueError:
        with pytest.raises(TracebackFound):
            logging.getLogger("pyrometer_kit").exception("failed")
    logging.getLogger("pyrometer_kit").error("one line is no finding")
