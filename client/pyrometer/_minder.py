"""What becomes of the runs when their process ends or forks."""

from __future__ import annotations

import atexit
import os
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from pyrometer._run import Run


class Minder:
    """Closes runs at exit, if it is a good one, and cuts them off in forked children, such as data loader workers."""

    def __init__(self) -> None:
        self.runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self.exit_at = -1  # how many steps were finished when sys.exit was called with an error
        self.exits_in = 0  # the child process of multiprocessing whose end has been arranged for
        atexit.register(self.end_all)
        os.register_at_fork(after_in_child=self.cut_all)
        self._watch_exit()

    def mind(self, run: Run) -> None:
        """Take care of a run."""
        self.runs.add(run)
        util = sys.modules.get("multiprocessing.util")
        parent = getattr(sys.modules.get("multiprocessing.process"), "parent_process", None)
        if util and parent and parent() is not None and self.exits_in != os.getpid():
            # A child that was forked leaves by os._exit, past atexit.
            self.exits_in = os.getpid()
            util.Finalize(None, self.end_all, exitpriority=0)

    def end_all(self) -> None:
        """The process ends: well, or in a way that shall look like a crash."""
        bad = self._ends_badly()
        for run in list(self.runs):
            if bad or run.left_badly():
                run.abandon("crashed")
            elif run.disabled is None:
                run.close()

    def cut_all(self) -> None:
        """This is a forked child: the runs are its parent's."""
        for run in list(self.runs):
            run.abandon("forked child")

    def _ends_badly(self) -> bool:
        # Ctrl-C is no Exception: whoever pressed it knows. At exit an uncaught one is in last_type; in a child of
        # multiprocessing it is being handled right now.
        for uncaught in (getattr(sys, "last_type", None), sys.exc_info()[0]):
            if isinstance(uncaught, type) and issubclass(uncaught, Exception):
                return True
        # If steps followed, somebody caught that SystemExit, as command line parsers and test runners do.
        return self.exit_at == self._steps()

    def _watch_exit(self) -> None:
        """Remember the status given to sys.exit: at exit Python doesn't tell it."""
        leave = sys.exit

        def watched_exit(status: str | int | None = None, /) -> NoReturn:
            self.exit_at = -1 if status in (None, 0) else self._steps()
            leave(status)

        sys.exit = watched_exit

    def _steps(self) -> int:
        return sum(run.steps_finished() for run in list(self.runs))


_minder: Minder | None = None


def mind(run: Run) -> None:
    """Take care of a run from now on."""
    global _minder  # noqa: PLW0603  one hook per process: os.register_at_fork has no way to unregister
    if _minder is None:
        _minder = Minder()
    _minder.mind(run)
