"""The run's pages in trackers: what the job gives, what a loaded tracker has, and nothing secret."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

import pyrometer
from pyrometer._links import clean
from pyrometer_exporters.node.train.rings import RingFile

Page = tuple[str, str]


@pytest.fixture
def links() -> Callable[[pyrometer.Run], tuple[Page, ...]]:
    def read(run: pyrometer.Run) -> tuple[Page, ...]:
        file = RingFile(run.path)
        try:
            return file.links()
        finally:
            file.close()

    return read


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://wandb.ai/lab/p/runs/x1", "https://wandb.ai/lab/p/runs/x1"),
        ("https://wandb.ai/lab/p/runs/x1?apiKey=secret", "https://wandb.ai/lab/p/runs/x1"),
        ("http://me:secret@mlflow:5000/#/experiments/1/runs/2", "http://mlflow:5000/#/experiments/1/runs/2"),
        ("http://mlflow:5000/#/experiments/1?token=secret", "http://mlflow:5000/#/experiments/1"),
        ("javascript:alert(1)", ""),
        ("file:///etc/passwd", ""),
        ("https://", ""),
        ("https://a b", ""),
        ("https://a|b>", ""),
        ("https://a/\nhttps://b", ""),
        (None, ""),
    ],
)
def test_an_address_is_a_web_address_without_secrets(given: Any, shown: str) -> None:
    assert clean(given) == shown


def test_the_jobs_links_reach_the_reader(rings: str, links: Callable[..., tuple[Page, ...]]) -> None:
    run = pyrometer.start("r", rings=rings, links={"wandb": "https://wandb.ai/a?key=1", "Notes": "http://wiki/x"})
    assert links(run) == (("wandb", "https://wandb.ai/a"), ("notes", "http://wiki/x"))
    run.close()


@pytest.mark.parametrize(
    "given", [{"wandb": "ftp://x"}, {"": "https://a"}, {"a b": "https://a"}, {"long": "https://a/" + "x" * 600}]
)
def test_one_that_has_no_place_is_reported(
    given: dict[str, str], rings: str, links: Callable[..., tuple[Page, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    run = pyrometer.start("r", rings=rings, links=given)
    assert links(run) == ()
    assert capsys.readouterr().err.count("no links to") == 1
    run.close()


@pytest.mark.parametrize("given", ["https://wandb.ai", 7, [1, 2], {"a": object()}])
def test_garbage_costs_no_start(given: Any, rings: str) -> None:
    run = pyrometer.start("r", rings=rings, links=given)
    assert run.disabled is None
    run.close()


def test_a_tracker_that_is_open_is_found_at_the_first_steps(
    rings: str, links: Callable[..., tuple[Page, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = types.ModuleType("wandb")
    wandb.__dict__["run"] = None
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    run = pyrometer.start("r", rings=rings)
    run.tick()
    run.tick()
    assert links(run) == ()
    wandb.__dict__["run"] = types.SimpleNamespace(url="https://wandb.ai/lab/p/runs/x1?apiKey=s")
    run.tick()
    assert links(run) == (("wandb", "https://wandb.ai/lab/p/runs/x1"),)
    run.close()


def test_mlflow_is_found_with_its_servers_page(
    rings: str, links: Callable[..., tuple[Page, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = types.ModuleType("mlflow")
    info = types.SimpleNamespace(experiment_id="3", run_id="abc")
    mlflow.__dict__.update(
        active_run=lambda: types.SimpleNamespace(info=info), get_tracking_uri=lambda: "http://u:p@mlflow:5000/"
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    run = pyrometer.start("r", rings=rings)
    run.tick()
    run.tick()
    assert links(run) == (("mlflow", "http://mlflow:5000/#/experiments/3/runs/abc"),)
    mlflow.__dict__["get_tracking_uri"] = lambda: "file:///data/mlruns"
    other = pyrometer.start("other", rings=rings)
    other.tick()
    other.tick()
    assert links(other) == ()


def test_what_the_job_gives_is_not_replaced(
    rings: str, links: Callable[..., tuple[Page, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = types.ModuleType("wandb")
    wandb.__dict__["run"] = types.SimpleNamespace(url="https://wandb.ai/other")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    run = pyrometer.start("r", rings=rings, links={})
    run.tick()
    run.tick()
    assert links(run) == ()
