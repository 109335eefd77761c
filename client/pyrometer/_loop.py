"""What the hooks of training frameworks share: steps that begin in one call and end in another."""

from __future__ import annotations

from pyrometer._run import Run, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def harmless(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook that never raises into the framework that calls it."""

    def safe(*arguments: Any, **named: Any) -> None:
        try:
            hook(*arguments, **named)
        except Exception:  # noqa: BLE001  the promise of the client; a later version of the framework, perhaps
            pass

    # By hand: functools would be the slowest part of `import pyrometer`.
    safe.__name__, safe.__doc__ = hook.__name__, hook.__doc__
    return safe


class Loop:
    """The run of a framework's loop, with at most one step and one part open.

    A step begins where the one before ended, so that it has the loading of its data in it.
    """

    def __init__(self, given: dict[str, Any], found: dict[str, Any]) -> None:
        """``given`` by the user goes before what was ``found`` in the framework."""
        self.run: Run = start(**{**found, **given})
        self.in_step = False
        self._part: Any = None

    def begin(self, part: str = "") -> None:
        """A step begins, if none is open, in a part of it."""
        if not self.in_step:
            self.in_step = True
            self.run.step().__enter__()
        if part:
            self.enter(part)

    def end(self) -> None:
        """The open step ends."""
        self.leave()
        if self.in_step:
            self.in_step = False
            self.run.step().__exit__(None, None, None)

    def drop(self) -> None:
        """What was open was no step: an epoch ended, or an evaluation begins."""
        self.leave()
        if self.in_step:
            self.in_step = False
            self.run.step().leave_out()

    def enter(self, part: str) -> None:
        """A part begins, and another that was open ends."""
        self.leave()
        self._part = self.run.part(part)
        self._part.__enter__()

    def leave(self) -> None:
        """The open part ends."""
        part, self._part = self._part, None
        if part is not None:
            part.__exit__(None, None, None)
