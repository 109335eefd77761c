"""Run the command on the groups of a round, side by side, each with a deadline."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from pyrometer_exporters.commands.bisect.belief import Outcome
from pyrometer_exporters.commands.bisect.plan import Group
from pyrometer_exporters.commands.test.reading import could_not_start
from pyrometer_kit import process_group
from pyrometer_kit.errors import UsageError

# The last lines of nccl-tests, src/common.cu: "# Avg bus bandwidth    : 448.212", in GB/s.
BANDWIDTH = re.compile(r"Avg bus bandwidth\s*:\s*([0-9]+(?:\.[0-9]*)?)")
# sysexits.h, EX_TEMPFAIL: the command says that it has no answer, such as a wrapper whose nodes were not free.
NO_ANSWER = 75
NOT_FOUND = (126, 127)
MOST_OUTPUT_BYTES = 1 << 20


@dataclass
class Runner:
    """Starts commands, and ends all of them when it is closed.

    Attributes:
        command: its words, with ``{hosts}`` for the names of a group and ``{count}`` for their number.
        seconds: a command that takes longer has failed.
        least: bandwidth in GB/s below which a test has failed; None for the exit status alone.
        parallel: the most commands at once.
    """

    command: str
    seconds: float
    least: float | None
    parallel: int
    problems: list[str] = field(default_factory=list)
    """Why tests of the latest :meth:`run` gave no answer."""
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def run(self, groups: Sequence[Group], done: Callable[[Outcome | None], None]) -> None:
        """Test the groups; hand each result to ``done``, None for a test that gave no answer.

        Raises:
            UsageError: The command can't be started.
        """
        self.problems.clear()
        with ThreadPoolExecutor(max_workers=min(self.parallel, len(groups))) as pool:
            waiting = {pool.submit(self._test, group) for group in groups}
            try:
                while waiting:
                    finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for each in finished:
                        done(each.result())
            except BaseException:
                for each in waiting:
                    each.cancel()
                self.close()
                raise

    def close(self) -> None:
        """End whatever still runs; start nothing more."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        process_group.end(running)

    def _test(self, group: Group) -> Outcome | None:
        values = {"{hosts}": ",".join(group), "{count}": str(len(group))}
        words = shlex.split(self.command)
        for mark, value in values.items():
            words = [word.replace(mark, value) for word in words]
        with tempfile.TemporaryFile() as output:
            status = self._status(words, output.fileno())
            if status == NO_ANSWER or self._closed:
                return None
            output.seek(max(0, output.seek(0, os.SEEK_END) - MOST_OUTPUT_BYTES))
            text = output.read().decode(errors="replace")
        # These hosts are not the reason for a command that cannot be run.
        if status in NOT_FOUND:
            self.problems.append(f"--command: {words[0]} exited with {status}: it could not be started")
            return None
        why = could_not_start(text) if status != 0 else ""
        if why or status < 0:
            self.problems.append(f"--command: {why or f'{words[0]} was killed by signal {-status}'}")
            return None
        if status != 0 or self.least is None:
            return Outcome(group, status == 0)
        bandwidths = BANDWIDTH.findall(text)
        if not bandwidths or not float(bandwidths[-1]):
            self.problems.append("--min-bandwidth: the command printed no line 'Avg bus bandwidth', as nccl-tests does")
            return None
        return Outcome(group, float(bandwidths[-1]) >= self.least)

    def _status(self, words: Sequence[str], output: int) -> int:
        """Return the exit status; 1 for a command that was too slow."""
        try:
            with self._lock:
                if self._closed:
                    return NO_ANSWER
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
                self._running.add(process)
        except OSError as error:
            raise UsageError(f"--command: {words[0]}: {error.strerror}") from None
        try:
            return process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            return 1
        finally:
            process_group.end([process])
            with self._lock:
                self._running.discard(process)
