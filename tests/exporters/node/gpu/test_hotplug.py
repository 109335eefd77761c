"""GPUs that the driver takes while we run: detected on their own, at the cost of a moment."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from pyrometer_exporters.node.gpu.hotplug import MOST_TRIES
from pyrometer_simulator.nvml.pci_bus import PciBus


def _inits(node: Any) -> int:
    return int(node.library.calls.get("nvmlInitWithFlags", 0))


def _up(scrape: Any) -> dict[str, float]:
    return {labels[0]: value for labels, value in scrape.values("pyrometer_gpu_up").items()}


def _scraped_for(node: Any, seconds: float) -> Any:
    """Scrapes every 15 s of the node's clock, all GPUs but the missing ones well in each."""
    for _ in range(int(seconds / 15)):
        scrape = node.scrape_every(15)
        assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="0") == 345
    return scrape


def test_a_gpu_that_comes_back_from_a_virtual_machine_is_seen_at_the_next_scrape(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    before = node.scrape()
    hands.give_away(1)
    assert _up(_scraped_for(node, 60)) == {"0": 1, "2": 1}
    assert _inits(node) == 1
    hands.take_back(1)
    after = _scraped_for(node, 15)
    assert after.downs == {}
    assert after.values("pyrometer_gpu_up") == before.values("pyrometer_gpu_up")
    assert after.values("pyrometer_gpus_present") == {("pci",): 3, ("nvml",): 3}
    _scraped_for(node, 1200)
    assert _inits(node) == 2
    assert node.library.unsafe_shutdowns == 0


def test_a_gpu_that_a_rescan_of_the_bus_brings_back_is_seen_at_the_next_scrape(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    hands.remove(1)
    assert _up(_scraped_for(node, 60)) == {"0": 1, "1": 0, "2": 1}
    hands.rescan(1)
    assert _scraped_for(node, 15).downs == {}
    _scraped_for(node, 1200)
    assert _inits(node) == 2


def test_a_gpu_that_was_there_from_the_start_without_a_driver_is_seen_once_it_has_one(
    make_node: Any, sysfs: Path, hands_of: Any
) -> None:
    def setup(gpus: Any) -> None:
        gpus[1].hide()
        PciBus(sysfs).unbind(gpus[1].pci_bus_id)

    node = make_node(still=True, setup=setup)
    assert len(_up(node.scrape())) == 2
    hands_of(node).take_back(1)
    assert _up(_scraped_for(node, 15)) == {"0": 1, "1": 1, "2": 1}
    assert _inits(node) == 2


def test_a_driver_that_let_go_and_took_again_between_two_scrapes_costs_no_sample(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    node.gpus[1].leave()
    hands.take_back(1)
    scrape = _scraped_for(node, 15)
    assert scrape.downs == {}
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="1") == 345
    assert _inits(node) == 2


def test_a_gpu_that_answers_is_none_that_came_whatever_sysfs_looks_like(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True, scraped=True)
    for _ in range(3):
        hands_of(node).bind_only_in_sysfs(1)
        assert _scraped_for(node, 30).downs == {}
    assert _inits(node) == 1


def test_several_that_come_together_are_one_arrival(make_node: Any, hands_of: Any) -> None:
    node = make_node(count=8, still=True)
    hands = hands_of(node)
    node.scrape()
    for index in (2, 3, 7):
        hands.give_away(index)
    _scraped_for(node, 15)
    for index in (2, 3, 7):
        hands.take_back(index)
    assert _scraped_for(node, 15).downs == {}
    assert _inits(node) == 2


def test_a_gpu_that_nvml_never_presents_is_tried_ever_less_often_and_then_no_more(
    make_node: Any, hands_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    hands.give_away(1)
    _scraped_for(node, 15)
    hands.take_back(1)
    node.gpus[1].hide()  # the driver was told to leave it out
    tries = []
    for _ in range(200):
        _scraped_for(node, 15)
        tries.append(_inits(node) - 1)
    pauses = [tries.count(number) for number in range(1, MOST_TRIES)]
    assert pauses == [1, 4, 16, 64]
    assert tries[-1] == MOST_TRIES
    assert caplog.text.count("NVML does not; giving up") == 1
    hands.bind_only_in_sysfs(1)  # taken again: a new chance
    node.gpus[1].arrive()
    assert _up(_scraped_for(node, 15)) == {"0": 1, "1": 1, "2": 1}


def test_a_container_that_is_given_fewer_gpus_than_its_bus_has_is_connected_once(make_node: Any) -> None:
    node = make_node(still=True, setup=lambda gpus: gpus[2].hide(), scraped=True)
    _scraped_for(node, 1200)
    assert _inits(node) == 1


def test_a_gpu_that_comes_while_a_neighbour_hangs_waits_for_it_and_the_others_do_not(
    make_node: Any, hands_of: Any
) -> None:
    node = make_node(count=4)
    hands = hands_of(node)
    node.scrape()
    hands.give_away(1)
    node.gpus[2].hang()
    node.scrape(0.5)
    hands.take_back(1)
    for _ in range(3):
        start = time.monotonic()
        scrape = node.scrape(20.0)
        assert time.monotonic() - start < 10
        assert scrape.downs == {"2": "deadline"}
        assert _up(scrape) == {"0": 1, "2": 0, "3": 1}
        assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="3") == 345
    assert _inits(node) == 1
    node.gpus[2].recover()
    until(lambda: _up(node.scrape()) == {"0": 1, "1": 1, "2": 1, "3": 1})
    assert _inits(node) == 2
    assert node.library.unsafe_shutdowns == 0


@pytest.mark.parametrize("illness", ["lose", "require_reset", "lie", "hang"])
def test_a_gpu_that_is_ill_is_none_that_came(make_node: Any, illness: str) -> None:
    node = make_node(still=True, scraped=True)
    getattr(node.gpus[1], illness)()
    node.scrape(0.5)
    for _ in range(20):
        node.clock.now += 60
        assert node.scrape(0.5).value("pyrometer_gpu_up", gpu="0") == 1
    assert _inits(node) == 1


@pytest.mark.parametrize("illness", ["lose", "require_reset", "lie"])
def test_one_that_comes_back_ill_is_connected_for_once(make_node: Any, hands_of: Any, illness: str) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    hands.give_away(1)
    _scraped_for(node, 15)
    hands.take_back(1)
    getattr(node.gpus[1], illness)()
    assert _up(_scraped_for(node, 1200)) == {"0": 1, "1": 0, "2": 1}
    assert _inits(node) == 2


def test_a_lost_neighbour_is_no_reason_for_a_second_connection(make_node: Any, hands_of: Any) -> None:
    node = make_node(count=4, still=True)
    hands = hands_of(node)
    node.scrape()
    node.gpus[2].lose()
    hands.give_away(1)
    _scraped_for(node, 15)
    node.gpus[2].hide()  # lost GPUs are missing from a new list
    hands.take_back(1)
    scrape = _scraped_for(node, 1200)
    assert _up(scrape) == {"0": 1, "1": 1, "2": 0, "3": 1}
    assert _inits(node) == 2


def test_one_that_came_and_is_lost_later_is_no_arrival(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    hands.give_away(1)
    _scraped_for(node, 15)
    hands.take_back(1)
    assert _up(_scraped_for(node, 15)) == {"0": 1, "1": 1, "2": 1}
    node.gpus[1].hide()
    node.gpus.reload_driver()
    node.scrape()
    assert _up(_scraped_for(node, 1200)) == {"0": 1, "1": 0, "2": 1}
    assert _inits(node) == 3


@pytest.mark.parametrize("by", ["address", "uuid", "index"])
def test_a_gpu_that_is_left_out_is_not_connected_for_nor_opened(
    make_node: Any, hands_of: Any, tmp_path: Path, by: str
) -> None:
    gpu = make_node().gpus[1]
    text = {"address": gpu.pci_bus_id, "uuid": gpu.uuid, "index": "1"}[by]
    folder = tmp_path / "proc/driver/nvidia/gpus" / gpu.pci_bus_id[4:].lower()
    folder.mkdir(parents=True)
    (folder / "information").write_text(f"GPU UUID: \t {gpu.uuid}\n")
    node = make_node(f"--collector.gpu.device-exclude={text}", still=True)
    hands = hands_of(node)
    node.scrape()
    hands.remove(1)
    _scraped_for(node, 15)
    hands.rescan(1)
    assert _up(_scraped_for(node, 600)) == {"0": 1, "2": 1}
    assert _inits(node) == 1
    assert node.gpus[1].opened == 0


def test_while_the_gpus_are_let_go_nobody_connects_and_after_that_the_new_one_is_there(
    make_node: Any, hands_of: Any, state: Path
) -> None:
    node = make_node(state=state)
    hands = hands_of(node)
    node.scrape()
    (state / "gpu-release").touch()
    until((state / "gpu-released").exists)
    hands.give_away(1)
    node.scrape()
    hands.take_back(1)
    for _ in range(3):
        assert node.scrape().downs["nvml"] == "released"
    assert _inits(node) == 1
    (state / "gpu-release").unlink()
    until(lambda: _up(node.scrape()) == {"0": 1, "1": 1, "2": 1})
    assert _inits(node) == 2


def test_a_gpu_that_a_driver_takes_ends_the_pause_before_the_next_try(
    make_node: Any, sysfs: Path, hands_of: Any
) -> None:
    def setup(gpus: Any) -> None:
        gpus.fail_init(9)
        for gpu in gpus:
            PciBus(sysfs).unbind(gpu.pci_bus_id)

    node = make_node(still=True, setup=setup)
    for _ in range(100):
        node.scrape()
        node.clock.now += 15
    tries = _inits(node)
    node.gpus.fail_init(0)
    for index in range(3):
        hands_of(node).bind_only_in_sysfs(index)
    assert node.scrape_every(1).downs == {}
    assert _inits(node) == tries + 1


def test_a_connection_that_fails_when_it_is_made_anew_is_tried_again(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    hands.give_away(1)
    _scraped_for(node, 15)
    node.gpus.fail_init(999)
    hands.take_back(1)
    assert node.scrape_every(15).downs == {"nvml": "unknown_error", **dict.fromkeys("02", "unknown_error")}
    node.gpus.fail_init(0)
    scrape = _scraped_for(node, 15)
    assert scrape.downs == {}
    assert _up(scrape) == {"0": 1, "1": 1, "2": 1}
    assert node.library.unsafe_shutdowns == 0


def test_it_says_for_which_gpu_it_connected(make_node: Any, hands_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = make_node(still=True)
    hands = hands_of(node)
    node.scrape()
    hands.remove(1)
    _scraped_for(node, 15)
    hands.rescan(1)
    _scraped_for(node, 60)
    assert caplog.text.count("reconnected to the driver for hotplugged GPUs: 0000:2a:00.0") == 1
