"""The demo's programs: started, watched, ended; and only those."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.ports import free_port

SERVE = (
    "import http.server as h, sys; "
    "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
)
STUBBORN = (
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def test_a_program_that_ends_by_itself_is_named_with_its_last_line(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("short", [sys.executable, "-c", "print('first'); print('no port'); raise SystemExit(3)"]).wait()
        with pytest.raises(DemoError, match=r"short ended with status 3: no port"):
            processes.check()


def test_a_dispensable_program_that_ends_is_named_only_while_it_is_waited_for(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("short", [sys.executable, "-c", "raise SystemExit(3)"], dispensable=True).wait()
        processes.check()
        with pytest.raises(DemoError, match=r"short ended with status 3"):
            processes.wait_until_ready({"short": f"http://127.0.0.1:{free_port()}/"})


def test_waiting_has_an_end(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("silent", [sys.executable, "-c", "import time; time.sleep(60)"])
        with pytest.raises(DemoError, match="silent did not answer within 0 s"):
            processes.wait_until_ready({"silent": f"http://127.0.0.1:{free_port()}/"}, seconds=0.2)


def test_leaving_ends_all_programs_the_stubborn_ones_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrometer_simulator.demo.processes.END_SECONDS", 0.3)
    with Processes(tmp_path) as processes:
        meek = processes.start("meek", [sys.executable, "-c", "import time; time.sleep(60)"])
        stubborn = processes.start("stubborn", [sys.executable, "-c", STUBBORN])
        while "ready" not in (tmp_path / "stubborn.log").read_text():
            time.sleep(0.02)
    assert meek.returncode is not None
    assert stubborn.returncode == -9
    for process in (meek, stubborn):
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
