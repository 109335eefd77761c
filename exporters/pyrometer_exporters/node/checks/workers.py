"""Run checks in child processes, so that one that hangs costs itself alone, and can be left behind.

A read of a dead mount or a sick driver can enter state D, which no signal ends: a thread would keep this process from
ending, and with it Slurm's prolog. So each worker is a child process, which writes a line before and after each of its
checks. A check that is silent past its deadline has failed for that reason; its child is killed, or left behind in
state D, and another child does the worker's other checks::

    parent                      worker "mounts"
    ------                      -------------
    fork                 --->   > filesystem_full
                         <---   filesystem_full: ok
                                > network_mounts .........     (hangs)
    3 s later: network_mounts failed, kill
    fork                 --->   > shared_memory
                         <---   shared_memory: ok

Those left behind are few: a worker gives up after three, and a check whose child of an earlier run still hangs is not
asked again: its process is found by its name, ``pyck:network_mo``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_exporters.node.checks.check import Check, Verdict, failed, unknown
from pyrometer_exporters.node.checks.node import Node
from pyrometer_exporters.node.checks.processes import read_processes

DEADLINE_SECONDS: Final = 4.0
"""How long a check may take. The checks that ask many parts (GPUs, mounts) give each of them three seconds."""
MOST_HUNG: Final = 3
MARK: Final = "pyck:"
_PROC: Final = Path("/proc")
_NAME_BYTES: Final = 15  # TASK_COMM_LEN without its end
# A child of a run that is under way is younger.
ABANDONED_SECONDS: Final = 30.0


class Answer(NamedTuple):
    """A verdict, and how long it took in seconds."""

    verdict: Verdict
    seconds: float


def answer_of(check: Check, node: Node) -> Answer:
    """Run a check in this process. Never raises."""
    began = time.monotonic()
    try:
        verdict = check.run(node)
    except Exception as error:  # noqa: BLE001  whatever a check raises costs that check alone
        verdict = unknown(f"{reason_of(error)}: {error}")
    return Answer(verdict, time.monotonic() - began)


def run_here(checks: Sequence[Check], node: Node) -> dict[str, Answer]:
    """Run checks in this process, one after the other: where nothing can hang, and in tests."""
    return {check.name: answer_of(check, node) for check in checks}


def run_in_workers(checks: Sequence[Check], node: Node, deadline: float = DEADLINE_SECONDS) -> dict[str, Answer]:
    """Run checks in a child process for each worker; ``deadline`` is each check's, in seconds.

    For a program of one thread only: it forks.
    """
    hung = _left_behind(node)
    answers: dict[str, Answer] = {}
    todo = []
    for check in checks:
        since = hung.get(_child_name(check.name))
        if since is None:
            todo.append(check)
        else:
            reason = f"an earlier look has hung for {since:.0f} s and was not repeated"
            answers[check.name] = Answer(failed(reason), 0.0)
    workers = [
        _Worker([c for c in todo if c.worker == worker], node, deadline) for worker in {c.worker: None for c in todo}
    ]
    while any(worker.busy for worker in workers):
        busy = [worker for worker in workers if worker.busy]
        wait = max(0.0, min(worker.due for worker in busy) - time.monotonic())
        ready = _readable([worker.pipe for worker in busy], wait)
        for worker in busy:
            worker.look(readable=worker.pipe in ready)
    for worker in workers:
        answers.update(worker.answers)
    return {check.name: answers[check.name] for check in checks}


def _readable(descriptors: Sequence[int], seconds: float) -> set[int]:
    """Wait for the first that can be read; with poll, as select takes no descriptor above 1,023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(1000 * seconds))}


@dataclass
class _Worker:
    """A worker and its present child."""

    todo: list[Check]
    node: Node
    deadline: float
    answers: dict[str, Answer] = field(default_factory=dict)
    hung: int = 0
    pipe: int = -1
    pid: int = 0
    due: float = 0.0
    unread: bytes = b""

    def __post_init__(self) -> None:
        self._start()

    @property
    def busy(self) -> bool:
        return self.pipe >= 0

    def look(self, *, readable: bool) -> None:
        """Take what the child has written; continue without it where it is late."""
        if readable:
            data = os.read(self.pipe, 65536)
            self._take(data)
            if not data or not self.todo:
                self._end(died=not data)
        elif time.monotonic() >= self.due:
            self._give_up(failed(f"no answer in {self.deadline:.0f} s: it hangs"), hung=True)

    def _start(self) -> None:
        if not self.todo:
            return
        ours, theirs = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(ours)
            _work(self.todo, self.node, theirs)
        os.close(theirs)
        self.pipe, self.unread, self.due = ours, b"", time.monotonic() + self.deadline

    def _take(self, data: bytes) -> None:
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            verdict, seconds = json.loads(line)
            self.answers[self.todo.pop(0).name] = Answer(Verdict(*verdict), seconds)
            self.due = time.monotonic() + self.deadline

    def _end(self, *, died: bool) -> None:
        if died and self.todo:  # the driver's library crashed, or memory was short
            self._give_up(unknown("its process exited without an answer"), hung=False)
            return
        self._leave(kill=False)

    def _give_up(self, verdict: Verdict, *, hung: bool) -> None:
        self._leave(kill=True)
        self.answers[self.todo.pop(0).name] = Answer(verdict, self.deadline if hung else 0.0)
        self.hung += 1
        if self.hung == MOST_HUNG:
            for check in self.todo:
                self.answers[check.name] = Answer(unknown(f"not run: {MOST_HUNG} earlier checks hang"), 0.0)
            self.todo = []
        self._start()

    def _leave(self, *, kill: bool) -> None:
        os.close(self.pipe)
        self.pipe = -1
        if kill:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        # One that has answered ends on its own; one in state D is not waited for: init does that.
        until = time.monotonic() + 0.2
        while not _reaped(self.pid) and time.monotonic() < until:
            time.sleep(0.002)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _work(checks: Sequence[Check], node: Node, pipe: int) -> None:
    """Be the child: run the checks, write a line for each, and end without any clean-up that could hang."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for check in checks:
            _call_oneself(_child_name(check.name))
            verdict, seconds = answer_of(check, node)
            line = json.dumps([verdict._replace(facts=dict(verdict.facts)), round(seconds, 4)])
            _write(pipe, f"{line}\n".encode())
    finally:
        os._exit(0)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def _child_name(check: str) -> str:
    return f"{MARK}{check}"[:_NAME_BYTES]


def _call_oneself(name: str) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")


def _left_behind(node: Node) -> Mapping[str, float]:
    """Return this user's children of earlier runs that still hang, by name, with their age in seconds."""
    try:
        # Read before the workers begin, so that they have it too.
        processes = node.processes
        real = processes if node.paths.procfs == _PROC else read_processes(_PROC)
    except OSError:
        return {}
    workers = [
        process for process in real if process.name.startswith(MARK) and process.state != "Z" and _is_ours(process.pid)
    ]
    now, ticks = time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK")
    ages = {process.name: now - process.started / ticks for process in workers}
    return {name: age for name, age in ages.items() if age > ABANDONED_SECONDS}


def _is_ours(pid: int) -> bool:
    """Return whether this is our child by user and program: a link gives a set-uid program of root's any name."""
    try:
        program, ours = os.stat(f"/proc/{pid}/exe"), os.stat("/proc/self/exe")  # noqa: PTH116
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid() and os.path.samestat(program, ours)  # noqa: PTH116
    except OSError:
        return False
