"""The end of a process: close its runs or leave them as crashed, and detach them in forked children."""

from __future__ import annotations

import atexit
import os
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn, Protocol

    class Closable(Protocol):
        """A run, as far as the end of its process concerns it."""

        disabled: str | None
        awaits_close: bool

        @property
        def identity(self) -> tuple[object, ...]: ...

        def end(self, failure: str = "") -> None: ...
        def abandon(self, reason: str) -> None: ...
        def failed_exit(self) -> str: ...
        def steps_finished(self) -> int: ...


_LONGEST_CHAIN = 8  # of exceptions, each raised while the one before was handled


class ShutdownHandler:
    """Closes runs at a good exit, and detaches them in forked children such as data loader workers."""

    def __init__(self) -> None:
        self.runs: weakref.WeakSet[Closable] = weakref.WeakSet()
        self.failed_exit_steps = -1  # how many steps were finished when sys.exit was called with an error
        self.failed_exit = ""  # that error
        self.good_exit_steps = -1  # the same of sys.exit without an error
        self.finalized_pid = 0  # the child process of multiprocessing whose end is handled
        atexit.register(self.close_all)
        os.register_at_fork(after_in_child=self.detach_all)
        self._watch_exit()

    def add(self, run: Closable) -> None:
        """Close or detach this run from now on."""
        self.runs.add(run)
        util = sys.modules.get("multiprocessing.util")
        parent = getattr(sys.modules.get("multiprocessing.process"), "parent_process", None)
        if util and parent and parent() is not None and self.finalized_pid != os.getpid():
            # A forked child leaves by os._exit, which skips atexit.
            self.finalized_pid = os.getpid()
            util.Finalize(None, self.close_all, exitpriority=0)

    def close_all(self) -> None:
        """Close all runs, or abandon them if the process ends badly."""
        failure = self._failure()
        for run in list(self.runs):
            run.end(failure or ("" if self.exited_well() else run.failed_exit()))

    def detach_all(self) -> None:
        """Abandon all runs in a forked child: they belong to its parent."""
        for run in list(self.runs):
            run.abandon("forked child")

    def _failure(self) -> str:
        """Return how the process ends badly; empty where it ends well."""
        # Ctrl-C is no Exception: whoever pressed it knows. At exit an uncaught one is in last_type; in a child of
        # multiprocessing it is being handled right now.
        for uncaught in (getattr(sys, "last_type", None), sys.exc_info()[0]):
            if isinstance(uncaught, type) and issubclass(uncaught, Exception):
                return exit_of(uncaught, sys.exc_info()[1] or getattr(sys, "last_value", None))
        if child_failed():
            return "exception"
        # If steps followed, somebody caught that SystemExit, as command line parsers and test runners do.
        return self.failed_exit if self.failed_exit_steps == self._steps() else ""

    def exited_well(self) -> bool:
        """Return whether ``sys.exit`` without an error was the last thing that happened."""
        return self.good_exit_steps == self._steps()

    def _watch_exit(self) -> None:
        """Remember the status given to sys.exit, which Python doesn't pass to atexit functions."""
        python_exit = sys.exit

        def watched_exit(status: str | int | None = None, /) -> NoReturn:
            well = status in (None, 0)
            self.good_exit_steps, self.failed_exit_steps = (self._steps(), -1) if well else (-1, self._steps())
            self.failed_exit = exit_status(status)
            python_exit(status)

        sys.exit = watched_exit

    def _steps(self) -> int:
        return sum(run.steps_finished() for run in list(self.runs))


def failure_of(error: BaseException | None) -> str:
    """Return how an exception ends a process; empty where it is no failure, as Ctrl-C or the end of the data."""
    if isinstance(error, SystemExit):
        return "" if error.code in (None, 0) else exit_status(error.code)
    if not isinstance(error, Exception) or isinstance(error, (StopIteration, StopAsyncIteration)):
        return ""
    return exit_of(type(error), error)


def exit_of(kind: type[BaseException] | None, error: BaseException | None = None) -> str:
    """Return how an exception ends a process: ``torch.OutOfMemoryError``, ``exit status 1``, a worker's death."""
    if isinstance(error, SystemExit):
        return exit_status(error.code)
    if kind is None:
        return "exception"
    module = getattr(kind, "__module__", "builtins")
    name = kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    try:
        return worker_end(error, name) or name
    except Exception:  # noqa: BLE001  an exception whose text raises
        return name


def worker_end(error: BaseException | None, name: str) -> str:
    """Return which worker of a data loader ended the process, and how; empty where none did.

    PyTorch has only texts for it (torch/csrc/DataLoader.cpp, torch/utils/data/dataloader.py, torch/_utils.py), and the
    signal in that of the exception before the last.
    """
    import re  # noqa: PLC0415  needed at the end alone

    end = ""
    for _ in range(_LONGEST_CHAIN):
        text = str(error) if isinstance(error, Exception) else ""
        if raised := re.match(r"Caught \w+ in (DataLoader worker process \d+)", text):
            return f"{name} in {raised[1]}"
        died = re.match(
            r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) "
            r"(?:is killed by signal: ([^.]+)|exited unexpectedly(?: with exit code (\d+))?)",
            text,
        )
        if died is None or error is None:
            return end
        end = f"death of DataLoader worker (pid {died[1]})"
        if how := _signal_name(died[2]) if died[2] else died[3] and f"exit status {died[3]}":
            return f"{end} by {how}"
        error = error.__cause__ or error.__context__
    return end


def _signal_name(words: str) -> str:
    """Return the name of a signal, from the words that strsignal(3) has for it."""
    import signal  # noqa: PLC0415  needed at the end alone

    return next((number.name for number in signal.Signals if signal.strsignal(number) == words), words)


def exit_status(status: object) -> str:
    """Return the exit status that ``sys.exit`` makes of its argument: 1 of a text, which it prints."""
    return f"exit status {status if isinstance(status, int) else 1}"


def child_failed() -> bool:
    """Return True while multiprocessing ends a child process whose target has raised.

    Newer releases of Python (Debian 13's 3.13.5 is one) drop the exception before anything of ours runs. Its
    only traces are the exit status, a local variable of the functions that end the child.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  documented, and inspect costs an import
    while frame is not None:
        folder, _, file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")
        function = (file, frame.f_code.co_name) if folder.endswith("multiprocessing") else None
        if function == ("process.py", "_bootstrap"):
            return bool(frame.f_locals.get("exitcode"))
        if function in (("popen_fork.py", "_launch"), ("forkserver.py", "main")):
            return bool(frame.f_locals.get("code"))
        frame = frame.f_back
    return False


_handler: ShutdownHandler | None = None


def close_at_exit(run: Closable) -> bool:
    """Close ``run`` when this process ends well, and detach it in forked children.

    Returns:
        Whether the process had this run already, as where a notebook's cell is run again: that one has ended.
    """
    global _handler  # noqa: PLW0603  one hook per process: os.register_at_fork has no way to unregister
    if _handler is None:
        _handler = ShutdownHandler()
    before = [other for other in list(_handler.runs) if other.identity == run.identity and other.disabled is None]
    for other in before:
        other.end(other.failed_exit())
    _handler.add(run)
    return bool(before)
