"""Report the steps of verl, with no change of code: verl imports this module in each of its processes.

    export VERL_USE_EXTERNAL_MODULES=pyrometer.verl
    export PYROMETER_RUN=grpo-8b PYROMETER_SETTINGS="world_size=64"

A step is what verl logs as one, by the process that logs: rollouts, rewards and updates of all workers. The workers
themselves are not seen. It never raises into verl, and never imports verl itself.
"""

from __future__ import annotations

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
_TRAINER = "verl.trainer.ppo.ray_trainer"
# Only the log of a training step has these; that of an evaluation has `val-core/...` or `val/loss`.
_STEPS = ("training/global_step", "timing_s/step", "perf/time_per_step", "train/loss")
_LOSSES = ("train/loss", "actor/pg_loss", "critic/vf_loss")
_NORMS = ("train/grad_norm", "actor/grad_norm")
_TOKENS = ("perf/total_num_tokens", "train/global_tokens")
_TAGS = {"timing_s/save_checkpoint": "checkpoint", "timing_s/testing": "eval"}


class _Reporter:
    """Turns verl's logged steps into those of a run, which the first of them begins."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self._name = ""

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
            given = settings_of_environment()
            self.run = start(**{"run": self._name or None, "rank": 0, "first_step": int(step), **given})
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
    def failed(self, error: BaseException) -> None:
        """Leave the run as crashed by an exception; Ctrl-C is a good end, as everywhere."""
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


def _wrap_fit(function: Callable[..., Any], reporters: Any) -> Callable[..., Any]:
    def fit(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except BaseException as error:
            # Before the exception's frames go: they hold a Tracking, which calls finish() when it is deleted.
            for reporter in list(reporters):
                reporter.failed(error)
            raise

    return fit


@never_raises
def _hook(module: Any) -> None:
    for name, method in (("__init__", "named"), ("log", "logged"), ("finish", "finished")):
        subscribers_of(module.Tracking, name, _wrapped(method)).add(REPORTER)


@never_raises
def _hook_trainer(module: Any) -> None:
    subscribers_of(module.RayPPOTrainer, "fit", _wrap_fit).add(REPORTER)


REPORTER = _Reporter()
never_raises(when_imported)(_TRACKING, _hook)
never_raises(when_imported)(_TRAINER, _hook_trainer)
