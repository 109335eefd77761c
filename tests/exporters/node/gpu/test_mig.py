"""GPUs divided into MIG instances."""

from __future__ import annotations

from typing import Any

import pytest

from pyrometer_exporters.node.gpu.subjects.mig import profile_of

INSTANCES = [
    {"id": 7, "profile": "1g.10gb", "used_mib": 1200, "total_mib": 9984},
    None,
    {"id": 5, "profile": "1c.2g.20gb", "used_mib": 30, "total_mib": 20096},
]


@pytest.fixture
def node(make_node: Any) -> Any:
    return make_node(count=2, still=True, setup=lambda gpus: gpus[1].set(mig=INSTANCES))


def test_each_instance_has_its_memory_under_dcgm_exporters_labels(node: Any) -> None:
    scrape = node.scrape()
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb") == 1200
    assert scrape.value("DCGM_FI_DEV_FB_FREE", gpu="1", GPU_I_ID="7") == 9984 - 1200 - 16
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="5", GPU_I_PROFILE="2g.20gb") == 30
    assert len(scrape.values("DCGM_FI_DEV_FB_USED", gpu="1")) == 3  # the whole GPU's beside them
    assert len(scrape.values("DCGM_FI_DEV_FB_USED", gpu="0")) == 1


def test_each_instance_can_be_found_by_its_uuid(node: Any) -> None:
    found = node.scrape().values("pyrometer_gpu_mig_instance_info", gpu="1")
    assert sorted(labels[2:4] for labels in found) == [("5", "2g.20gb"), ("7", "1g.10gb")]
    assert all(labels[4].startswith("MIG-") for labels in found)


def test_a_divided_gpu_loses_only_what_nvml_no_longer_gives(node: Any) -> None:
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("DCGM_FI_DEV_MIG_MODE", gpu="1") == 1
    assert scrape.value("DCGM_FI_DEV_MIG_MODE", gpu="0") == 0
    gone = scrape.names_of("0") - scrape.names_of("1")
    assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"} <= gone
    assert not [name for name in gone if "REMAP" in name or "ECC" in name or "ecc" in name or "nvlink" in name]


