"""Keep the rounds of a search in a file, so that an interrupted one continues where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from pyrometer_exporters.commands.bisect.belief import Outcome
from pyrometer_exporters.commands.bisect.run import Runner
from pyrometer_exporters.commands.bisect.search import Settings
from pyrometer_kit.errors import UsageError
from pyrometer_kit.statefile import StateFile

VERSION: Final = 1


class Record:
    """The file: the question, the complete rounds, and the tests of the round that runs."""

    def __init__(self, path: Path, settings: Settings, runner: Runner) -> None:
        self._file = StateFile(path.parent, path.name)
        self._path = path
        test = {"command": runner.command, "timeout": runner.seconds, "min-bandwidth": runner.least}
        self._question = {**test, **json.loads(json.dumps(asdict(settings)))}
        self.rounds: list[list[Outcome]] = []
        self.current: list[Outcome] = []

    def load(self) -> None:
        """Read what an earlier call has tested.

        Raises:
            UsageError: The file is of another question, or can't be used.
        """
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
            same = data["version"] == VERSION and data["question"] == self._question
            self.rounds, self.current = [_tests(tests) for tests in data["rounds"]], _tests(data["current"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            raise UsageError(f"--state: {self._path} can't be read; remove it, or give another file") from None
        if not same:
            raise UsageError(f"--state: {self._path} belongs to another search; remove it, or give another file")

    def add(self, test: Outcome) -> None:
        """Keep the result of a test of the round that runs.

        Raises:
            UsageError: The file can't be written.
        """
        self.current.append(test)
        self._save()

    @property
    def written(self) -> str:
        """Return when the file was last written, such as ``2026-03-01 12:00 UTC``.

        Raises:
            OSError: There is no file.
        """
        return f"{datetime.fromtimestamp(self._path.stat().st_mtime, timezone.utc):%Y-%m-%d %H:%M} UTC"

    def drop_round(self) -> None:
        """Forget the tests of the round that runs: they say nothing about hosts.

        Raises:
            UsageError: The file can't be written.
        """
        self.current = []
        self._save()

    def end_round(self) -> Sequence[Outcome]:
        """Close the round and return its tests.

        Raises:
            UsageError: The file can't be written.
        """
        self.rounds.append(self.current)
        self.current = []
        self._save()
        return self.rounds[-1]

    def _save(self) -> None:
        rounds = [[_plain(test) for test in tests] for tests in self.rounds]
        data = {"version": VERSION, "question": self._question, "rounds": rounds,
                "current": [_plain(test) for test in self.current]}  # fmt: skip
        try:
            self._file.save(data)
        except OSError as error:
            raise UsageError(f"--state: can't write {self._path}: {error.strerror}") from None


def _plain(test: Outcome) -> Mapping[str, Any]:
    return {"hosts": list(test.hosts), "passed": test.passed}


def _tests(data: Any) -> list[Outcome]:  # noqa: ANN401  whatever the file holds
    return [Outcome(tuple(str(host) for host in test["hosts"]), bool(test["passed"])) for test in data]
