"""How a run ends, and how its ring shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import Python, ReadRing

import pyrometer

STEPS = """
import sys, pyrometer
run = pyrometer.start("r")
for _ in range(3):
    with run.step():
        pass
"""
WELL = {
    "falling off the end": "",
    "sys.exit()": "sys.exit()",
    "sys.exit(0)": "sys.exit(0)",
    "Ctrl-C": "raise KeyboardInterrupt",
    "a sys.exit(2) that was caught, and steps after it": (
        "try:\n    sys.exit(2)\nexcept SystemExit:\n    pass\nwith run.step():\n    pass\n"
    ),
    "running out of data inside a step": (
        "try:\n    with run.step():\n        next(iter([]))\nexcept StopIteration:\n    pass\n"
    ),
    "a block left with status 0": "with run:\n    sys.exit(0)",
    "an exception that was caught, and steps after it": (
        "try:\n    with run.step():\n        raise ValueError\nexcept ValueError:\n    pass\n"
        "with run.step():\n    pass\n"
    ),
    "an exception that was caught, and a close": (
        "try:\n    with run.step():\n        raise ValueError\nexcept ValueError:\n    pass\nrun.close()\n"
    ),
    "Ctrl-C, and a close on its way out": "try:\n    raise KeyboardInterrupt\nfinally:\n    run.close()\n",
    "a second try, after what ended the first": (
        "try:\n    raise MemoryError\nexcept MemoryError:\n    run.close()\n"
        "    run = pyrometer.start('r', attempt=1)\n    run.tick()\n    run.tick()\n    run.tick()\n    run.tick()\n"
        "    import os; path = run.path; run.close(); [os.unlink(p.path) for p in os.scandir(os.path.dirname(path))"
        " if p.path != path]\n"
    ),
    "sys.exit(0) in a trainer that closes its runs": "run.awaits_close = True\nsys.exit(0)",
    "Ctrl-C in a trainer that closes its runs": "run.awaits_close = True\nraise KeyboardInterrupt",
}
BADLY = {
    "sys.exit(1)": ("sys.exit(1)", "exit status 1"),
    "sys.exit with a message": ("sys.exit('no GPU left')", "exit status 1"),
    "raise SystemExit(3) inside a step": ("with run.step():\n    raise SystemExit(3)", "exit status 3"),
    "an exception": ("raise ValueError('CUDA error')", "ValueError"),
    "an exception of a module": ("import json; json.loads('{')", "json.decoder.JSONDecodeError"),
    "a block left by an exception that is caught": (
        "try:\n    with run:\n        raise ValueError\nexcept ValueError:\n    pass\n",
        "ValueError",
    ),
    "a close on the way out of an exception": (
        "try:\n    with run.step():\n        raise ValueError\nfinally:\n    run.close()\n",
        "ValueError",
    ),
    "a close on the way out of an exception between ticks": (
        "try:\n    run.tick()\n    raise ValueError\nfinally:\n    run.close()\n",
        "ValueError",
    ),
    "an exception out of a step that is caught, and the end": (
        "try:\n    with run.step():\n        raise ValueError\nexcept ValueError:\n    pass\n",
        "ValueError",
    ),
    "a run that is dropped with its function, which has failed": (
        (
            "del run\ndef train():\n    run = pyrometer.start('r', attempt=1)\n    for _ in range(3):\n"
            "        with run.step():\n            pass\n    with run.step():\n        raise ValueError\n"
            "import os; [os.unlink(p.path) for p in os.scandir(os.environ['PYROMETER_RINGS'])]\n"
            "try:\n    train()\nexcept ValueError:\n    pass\n"
        ),
        "ValueError",
    ),
    "a trainer that has not closed its run, and was dropped": ("run.awaits_close = True\ndel run", "exception"),
    "raise SystemExit(1) inside the run's block": ("with run:\n    raise SystemExit(1)", "exit status 1"),
    "os._exit(0)": ("import os; os._exit(0)", "signal or os._exit"),
    "SIGTERM": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "signal or os._exit"),
    "a data loader's worker that was killed (torch/csrc/DataLoader.cpp, torch/utils/data/dataloader.py)": (
        (
            "try:\n    raise RuntimeError('DataLoader worker (pid 4711) is killed by signal: Bus error. It is')\n"
            "except RuntimeError as error:\n"
            "    raise RuntimeError('DataLoader worker (pid(s) 4711) exited unexpectedly') from error\n"
        ),
        "death of DataLoader worker (pid 4711) by SIGBUS",
    ),
    "a data loader's worker that left": (
        "raise RuntimeError('DataLoader worker (pid 7) exited unexpectedly with exit code 1. Details are lost')",
        "death of DataLoader worker (pid 7) by exit status 1",
    ),
    "data loader's workers of which no more is known": (
        (
            "import queue\ntry:\n    raise queue.Empty\nexcept queue.Empty as error:\n"
            "    raise RuntimeError('DataLoader worker (pid(s) 7, 8) exited unexpectedly') from error\n"
        ),
        "death of DataLoader worker (pid 7, 8)",
    ),
    "a data loader's worker that raised (torch/_utils.py)": (
        "raise ValueError('Caught ValueError in DataLoader worker process 2.\\nOriginal Traceback')",
        "ValueError in DataLoader worker process 2",
    ),
    "an exception whose text raises": (
        "class Bad(Exception):\n    def __str__(self):\n        raise ValueError\nraise Bad",
        "Bad",
    ),
    "an exception of a very long name": (f"raise type({'X' * 99!r}, (Exception,), dict())", "X" * 64),
}


def ended(python: Python, rings: str, seen: ReadRing, script: str) -> Any:
    python(script)
    (path,) = Path(rings).iterdir()
    found = seen(path)
    assert not found.alive
    assert found.header.count >= 3
    return found.header


@pytest.mark.parametrize("how", WELL)
def test_good_ends(python: Python, rings: str, seen: ReadRing, how: str) -> None:
    assert ended(python, rings, seen, STEPS + WELL[how]).closed


@pytest.mark.parametrize("how", BADLY)
def test_bad_ends(python: Python, rings: str, seen: ReadRing, how: str) -> None:
    script, words = BADLY[how]
    assert not ended(python, rings, seen, STEPS + script).closed
    (path,) = Path(rings).iterdir()
    assert seen(path).last_words == words


def test_the_exit_status_of_the_job_stays_its_own(python: Python) -> None:
    assert python(STEPS + "sys.exit(7)").returncode == 7
    done = python(STEPS + "sys.exit('no GPU left')")
    assert (done.returncode, done.stderr) == (1, "no GPU left\n")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("end", ["", "raise ValueError", "kept.append(run); raise ValueError", "del run"])
def test_ranks_that_are_children_of_multiprocessing(
    method: str, end: str, tmp_path: Path, rings: str, seen: ReadRing
) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import multiprocessing, sys, pyrometer\n"
        "kept = []\n"
        "def work():\n"
        "    run = pyrometer.start('r')\n"
        "    for _ in range(3):\n"
        "        with run.step():\n"
        "            pass\n"
        f"    {end}\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)\n"
        "    child.start()\n"
        "    child.join()\n"
    )
    environment = {"PYROMETER_RINGS": rings, "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, str(script), method], timeout=60, env=environment, check=True, capture_output=True)
    (path,) = Path(rings).iterdir()
    assert seen(path).header.closed == ("raise" not in end)


def test_a_block_closes_its_run(rings: str, seen: ReadRing) -> None:
    with pyrometer.start("r", rings=rings) as run, run.step():
        pass
    found = seen(run.path)
    assert found.header.closed
    assert run.disabled == "closed"


def test_a_run_that_starts_again_in_its_process_replaces_the_one_before(
    rings: str, seen: ReadRing, capfd: pytest.CaptureFixture[str]
) -> None:
    """As where a notebook's cell is run again: both would count every step."""
    first = pyrometer.auto("r", rings=rings)
    path = first.path
    second, other = pyrometer.auto("r", rings=rings), pyrometer.auto("other", rings=rings)
    assert (first.disabled, second.disabled, other.disabled) == ("closed", None, None)
    assert seen(path).header.closed
    assert "run r starts again in this process" in capfd.readouterr().err
