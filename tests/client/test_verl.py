"""How a run of verl ends, by the calls that its trainers make; the real Tracking has tests of its own."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from client_ring_reader import ReadRing

STEP = {"training/global_step": 1, "actor/pg_loss": 0.25}


class Tracking:
    """verl's, as far as its end is concerned: deleted without a word, it finishes well."""

    def __init__(self, project_name: str, experiment_name: str) -> None:
        self.finished = False

    def log(self, data: dict[str, float], step: int) -> None:
        """Log nowhere."""

    def finish(self, exit_code: int = 0) -> None:
        self.finished = True

    def __del__(self) -> None:
        if not self.finished:
            self.finish()


class RayPPOTrainer:
    """verl's, as far as its end is concerned: the Tracking is a local of ``fit``."""

    def __init__(self, tracking: Callable[[], Tracking], error: BaseException | None) -> None:
        self.tracking, self.error = tracking, error

    def fit(self) -> str:
        logger = self.tracking()
        if self.error is not None:
            raise self.error
        logger.finish()
        return "result"


Begin = Callable[[], tuple[Any, Any]]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, rings: str) -> Begin:
    """Import the hook as verl does, before its own modules; return a tracker that has logged two steps, and its run."""
    monkeypatch.setenv("PYROMETER_RINGS", rings)
    monkeypatch.setenv("PYROMETER_SETTINGS", "world_size=8")
    tracking, trainer = ModuleType("verl.utils.tracking"), ModuleType("verl.trainer.ppo.ray_trainer")
    tracking.Tracking = type("Tracking", (Tracking,), dict(vars(Tracking)))  # type: ignore[attr-defined]
    trainer.RayPPOTrainer = type(
        "RayPPOTrainer", (RayPPOTrainer,), {**vars(RayPPOTrainer), "__module__": trainer.__name__}
    )  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, tracking.__name__, tracking)
    monkeypatch.setitem(sys.modules, trainer.__name__, trainer)
    monkeypatch.delitem(sys.modules, "pyrometer.verl", raising=False)
    import pyrometer.verl

    def start() -> tuple[Any, Any]:
        tracker = tracking.Tracking(project_name="p", experiment_name="grpo")
        for step in range(2):
            tracker.log(data=STEP, step=step)
        run = pyrometer.verl.REPORTER.run
        assert run is not None
        return tracker, run.path

    return start


def fit(begin: Begin, error: BaseException | None) -> tuple[str, str]:
    """Fit with a tracker that nothing else holds; return the ring's path and what ``fit`` returned."""
    paths = []

    def tracking() -> Any:
        tracker, path = begin()
        paths.append(path)
        return tracker

    result = ""
    trainer = sys.modules["verl.trainer.ppo.ray_trainer"].RayPPOTrainer(tracking, error)
    with contextlib.nullcontext() if error is None else pytest.raises(type(error)):
        result = trainer.fit()
    if error is not None:
        error.__traceback__ = None
    gc.collect()
    return paths[0], result


@pytest.mark.parametrize(("exit_code", "end"), [(0, (True, "signal or os._exit")), (1, (False, "exit status 1"))])
def test_a_finish_ends_the_run_by_its_exit_code(
    begin: Begin, seen: ReadRing, exit_code: int, end: tuple[bool, str]
) -> None:
    tracker, path = begin()
    tracker.finish(exit_code=exit_code)
    assert (seen(path).header.closed, seen(path).last_words) == end


@pytest.mark.parametrize(
    ("error", "closed", "result"),
    [(None, True, "result"), (KeyboardInterrupt(), True, ""), (RuntimeError("CUDA error"), False, "")],
)
def test_a_fit_that_raises_is_a_crash_although_its_tracker_finishes_well(
    begin: Begin, seen: ReadRing, error: BaseException | None, closed: bool, result: str
) -> None:
    path, returned = fit(begin, error)
    assert (seen(path).header.closed, returned) == (closed, result)
    assert seen(path).last_words.startswith("" if closed else "RuntimeError")


def test_a_trainer_without_fit_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, begin: Begin) -> None:
    monkeypatch.setitem(sys.modules, "verl.trainer.ppo.ray_trainer", ModuleType("verl.trainer.ppo.ray_trainer"))
    monkeypatch.delitem(sys.modules, "pyrometer.verl")
    import pyrometer.verl  # noqa: F401  it must not raise


@pytest.mark.parametrize("error", [None, ValueError("no reward")])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_trainer_of_another_ends_its_run_although_its_tracker_lives_on(
    begin: Begin, seen: ReadRing, error: BaseException | None, asynchronous: bool
) -> None:
    """As the asynchronous trainers are, which replace ``fit`` and are actors of Ray."""
    import asyncio

    base: Any = sys.modules["verl.trainer.ppo.ray_trainer"].RayPPOTrainer  # type: ignore[attr-defined]
    found = []

    def train(self: Any) -> None:
        self.logger, path = begin()
        found.append(path)
        if error is not None:
            raise error

    async def train_later(self: Any) -> None:
        train(self)

    own = type("Own", (base,), {"fit": train_later if asynchronous else train})
    trainer = own(None, None)
    with contextlib.suppress(ValueError):
        result = own.fit(trainer)
        if asynchronous:
            asyncio.run(result)
    assert seen(found[0]).header.closed == (error is None)


@pytest.mark.usefixtures("begin")
def test_a_pickled_fit_finds_the_reporter_of_the_process_that_it_runs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray makes an actor's class again in the actor's process: what its functions hold is a copy of the driver's."""
    import pyrometer.verl

    calls: list[str] = []
    there = pyrometer.verl._Reporter()
    monkeypatch.setattr(there, "begun", lambda: calls.append("begun"))
    monkeypatch.setattr(there, "failed", lambda error: calls.append(str(error)))
    monkeypatch.setattr(pyrometer.verl, "REPORTER", there)
    trainer = sys.modules["verl.trainer.ppo.ray_trainer"].RayPPOTrainer(lambda: None, ValueError("no reward"))
    with pytest.raises(ValueError, match="no reward"):
        trainer.fit()
    assert calls == ["begun", "no reward"]
