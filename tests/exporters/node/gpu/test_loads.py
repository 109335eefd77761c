"""Collectors that ask more often while ranks wait know what the GPU collector reads."""

from __future__ import annotations

from typing import Any


def test_a_scrape_notes_the_load_of_each_gpu(make_node: Any) -> None:
    node = make_node(count=2, still=True)
    assert node.clock is not None
    for power in (650.0, 180.0, 180.0):
        for gpu in (0, 1):
            node.gpus[gpu].load(utilisation=100, power_watts=power)
        node.clock.now += 15
        assert not node.loads.spin(node.clock.now)
        node.scrape()
    assert node.loads.spin(node.clock.now)


def test_a_gpu_that_does_not_answer_says_nothing_of_its_load(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].load(utilisation=100, power_watts=650.0)
    node.scrape()
    node.gpus[0].fail(15)  # NVML_ERROR_GPU_IS_LOST
    node.scrape()
    assert not node.loads.spin(node.clock.now)
