"""A callback made before Composer is imported has all that its trainer asks of a callback."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from client_ring_reader import ReadRing

from pyrometer.composer import callback


def event(name: str) -> Any:
    return SimpleNamespace(value=name)


def state() -> Any:
    counted = SimpleNamespace(batch=SimpleNamespace(value=0), token=SimpleNamespace(value=0))
    return SimpleNamespace(
        run_name="tiny",
        precision="amp_bf16",
        model=object(),
        timestamp=counted,
        total_loss_dict={"loss/train/total": 2.0},
    )


STEP = ["after_dataloader", "before_forward", "after_forward", "before_backward", "after_backward", "batch_end"]


def test_an_early_callback_reports_the_events_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, rings: str, seen: ReadRing
) -> None:
    monkeypatch.delitem(sys.modules, "composer", raising=False)
    early, trainer = callback(rings=rings), state()
    for name in ["init", "fit_start", *STEP, "epoch_end", *STEP]:
        early.run_event(event(name), trainer, None)
    path = early.loop.run.path
    early.run_event(event("fit_end"), trainer, None)
    early.close(trainer, None)
    early.post_close()
    ring = seen(path)
    assert [record.loss for record in ring.records] == [2.0, 2.0]
    assert ring.header.closed


def test_an_early_callback_can_be_saved_and_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "composer", raising=False)
    early = callback()
    early.load_state_dict(early.state_dict())
    assert early.state_dict() == {}


def test_an_event_out_of_order_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "composer", raising=False)
    callback().run_event(event("batch_end"), state(), None)


def test_another_module_of_that_name_is_no_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "composer", ModuleType("composer"))
    assert callback().state_dict() == {}