def test_each_instance_has_its_own_profiling(node: Any) -> None:
    first = {**INSTANCES[0], "gpm": {"1": 80.0, "5": 40.0}}
    second = {**INSTANCES[2], "gpm": {"1": 0.0}}
    node.gpus[1].set(mig=[first, None, second])
    assert node.scrape().values("DCGM_FI_PROF_GR_ENGINE_ACTIVE", GPU_I_ID="7") == {}  # nothing to compare with yet
    scrape = node.scrape_every(15)
    assert scrape.value("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu="1", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb") == 0.8
    assert scrape.value("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", gpu="1", GPU_I_ID="7") == 0.4
    assert scrape.value("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu="1", GPU_I_ID="5") == 0


def test_an_instance_without_profiling_keeps_its_memory(node: Any) -> None:
    node.gpus[1].set(errors={"nvmlGpmMigSampleGet": 3})
    node.scrape()
    scrape = node.scrape_every(15)
    assert scrape.downs == {}
    assert scrape.values("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu="1", GPU_I_ID="7") == {}
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="7") == 1200


def test_mig_mode_without_instances(make_node: Any) -> None:
    scrape = make_node(count=1, setup=lambda gpus: gpus[0].set(mig=[])).scrape()
    assert scrape.value("DCGM_FI_DEV_MIG_MODE") == 1
    assert len(scrape.values("DCGM_FI_DEV_FB_USED")) == 1


def test_a_gpu_that_cannot_be_divided_has_no_mode(make_node: Any) -> None:
    scrape = make_node(count=1, setup=lambda gpus: gpus[0].set(mig="incapable")).scrape()
    assert scrape.downs == {}
    assert scrape.values("DCGM_FI_DEV_MIG_MODE") == {}


def test_an_instance_that_is_destroyed_goes_without_its_neighbours(node: Any) -> None:
    node.scrape()
    node.gpus[1].set(mig=[None, None, INSTANCES[2]])
    scrape = node.scrape_every(5)
    assert scrape.downs == {}
    assert scrape.values("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="7") == {}
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="5") == 30


def test_a_gpu_divided_anew_serves_its_new_instances_and_nothing_of_the_old_ones(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(mig=[{"id": 7, "profile": "1g.10gb", "used_mib": 100, "total_mib": 9984}])
    assert node.scrape().values("DCGM_FI_DEV_FB_USED", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
    # The new instance has the old one's place among the GPU's, and so perhaps its handle.
    node.gpus[0].set(mig=[{"id": 1, "profile": "3g.40gb", "used_mib": 30_000, "total_mib": 40_000}])
    scrape = node.scrape_every(15)
    assert scrape.value("DCGM_FI_DEV_FB_USED", GPU_I_ID="1", GPU_I_PROFILE="3g.40gb") == 30_000
    assert scrape.values("DCGM_FI_DEV_FB_USED", GPU_I_ID="7") == {}


def test_a_gpu_that_is_divided_or_made_whole_shows_it_at_the_next_scrape(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    assert node.scrape().value("DCGM_FI_DEV_MIG_MODE") == 0
    node.gpus[0].set(mig=INSTANCES)
    scrape = node.scrape_every(5)
    assert scrape.value("DCGM_FI_DEV_MIG_MODE") == 1
    assert len(scrape.values("pyrometer_gpu_mig_instance_info")) == 2
    node.gpus[0].set(mig=None)
    scrape = node.scrape_every(5)
    assert scrape.value("DCGM_FI_DEV_MIG_MODE") == 0
    assert scrape.values("pyrometer_gpu_mig_instance_info") == {}
    assert scrape.downs == {}
    assert scrape.value("DCGM_FI_DEV_GPU_UTIL") is not None


def test_a_new_instance_is_seen_at_the_next_scrape_and_its_neighbours_go_on(node: Any) -> None:
    gpm = [{**INSTANCES[0], "gpm": {"1": 80.0}}, None, INSTANCES[2]]
    node.gpus[1].set(mig=gpm)
    node.scrape()
    node.gpus[1].set(mig=[gpm[0], {"id": 9, "profile": "1g.10gb", "gpm": {"1": 60.0}}, gpm[2]])
    scrape = node.scrape_every(5)
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="9") == 12
    assert scrape.value("pyrometer_gpu_mig_instance_info", gpu="1", GPU_I_ID="9") == 1
    assert scrape.value("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu="1", GPU_I_ID="7") == 0.8
    assert node.scrape_every(5).value("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu="1", GPU_I_ID="9") == 0.6


def test_an_instance_that_was_destroyed_and_made_anew_between_two_scrapes_is_another(node: Any) -> None:
    node.scrape()
    node.gpus[1].set(mig=[{**INSTANCES[0], "profile": "2g.20gb", "used_mib": 7}, None, INSTANCES[2]])
    scrape = node.scrape_every(5)
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="7", GPU_I_PROFILE="2g.20gb") == 7
    assert len(scrape.values("pyrometer_gpu_mig_instance_info", gpu="1", GPU_I_ID="7")) == 1


def test_one_compute_instance_of_a_gpu_instance_may_go_and_the_gpu_instance_stays(node: Any) -> None:
    both = {"id": 5, "profile": "1c.2g.20gb", "used_mib": 30, "total_mib": 20096}
    node.gpus[1].set(mig=[both, both])
    scrape = node.scrape()
    assert len(scrape.values("pyrometer_gpu_mig_instance_info", gpu="1")) == 2
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="5") == 30
    node.gpus[1].set(mig=[None, both])
    scrape = node.scrape_every(5)
    assert len(scrape.values("pyrometer_gpu_mig_instance_info", gpu="1")) == 1
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="1", GPU_I_ID="5") == 30


def test_what_does_not_change_is_not_asked_again(node: Any) -> None:
    node.scrape()
    before = dict(node.library.calls)
    for _ in range(4):
        node.scrape_every(5)
    asked = {name: node.library.calls[name] - before.get(name, 0) for name in node.library.calls}
    # The whole GPU's mode, of both; the instances' places, names and ids once at most, as everything is once a minute.
    assert asked["nvmlDeviceGetMigMode"] == 2 * 4
    assert asked["nvmlDeviceGetMigDeviceHandleByIndex"] == 4 * 7
    assert asked["nvmlDeviceGetGpuInstanceId"] <= 2
    assert asked["nvmlDeviceGetMaxMigDeviceCount"] <= 1


def test_a_gpu_that_cannot_be_divided_is_asked_once_a_minute(make_node: Any) -> None:
    node = make_node(count=1, still=True, setup=lambda gpus: gpus[0].set(mig="incapable"))
    for _ in range(8):
        node.scrape()
        node.clock.now += 15
    assert node.library.calls["nvmlDeviceGetMigMode"] <= 3


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1g.10gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "3g.20gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
    ],
)
def test_the_profile_is_the_gpu_instances(name: str, profile: str) -> None:
    assert profile_of(name) == profile
