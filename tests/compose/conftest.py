"""Makes this folder's modules importable as `compose_*` (the tests have no packages); the one site of all tests."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator.engine.daemon import EngineError
from pyrometer_simulator.engine.site import Site, site
from pyrometer_simulator.stack import StackError

ROOT = Path(__file__).resolve().parents[2]
SCENARIO_SECONDS = 480.0


def _load(name: str, file: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


_load("compose_containers", "containers.py")
_load("compose_api_server", "api_server.py")
_not_run = _load("compose_not_run", "not_run.py")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_not_run.NotRun())


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
