"""The loop of a training framework, as its callbacks see it: steps that begin in one call and end in another."""

from __future__ import annotations

from pyrometer._start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pyrometer._run import Run
    from pyrometer._settings import RunSettings
    from pyrometer._step import Part


class TrainerLoop:
    """The run of a framework's loop, with at most one step and one part open.

    A step begins where the last one ended, so that it includes the loading of its data.
    """

    def __init__(
        self, settings: RunSettings | dict[str, Any], defaults: dict[str, Any], *, tells_end: bool = False
    ) -> None:
        """Start the run with the user's ``settings``, which override the ``defaults`` read from the framework.

        Args:
            settings: The user's.
            defaults: The framework's.
            tells_end: Whether the framework has a call for the good end of training, and none for a bad one.
        """
        self.run: Run = start(**{**defaults, **settings})
        self.run.awaits_close = tells_end
        self.in_step = False
        self._part: Part | None = None

    def begin(self, part: str = "") -> None:
        """Begin a step unless one is open, and enter ``part`` of it if given."""
        if not self.in_step:
            self.in_step = True
            self.run.step().__enter__()
        if part:
            self.enter(part)

    def end(self) -> None:
        """End the open step."""
        self.leave()
        if self.in_step:
            self.in_step = False
            self.run.step().__exit__(None, None, None)

    def discard(self) -> None:
        """Drop the open step, which was none: an epoch ended, or an evaluation begins."""
        self.leave()
        if self.in_step:
            self.in_step = False
            self.run.step().discard()

    def enter(self, part: str) -> None:
        """Enter a part, and leave the one that was open."""
        self.leave()
        self._part = self.run.part(part)
        self._part.__enter__()

    def leave(self) -> None:
        """Leave the open part."""
        part, self._part = self._part, None
        if part is not None:
            part.__exit__(None, None, None)
