"""Report the steps of verl, with no change of code: verl imports this module in each of its processes.

    export VERL_USE_EXTERNAL_MODULES=pyrometer.verl
    export PYROMETER_RUN=grpo-8b PYROMETER_SETTINGS="world_size=64"

A step is what verl logs as one, by the process that logs: rollouts, rewards and updates of all workers. The workers
themselves are not seen. It never raises into verl, and never imports verl itself.
"""

from __future__ import annotations

import sys

from pyrometer._hooks import never_raises, subscribers_of, when_imported
from pyrometer._settings import settings_of_environment
from pyrometer._shutdown import exit_status
from pyrometer._start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pyrometer._run import Run

_TRACKING = "verl.utils.tracking"
# The trainers that others are made of, as the asynchronous ones are; their subclasses are found as they are made.
_TRAINERS = (
    "verl.trainer.ppo.ray_trainer", "verl.trainer.ppo.v1.trainer_base", "verl.trainer.sft_trainer",
    "verl.trainer.sft_trainer_ray",
)  # fmt: skip
# Only the log of a training step has these; that of an evaluation has `val-core/...` or `val/loss`.
_STEPS = ("training/global_step", "timing_s/step", "perf/time_per_step", "train/loss")
_LOSSES = ("train/loss", "actor/pg_loss", "critic/vf_loss")
_NORMS = ("train/grad_norm", "actor/grad_norm")
_TOKENS = ("perf/total_num_tokens", "train/global_tokens")
_COROUTINE = 0x80  # inspect.CO_COROUTINE
_TAGS = {"timing_s/save_checkpoint": "checkpoint", "timing_s/testing": "eval"}


class _Reporter:
    """Turns verl's logged steps into those of a run, which the first of them begins."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self._name = ""
        self._fits = 0

    @never_raises
    def named(self, _tracking: Any, _project: str = "", experiment: str = "", *_: Any, **named: Any) -> None:
        """Take the run's name from verl's experiment."""
        self._name = str(named.get("experiment_name", experiment))

    @never_raises
    def logged(self, _tracking: Any, data: Any, step: Any = 0, *_: Any, **__: Any) -> None:
        """End a step."""
        if not any(name in data for name in _STEPS):
            return
        if self.run is None:
            # The first log ends a step whose beginning nobody saw: it begins the run.
            settings: dict[str, Any] = {"run": self._name or None, "rank": 0, "first_step": int(step)}
            self.run = start(**{**settings, **settings_of_environment()})
            if not self._fits:
                sys.stderr.write(
                    "pyrometer: these steps come from an unknown verl trainer: if it fails, the run may look as if it "
                    "ended normally\n"
                )
        else:
            values = {"loss": _first(data, _LOSSES), "grad_norm": _first(data, _NORMS), "tokens": _first(data, _TOKENS)}
            self.run.record(**values)
            for name, tag in _TAGS.items():
                if name in data:
                    self.run.tag(tag)
        self.run.tick()

    @never_raises
    def finished(self, _tracking: Any, exit_code: Any = 0, *_: Any, **__: Any) -> None:
        """Close the run, or leave it as crashed where verl ends with an error."""
        run, self.run = self.run, None
        if run is not None and exit_code:
            run.crash(exit_status(exit_code))
        elif run is not None:
            run.close()

    @never_raises
    def begun(self) -> None:
        """Note that a trainer's ``fit`` begins, perhaps within that of its subclass."""
        self._fits += 1

    @never_raises
    def returned(self) -> None:
        """Close the run where the outermost ``fit`` returns; an actor's Tracking lives on."""
        self._fits -= 1
        if self._fits == 0 and self.run is not None:
            self.finished(None)

    @never_raises
    def failed(self, error: BaseException) -> None:
        """Leave the run as crashed by an exception; Ctrl-C is a good end, as everywhere."""
        self._fits -= 1
        run, self.run = self.run, None
        if run is not None:
            run.__exit__(type(error), error, error.__traceback__)


def _first(data: Any, names: Iterable[str]) -> Any:
    return next((data[name] for name in names if name in data), None)


def _wrapped(method: str) -> Callable[..., Any]:
    def wrap(function: Callable[..., Any], reporters: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            for reporter in list(reporters):
                getattr(reporter, method)(*arguments, **named)
            return result

        return call

    return wrap


def _wrap_fit(function: Callable[..., Any], _reporters: Any) -> Callable[..., Any]:
    """Wrap a ``fit``. One of a Ray actor is pickled with its class: it must find the reporter of its own process."""

    def fit(*arguments: Any, **named: Any) -> Any:
        with _Fit():
            return function(*arguments, **named)

    async def fit_async(*arguments: Any, **named: Any) -> Any:
        with _Fit():
            return await function(*arguments, **named)

    return fit_async if function.__code__.co_flags & _COROUTINE else fit


class _Fit:
    """A call of a trainer's ``fit``."""

    def __enter__(self) -> None:
        REPORTER.begun()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # Before the exception's frames go: they hold a Tracking, which calls finish() when it is deleted.
        if error is None:
            REPORTER.returned()
        else:
            REPORTER.failed(error)


@never_raises
def _hook(module: Any) -> None:
    for name, method in (("__init__", "named"), ("log", "logged"), ("finish", "finished")):
        subscribers_of(module.Tracking, name, _wrapped(method)).add(REPORTER)


@never_raises
def _hook_trainers(module: Any) -> None:
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and kind.__module__ == module.__name__ and "fit" in vars(kind):
            _hook_trainer(kind)


@never_raises
def _hook_trainer(kind: Any) -> None:
    _hook_fit(kind)

    def hook_subclass(cls: Any, /, **named: Any) -> None:
        super(kind, cls).__init_subclass__(**named)
        if "fit" in vars(cls):
            never_raises(_hook_fit)(cls)

    kind.__init_subclass__ = classmethod(hook_subclass)


def _hook_fit(kind: Any) -> None:
    subscribers_of(kind, "fit", _wrap_fit).add(REPORTER)


REPORTER = _Reporter()
never_raises(when_imported)(_TRACKING, _hook)
for _trainer in _TRAINERS:
    never_raises(when_imported)(_trainer, _hook_trainers)
