"""Says at the very end which tests of containers were not run, and why: rows of an `s` look like success."""

from __future__ import annotations

from collections import Counter

import pytest


class NotRun:
    """A plugin of pytest: a session in which nothing was run at all, for want of containers, has not succeeded."""

    def __init__(self) -> None:
        self._why: Counter[str] = Counter()
        self._ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and "compose" in report.keywords and isinstance(report.longrepr, tuple):
            self._why[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.failed or report.when == "call":
            self._ran += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._why and not self._ran:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if self._why:
            what = f"{self._why.total()} tests of containers" if self._ran else "nothing"
            line = f"{what} {'were not' if self._ran else 'was'} run: {'; '.join(sorted(self._why))}"
            config.pluginmanager.getplugin("terminalreporter").write_line(line)
