"""Ray Train's workers on the CPU: two ranks with DDP over Gloo."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyrometer.ray

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")
train = pytest.importorskip("ray.train.torch")
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
STEPS = 12


@pytest.fixture
def local_ray(rings: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Start Ray, whose workers have the environment, and with it the folder of rings."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers can't import tests
    with tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True) as folder:  # short, as sockets are in it
        ray.init(
            num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False,
            _node_ip_address="127.0.0.1", _temp_dir=folder,
        )  # fmt: skip
        yield rings
        ray.shutdown()


def loop(config: dict[str, int]) -> None:
    model = train.prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number in range(STEPS):
        if number == config["fails_at"]:
            raise RuntimeError("CUDA error")
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def fit(folder: Path, name: str, fails_at: int = -1) -> None:
    train.TorchTrainer(
        pyrometer.ray.watch(loop, tokens_per_step=32),
        train_loop_config={"fails_at": fails_at},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(name=name, storage_path=str(folder)),
    ).fit()


def test_each_worker_is_a_rank_whose_run_ends_as_its_loop_does(tmp_path: Path, local_ray: Path, seen: Any) -> None:
    fit(tmp_path, "good")
    for rank in (0, 1):
        found = seen(rank)
        assert (found.meta.run, found.meta.rank, found.meta.world_size) == ("good", str(rank), 2)
        assert found.header.count == STEPS - 1, "a step lasts from one to the next"
        assert found.header.closed
    for path in local_ray.glob("*.ring"):
        path.unlink()
    with pytest.raises(Exception, match="CUDA error"):
        fit(tmp_path, "bad", fails_at=7)
    assert seen(0).meta.run == "bad"
    assert not seen(0).header.closed
