"""The demo as a process: whatever ends it, it ends what it started."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.ports import free_port

SCRIPT = """
import contextlib, sys, time
from functools import partial
from pathlib import Path
from pyrometer_simulator.demo import main
from pyrometer_simulator.demo.processes import Processes

def run(flags):
    folder = Path(sys.argv[1])
    with contextlib.ExitStack() as opened:
        opened.push(partial(main._clear, folder))
        processes = opened.enter_context(Processes(folder))
        opened.callback(main._ignore_signals)
        # Slow to end, so that the second signal comes while it is waited for.
        child = "import signal, time; slow = lambda *_: (print('ends', flush=True), time.sleep(1), exit())"
        child += "; signal.signal(15, slow); print('runs', flush=True); time.sleep(60)"
        pids = [processes.start(str(n), [sys.executable, "-c", child]).pid for n in range(2)]
        while not all((folder / f"{n}.log").read_text() for n in range(2)):
            time.sleep(0.01)
        print(*pids, flush=True)
        time.sleep(60)

main._run = run
sys.exit(main.main([]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_two_signals_end_everything(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        pids = [int(pid) for pid in demo.stdout.readline().split()]
        demo.send_signal(number)
        deadline = time.monotonic() + 20
        while "ends" not in (folder / "0.log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        demo.send_signal(number)
        assert demo.wait(10) == 130
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not folder.exists()


def test_a_report_that_cannot_be_written_is_said_before_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    from pyrometer_simulator.demo import main

    assert main.main(["--report=/nonexistent/x"]) == 2
    assert capsys.readouterr().err == "pyrometer-demo: --report=/nonexistent/x: No such file or directory\n"


def test_a_port_that_is_taken_after_it_was_tried_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyrometer_simulator.demo import main

    def run(_: object) -> int:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(main, "_run", run)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main.main([]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "pyrometer-demo: another program took a port while the demo was starting: run it again"
    ]


def test_logs_that_an_error_names_are_kept(tmp_path: Path) -> None:
    from pyrometer_simulator.demo import main

    with Processes(tmp_path) as processes:
        processes.start("prometheus", [sys.executable, "-c", "print('no disk'); exit(3)"]).wait(20)
        with pytest.raises(DemoError, match="status 3: no disk") as caught:
            processes.wait_until_ready({"prometheus": f"http://127.0.0.1:{free_port()}/"})
    main._clear(tmp_path, caught.type, None, None)
    assert (tmp_path / "prometheus.log").exists()
