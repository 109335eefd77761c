"""Children of multiprocessing import the job's script again, with a ``start`` at its top: helpers are no ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import ReadRing

from pyrometer import _children, _start

TOP = """
import multiprocessing, os, sys, time, pyrometer
from concurrent.futures import ProcessPoolExecutor
run = pyrometer.start("r")
context = multiprocessing.get_context(sys.argv[1])
def work(number):
    return number
def train(rank):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    for _ in range(3):
        with run.step(), run.part("mine"):
            run.record(accuracy=0.5)
def fail(rank):
    train(rank)
    raise ValueError
"""
HELPERS = {
    "pool": "with context.Pool(2) as pool: assert pool.map(work, range(8)) == list(range(8))",
    "executor": "with ProcessPoolExecutor(2, context) as pool: assert list(pool.map(work, range(8))) == list(range(8))",
    "process": "child = context.Process(target=work, args=(1,)); child.start(); child.join()",
    "manager": "with context.Manager() as manager: assert list(manager.list([1])) == [1]",
}


def rings_of(script: Path, method: str, rings: str, body: str) -> list[Path]:
    script.write_text(f"{TOP}if __name__ == '__main__':\n    {body}\n")
    environment = {"PYROMETER_RINGS": rings, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), method],
        capture_output=True, text=True, timeout=60, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(Path(rings).glob("*.ring"))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("helper", HELPERS)
def test_a_helper_makes_no_ring(helper: str, method: str, tmp_path: Path, rings: str, seen: ReadRing) -> None:
    body = f"{HELPERS[helper]}\n    with run.step(): pass\n    run.close()"
    (path,) = rings_of(tmp_path / "job.py", method, rings, body)
    assert (seen(path).header.count, seen(path).header.closed) == (1, True)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("target", ["train", "fail"])
def test_a_child_that_trains_is_a_rank_from_its_first_step_on(
    target: str, method: str, tmp_path: Path, rings: str, seen: ReadRing
) -> None:
    closed = target == "train"
    body = (
        f"children = [context.Process(target={target}, args=(rank,)) for rank in (0, 1)]\n"
        "    [child.start() for child in children]; [child.join() for child in children]"
    )
    found = [seen(path) for path in rings_of(tmp_path / "job.py", method, rings, body)]
    parent = [ring for ring in found if not ring.header.count]
    ranks = [ring for ring in found if ring.header.count]
    assert [(ring.meta.rank, ring.header.count, ring.header.closed) for ring in ranks] == [
        ("0", 3, closed), ("1", 3, closed),
    ]  # fmt: skip
    assert [ring.meta.world_size for ring in (*parent, *ranks)] == [1, 2, 2]
    assert len({ring.meta.launcher for ring in ranks} - {ring.meta.launcher for ring in parent}) == 1


class Module:
    """``multiprocessing.process``, as far as it is asked."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def current_process(self) -> object:
        return object()

    def parent_process(self) -> Any:
        return type("Parent", (), {"pid": self._parent})() if self._parent else None


@pytest.mark.parametrize(
    ("parent", "distributed", "settings", "known"),
    [
        (4711, True, {}, False),  # torch.multiprocessing.spawn before init_process_group: which rank?
        (4711, True, {"rank": 3}, True),
        (4711, False, {}, True),  # nobody will make a process group
        (0, True, {}, True),
    ],
)
def test_a_child_that_has_no_number_yet_waits_for_its_first_step(
    parent: int, distributed: bool, settings: Any, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "multiprocessing.process", Module(parent))  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    if distributed:
        monkeypatch.setitem(sys.modules, "torch.distributed", object())  # type: ignore[arg-type]
    assert _start._is_known_to_train(settings) is known
    assert _children.parent_process() == parent
