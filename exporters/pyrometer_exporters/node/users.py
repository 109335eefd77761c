"""Names of users by their numbers, which can come from a directory server far away."""

from __future__ import annotations

import pwd
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyrometer_exporters.framework.scheduling import Worker

# Until the server has answered, the number stands for the name.
NAME_SECONDS = 0.1
NAME_KEPT_SECONDS = 3600.0


class Users:
    """Names of users, looked up in a thread that may hang and remembered for an hour."""

    def __init__(
        self,
        procfs: Path,
        monotonic: Callable[[], float] = time.monotonic,
        name_of: Callable[[int], str] | None = None,
    ) -> None:
        self._name_of = name_of or _name_of(procfs)
        self._monotonic = monotonic
        self._names: dict[int, tuple[float, str]] = {}
        self._worker: Worker = Worker("user-names")
        self._lock = threading.Lock()

    def name(self, uid: int) -> str:
        """Return the user's name; the number where it has none, or as long as it isn't known."""
        at, name = self._names.get(uid, (None, str(uid)))
        if at is None or self._monotonic() - at > NAME_KEPT_SECONDS:
            with self._lock:
                pending = self._worker.start(lambda: self._look_up(uid))
            pending.outcome(time.monotonic() + NAME_SECONDS)
            _, name = self._names.get(uid, (None, name))
        return name

    def _look_up(self, uid: int) -> None:
        self._names[uid] = self._monotonic(), self._name_of(uid) or str(uid)


def _name_of(procfs: Path) -> Callable[[int], str]:
    def name(uid: int) -> str:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return ""

    # Processes of another procfs than our own are the host's, seen from a container whose list of users is another.
    return name if procfs == Path("/proc") else lambda _uid: ""
