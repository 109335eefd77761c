"""The run's page in MLflow, as the real package has it open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyrometer
from pyrometer_exporters.node.train.rings import RingFile

mlflow = pytest.importorskip("mlflow")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = (tmp_path / "runs").as_uri()
    mlflow.set_tracking_uri(folder)
    mlflow.set_experiment("tiny")
    yield mlflow.start_run()
    mlflow.set_tracking_uri(folder)
    mlflow.end_run()


def two_steps() -> Any:
    run = pyrometer.start("tiny")
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


def test_the_page_on_its_server_is_found_without_its_password(tracked: Any) -> None:
    mlflow.set_tracking_uri("http://user:secret@mlflow.example.org:5000/")  # nothing is sent there
    page = f"http://mlflow.example.org:5000/#/experiments/{tracked.info.experiment_id}/runs/{tracked.info.run_id}"
    assert two_steps() == (("mlflow", page),)
