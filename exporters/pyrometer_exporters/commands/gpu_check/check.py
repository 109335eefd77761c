"""Checks, their results, and raw data: each line is on disk once it is known, so an experiment that dies loses none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyrometer_exporters.commands.gpu_check.place import Place

RESULTS, RAW = "results.jsonl", "raw.jsonl"


class Check(NamedTuple):
    """Something that an experiment measures: its short name, what it is, and what is expected of it."""

    name: str
    what: str
    expected: str


@dataclass(frozen=True)
class Result:
    """A check's outcome; ``passed`` is None where it was not measured, and ``note`` has the reason."""

    experiment: str
    check: str
    measured: str
    passed: bool | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in one word or two."""
        return {True: "pass", False: "FAIL", None: "not measured"}[self.passed]


@dataclass(frozen=True)
class Experiment:
    """One lettered experiment: its checks, the longest that it may take on a GPU, and the function that runs it."""

    letter: str
    title: str
    seconds: float
    checks: tuple[Check, ...]
    run: Callable[[Place, Report], None]


class Report:
    """Writes the results and raw data of one experiment; may be used from several threads."""

    def __init__(self, folder: Path, experiment: Experiment) -> None:
        self._folder = folder
        self._experiment = experiment
        self._names = {check.name for check in experiment.checks}

    def passed(self, check: str, measured: str, *, ok: bool, note: str = "") -> None:
        """Record a check that was measured."""
        self._write(Result(self._experiment.letter, check, measured, bool(ok), note))

    def skipped(self, check: str, reason: str) -> None:
        """Record why a check was not measured."""
        self._write(Result(self._experiment.letter, check, "", None, reason))

    def skipped_rest(self, reason: str) -> None:
        """Record the same reason for all checks that have no result yet."""
        done = {result.check for result in results(self._folder) if result.experiment == self._experiment.letter}
        for check in self._experiment.checks:
            if check.name not in done:
                self.skipped(check.name, reason)

    def raw(self, name: str, data: Any) -> None:  # noqa: ANN401  whatever JSON can hold
        """Keep raw data under a name."""
        append(self._folder / RAW, {"experiment": self._experiment.letter, "name": name, "data": data})

    def _write(self, result: Result) -> None:
        if result.check not in self._names:
            msg = f"experiment {self._experiment.letter} has no check {result.check!r}"
            raise KeyError(msg)
        append(self._folder / RESULTS, vars(result))


def append(path: Path, line: object) -> None:
    """Append one JSON line in one write, so that lines of several processes don't mix."""
    data = json.dumps(line, default=str).encode() + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Return the lines of a file of JSON lines; a torn last one is left out."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def results(folder: Path) -> list[Result]:
    """Return the results in a folder, the latest of each check, in the order in which they came first."""
    latest = {}
    for line in lines(folder / RESULTS):
        if "check" in line:
            latest[line["experiment"], line["check"]] = Result(**line)
    return list(latest.values())


def machine(folder: Path) -> dict[str, Any]:
    """Return the description of the machine; empty where there is none."""
    return next((line["machine"] for line in lines(folder / RESULTS) if "machine" in line), {})
