"""The one site of all tests of containers."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compose.not_run import NotRun

from pyrometer_simulator.engine.daemon import EngineError
from pyrometer_simulator.engine.site import Site, site
from pyrometer_simulator.stack import StackError

ROOT = Path(__file__).resolve().parents[2]
SCENARIO_SECONDS = 480.0


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NotRun())


@pytest.fixture(scope="session")
def running() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="pym-"))
    with contextlib.ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            found = opened.enter_context(site(ROOT, folder))
        except (EngineError, StackError) as error:
            pytest.skip(f"no containers on this machine: {error}")
        yield found


@pytest.fixture(scope="session")
def played(running: Site) -> dict[str, Any]:
    """The director's exit status and log, once it has played the scenario."""
    status = running.docker.run("wait", running.container("director"), seconds=SCENARIO_SECONDS).strip()
    log = running.compose.run("logs", "--no-log-prefix", "director")
    sys.stdout.write(log)  # shown by pytest where a test fails
    return {"status": int(status), "log": log, "at": time.time()}
