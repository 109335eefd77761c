"""The run's page in MLflow and W&B, as the real packages have it open, and the way back from them to its board."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyrometer
from pyrometer_exporters.node.train.rings import RingFile

BOARD = "https://grafana.example.org/d/pyrometer-training-run?var-run=tiny"
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def mlflow() -> Any:
    return pytest.importorskip("mlflow")


@pytest.fixture
def tracked(mlflow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = (tmp_path / "runs").as_uri()
    mlflow.set_tracking_uri(folder)
    mlflow.set_experiment("tiny")
    yield mlflow.start_run()
    mlflow.set_tracking_uri(folder)
    mlflow.end_run()


def two_steps(**settings: Any) -> Any:
    run = pyrometer.start("tiny", **settings)
    run.tick()
    run.tick()
    file = RingFile(run.path)
    links = file.links()
    file.close()
    run.close()
    return links


@pytest.mark.usefixtures("tracked")
def test_a_run_in_a_folder_has_no_page() -> None:
    assert two_steps() == ()


def test_the_page_on_its_server_is_found_without_its_password(mlflow: Any, tracked: Any) -> None:
    mlflow.set_tracking_uri("http://user:secret@mlflow.example.org:5000/")  # nothing is sent there
    page = f"http://mlflow.example.org:5000/#/experiments/{tracked.info.experiment_id}/runs/{tracked.info.run_id}"
    assert two_steps() == (("mlflow", page),)


def test_mlflow_keeps_the_way_to_the_board(mlflow: Any, tracked: Any) -> None:
    mlflow.set_tag("pyrometer", BOARD)
    assert mlflow.get_run(tracked.info.run_id).data.tags["pyrometer"] == BOARD


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="llama", name="tiny", dir=str(tmp_path))
    yield run
    run.finish()


@pytest.mark.usefixtures("offline")
def test_a_run_that_wandb_keeps_offline_has_no_page() -> None:
    assert two_steps() == ()


def test_the_page_of_an_offline_run_is_linked_where_it_is_given(offline: Any) -> None:
    page = f"https://wandb.ai/lab/llama/runs/{offline.id}"
    assert two_steps(links={"wandb": page}) == (("wandb", page),)


def test_wandb_keeps_the_way_to_the_board_offline(offline: Any) -> None:
    offline.config["pyrometer"] = BOARD
    assert offline.config["pyrometer"] == BOARD
