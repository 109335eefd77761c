"""Report the steps of a JAX loop (plain, Flax, MaxText), with Orbax's checkpoints, by wrapping the step function.

    import pyrometer.jax

    train_step = pyrometer.jax.watch(jax.jit(train_step), run="llama-8b", loss=lambda out: out[1]["loss"])

It never raises into the loop, never waits for a device, and never imports JAX itself.
"""

from __future__ import annotations

import sys

from pyrometer._hooks import never_raises, subscribers_of, when_imported, wrap_save
from pyrometer._start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Unpack

    from pyrometer._run import Run
    from pyrometer._settings import RunSettings
    from pyrometer._step import Part

_ORBAX = "orbax.checkpoint"


def watch(
    function: Callable[..., Any], *, loss: Callable[[Any], Any] | None = None, **settings: Unpack[RunSettings]
) -> Callable[..., Any]:
    """Return ``function`` with every call reported as a step, from one call's return to the next's. Never raises.

    The run begins when the first call returns, which compiles. JAX returns before the device is done, so the run's
    times are ``launch``: means from one wait for the device to the next. A loss is recorded at a later step, once the
    device has it. Where a process has several devices, tokens and FLOPs are left out, as they are shared by process.

    Args:
        function: The step function, usually compiled.
        loss: Returns the loss, given what the function returned.
        settings: Those of :func:`pyrometer.start`; rank and size default to JAX's.
    """
    steps = _Steps(settings, loss)

    def step(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        steps.end(result)
        return result

    step.__wrapped__ = function  # type: ignore[attr-defined]  # for lower() and the like
    return step


class _Steps:
    """Counts the calls of one step function."""

    def __init__(self, settings: RunSettings, loss: Callable[[Any], Any] | None) -> None:
        self.run: Run | None = None
        self._settings = settings
        self._loss = loss
        self._late: Any = None

    @never_raises
    def end(self, result: Any) -> None:
        """End a step; the first call begins the run."""
        run = self.run
        if run is None:
            run = self.run = self._begin()
        elif self._loss is not None:
            self._record(run, self._loss(result))
        run.tick()

    def _begin(self) -> Run:
        jax = sys.modules["jax"]
        device = jax.local_devices()[0]
        settings = {
            "rank": jax.process_index(),
            "local_rank": getattr(device, "local_hardware_id", None) or 0,
            "world_size": jax.device_count(),
            "gpu_model": device.device_kind,
            **self._settings,
        }
        if jax.local_device_count() > 1:
            for name in ("tokens_per_step", "flops_per_token"):
                settings.pop(name, None)
        run = start(**settings)
        run.launches_only()
        when_imported(_ORBAX, self._watch_saves)
        return run

    def _record(self, run: Run, value: Any) -> None:
        """Record the loss of an earlier step if the device has it by now; one is on its way at a time."""
        late = self._late
        if late is None:
            self._late = value
        elif getattr(late, "is_ready", lambda: True)():
            run.record(loss=float(late))
            self._late = value

    def checkpoint_part(self) -> Part | None:
        """Return the part ``checkpoint``, to be entered; None if no run has begun."""
        return None if self.run is None else self.run.part("checkpoint")

    @never_raises
    def _watch_saves(self, module: Any) -> None:
        subscribers_of(module.CheckpointManager, "save", wrap_save).add(self)
