"""The loop of a training framework, as its callbacks see it: steps that begin in one call and end in another."""

from __future__ import annotations

from pyrometer._hooks import never_raises
from pyrometer._start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
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
        merged: dict[str, Any] = {**defaults, **settings}
        self.run: Run = start(**merged)
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


class TrainerHooks:
    """The part of a callback that is alike for all trainers: its settings, and the loop while training.

    Attributes:
        loop: None before training, and where it has ended.
    """

    remake: Callable[..., Any]

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.loop: TrainerLoop | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a callback with the same settings and no run: Ray and spawn send it to where training is."""
        return _remade, (self.remake, self.settings)

    def started_loop(self) -> TrainerLoop:
        """Return the loop.

        Raises:
            RuntimeError: training has not begun, or has ended.
        """
        if self.loop is None:
            raise RuntimeError("training has not begun, or has ended")
        return self.loop

    @never_raises
    def begin_step(self, *_: Any, **__: Any) -> None:
        """Leave part ``data``: the batch is loaded."""
        loop = self.started_loop()
        loop.begin()
        loop.leave()

    @never_raises
    def leave_part(self, *_: Any, **__: Any) -> None:
        """Leave the open part."""
        self.started_loop().leave()

    @never_raises
    def close_run(self, *_: Any, **__: Any) -> None:
        """Close the run: it has ended well."""
        loop, self.loop = self.started_loop(), None
        loop.discard()
        loop.run.close()


def enters(part: str) -> Callable[..., None]:
    """Return a hook that enters a part of the step."""

    @never_raises
    def enter_part(self: TrainerHooks, *_: Any, **__: Any) -> None:
        self.started_loop().enter(part)

    return enter_part


def callback_of(hooks: type[TrainerHooks], base: type[Any], callback: Callable[..., Any], settings: RunSettings) -> Any:
    """Return a callback with these hooks, which the trainer takes for one of its ``base``; ``callback`` makes it."""
    return type("PyrometerCallback", (hooks, base), {"remake": staticmethod(callback)})(settings)


def _remade(callback: Callable[..., Any], settings: RunSettings) -> Any:
    return callback(**settings)
