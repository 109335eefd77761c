"""torchtitan's own structured logger and metrics container; its trainer needs GPUs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pyrometer import ring, torchtitan

pytest.importorskip("torchtitan")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def test_the_handler_that_the_environment_names(tmp_path: Path, seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchtitan.observability.structured_logger as sl
    from torchtitan.components.metrics import LoggerContainer

    monkeypatch.setenv("TITAN_STRUCT_LOGGER_HANDLERS", "pyrometer.torchtitan.handler")
    monkeypatch.setenv("PYROMETER_SETTINGS", "run=llama tokens_per_step=1000")
    sl.init_structured_logger(source="trainer", output_dir=str(tmp_path), rank=0)
    container = LoggerContainer()
    container.add_logger(torchtitan.metrics())

    for step in range(7, 10):  # as torchtitan's trainer does
        sl.set_step(step)
        with sl.log_trace_span("step"):
            with sl.log_trace_span("fetching_batch"):
                pass
            with sl.log_trace_span("fwd_bwd"):
                pass
            with sl.log_trace_span("optim"):
                pass
            container.log({"loss_metrics/global_avg_loss": float(step), "grad_norm": 0.5}, step)
            if step == 8:
                with sl.log_trace_span("checkpoint_save"):
                    pass
    try:
        with sl.log_trace_span("step"):
            raise KeyError
    except KeyError:
        pass
    logging.getLogger("torchtitan.structured_logger").handlers.clear()
    found = seen()
    assert (found.meta.run, found.meta.first_step) == ("llama", 7)
    assert [(r.loss, r.grad_norm) for r in found.records] == [(7.0, 0.5), (8.0, 0.5), (9.0, 0.5)]
    assert [r.flags & ring.TAG_BITS["checkpoint"] for r in found.records] == [0, 1, 0]
    assert all(found.parts[part] > 0 for part in ("data", "backward", "optimizer", "checkpoint"))
