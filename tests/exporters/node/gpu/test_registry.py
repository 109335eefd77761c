"""GPUs that go missing and come back while we run: one number each, and no number twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pyrometer_simulator.nvml.pci_bus import PciBus


def _reloaded(node: Any) -> Any:
    node.gpus.reload_driver()
    return node.scrape_every(60, times=3)


def _numbers(node: Any, scrape: Any) -> dict[int, str]:
    """Numbers served, by which of the simulated GPUs."""
    by_uuid = {labels[1]: labels[0] for labels in scrape.values("pyrometer_gpu_up")}
    return {gpu.index: by_uuid[gpu.uuid] for gpu in node.gpus if gpu.uuid in by_uuid}


def _tell_procfs(gpus: Any, procfs: Path) -> None:
    for gpu in gpus:
        folder = procfs / "driver/nvidia/gpus" / gpu.pci_bus_id[4:].lower()
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t {gpu.uuid}\n")


def test_a_gpu_hidden_at_the_start_that_returns_has_nvmls_number_and_so_have_all(make_node: Any) -> None:
    node = make_node(count=4, still=True, setup=lambda gpus: gpus[1].hide())
    assert _numbers(node, node.scrape()) == {0: "0", 2: "1", 3: "2"}
    node.gpus[1].recover()
    scrape = _reloaded(node)
    assert scrape.downs == {}
    assert _numbers(node, scrape) == {0: "0", 1: "1", 2: "2", 3: "3"}
    assert scrape.values("pyrometer_gpus_present") == {("pci",): 4, ("nvml",): 4}


def test_without_sysfs_a_gpu_that_returns_still_has_a_number_of_its_own(make_node: Any, sysfs: Path) -> None:
    node = make_node(count=4, still=True, setup=lambda gpus: gpus[1].hide())
    shutil.rmtree(sysfs)
    assert _numbers(node, node.scrape()) == {0: "0", 2: "1", 3: "2"}
    node.gpus[1].recover()
    numbers = _numbers(node, _reloaded(node))
    assert len(set(numbers.values())) == 4
    assert {index: numbers[index] for index in (0, 2, 3)} == {0: "0", 2: "1", 3: "2"}


def test_one_gone_and_another_come_leaves_everyone_a_number_of_his_own(make_node: Any, tmp_path: Path) -> None:
    def setup(gpus: Any) -> None:
        gpus[1].hide()
        _tell_procfs([gpu for gpu in gpus if gpu.index != 1], tmp_path / "proc")

    node = make_node(count=4, still=True, setup=setup)
    assert _numbers(node, node.scrape()) == {0: "0", 2: "1", 3: "2"}
    node.gpus[1].recover()
    node.gpus[2].hide()
    gone = tmp_path / "proc/driver/nvidia/gpus" / node.gpus[2].pci_bus_id[4:].lower()
    (gone / "information").unlink()
    gone.rmdir()
    _tell_procfs([node.gpus[1]], tmp_path / "proc")
    scrape = _reloaded(node)
    assert _numbers(node, scrape) == {0: "0", 1: "3", 2: "1", 3: "2"}
    assert scrape.downs == {"1": "not_found"}


def test_lost_and_back_the_same_gpu_has_the_same_series(make_node: Any) -> None:
    node = make_node(still=True)
    before = node.scrape()
    node.gpus[0].hide()
    assert _reloaded(node).value("pyrometer_gpu_up", gpu="0") == 0
    node.gpus[0].recover()
    after = _reloaded(node)
    assert after.downs == {}
    assert after.values("pyrometer_gpu_up") == before.values("pyrometer_gpu_up")


def _give(sysfs: Path, gpu: Any, driver: str) -> None:
    PciBus(sysfs).bind(gpu.pci_bus_id, driver)


def test_a_gpu_given_to_a_virtual_machine_is_no_lost_one_and_is_served_again_after_it(
    make_node: Any, sysfs: Path
) -> None:
    node = make_node(still=True, scraped=True)
    node.log.write(f"NVRM: Xid (PCI:{node.gpus[1].pci_bus_id[4:]}): 48, pid=1, name=x, DBE")
    _give(sysfs, node.gpus[1], "vfio-pci")
    node.gpus[1].lose()
    scrape = node.scrape()
    assert scrape.downs == {}
    assert set(_numbers(node, scrape)) == {0, 2}
    assert scrape.value("pyrometer_gpus_present", source="pci") == 2
    assert {labels[1] for labels in scrape.values("pyrometer_gpu_xid_errors_total")} == {
        node.gpus[0].uuid, node.gpus[2].uuid
    }  # fmt: skip
    node.gpus[1].hide()
    assert _numbers(node, _reloaded(node)) == {0: "0", 2: "1"}
    _give(sysfs, node.gpus[1], "nvidia")
    node.gpus[1].recover()
    scrape = _reloaded(node)
    assert scrape.downs == {}
    assert _numbers(node, scrape) == {0: "0", 1: "1", 2: "2"}
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="1") is not None


def test_an_excluded_gpu_stays_closed_when_the_driver_comes_back(make_node: Any) -> None:
    node = make_node("--collector.gpu.device-exclude=0000:2a:00.0", still=True, scraped=True)
    _reloaded(node)
    assert node.gpus[1].opened == 0


def test_the_drivers_list_tells_addresses_where_the_bus_has_more(make_node: Any, tmp_path: Path) -> None:
    def setup(gpus: Any) -> None:
        gpus[0].hide()
        _tell_procfs(list(gpus)[1:], tmp_path / "proc")

    node = make_node(f"--collector.gpu.device-exclude={make_node().gpus[1].uuid}", setup=setup)
    assert set(_numbers(node, node.scrape())) == {2}
    assert node.gpus[1].opened == 0


def test_how_many_there_should_be_is_served_beside_how_many_there_are(make_node: Any) -> None:
    scrape = make_node("--collector.gpu.expected=8").scrape()
    assert scrape.values("pyrometer_gpus_present") == {("pci",): 3, ("nvml",): 3, ("expected",): 8}


def test_a_container_that_is_given_some_does_not_miss_the_others(
    make_node: Any, sysfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "void")
    node = make_node("--collector.gpu.expected=3", setup=lambda gpus: gpus[0].hide())
    for gpu in node.gpus:
        _give(sysfs, gpu, "nvidia")
    assert node.scrape().values("pyrometer_gpus_present") == {("nvml",): 2}


@pytest.mark.parametrize(
    "flag", ["--collector.gpu.expected=-1", "--collector.gpu.expected=x", "--collector.gpu.release-limit=-5"]
)
def test_flags_that_make_no_sense_are_refused(make_node: Any, flag: str) -> None:
    with pytest.raises(SystemExit):
        make_node(flag)
