"""A GPU that is added while we run costs its neighbours none of their counts."""

from __future__ import annotations

import time
from typing import Any

from pyrometer_simulator.nvml.features.events import report_xid

XIDS = "pyrometer_gpu_xid_errors_total"


def _inits(node: Any) -> int:
    return int(node.library.calls["nvmlInitWithFlags"])


def _later(node: Any) -> Any:
    return node.scrape_every(15)


def test_a_divided_neighbour_keeps_its_instances_and_one_comes_back_divided(make_node: Any, hands_of: Any) -> None:
    instances = [{"id": 7, "profile": "1g.10gb", "used_mib": 1200}, None, {"id": 5, "profile": "2g.20gb"}]
    node = make_node(still=True, setup=lambda gpus: [gpus[index].set(mig=instances) for index in (0, 1)])
    hands = hands_of(node)
    before = node.scrape().values("pyrometer_gpu_mig_instance_info")
    assert len(before) == 4
    hands.give_away(1)
    _later(node)
    hands.take_back(1)
    scrape = _later(node)
    assert scrape.downs == {}
    assert scrape.values("pyrometer_gpu_mig_instance_info") == before
    assert scrape.value("DCGM_FI_DEV_FB_USED", gpu="0", GPU_I_ID="7") == 1200
    assert _inits(node) == 2


def test_what_was_counted_of_the_neighbours_goes_on(make_node: Any, hands_of: Any) -> None:
    names = ("pyrometer_gpu_energy_joules_total", "pyrometer_gpu_clock_event_seconds_total",
             "pyrometer_gpu_clock_events_total", "pyrometer_gpu_clock_event_sampled_seconds_total")  # fmt: skip
    node = make_node()
    hands = hands_of(node)
    node.gpus[0].pulse("hw_slowdown", seconds=0.1, every=0.3)
    node.gpus[2].throttle("hw_thermal")
    node.scrape()
    began = time.monotonic()
    hands.give_away(1)
    before = _counted(node.scrape(), names)
    sampled = "pyrometer_gpu_clock_event_sampled_seconds_total"
    covered = _share(node, node.gpus[0].uuid, sampled)
    start, sampled_before = time.monotonic(), before[sampled, "0", node.gpus[0].uuid]
    for _ in range(3):
        hands.take_back(1)
        _until_sampled(node, 0.2)
        after = _counted(node.scrape(), names)
        passed = time.monotonic() - began + 0.1
        assert set(before) <= set(after)
        for key, value in before.items():
            assert value <= after[key], key
            if "seconds" in key[0]:
                assert after[key] - value <= passed, key
        before = {key: value for key, value in after.items() if key[1] != "1"}
        hands.give_away(1)
        node.scrape()
    assert _inits(node) == 4
    grown = before[sampled, "0", node.gpus[0].uuid] - sampled_before
    # A connection is no longer a gap than needed: a quarter of the time that is covered without one, also on a machine
    # whose cores are busy (two thirds where they are not).
    assert grown > 0.25 * covered * (time.monotonic() - start)


def _share(node: Any, uuid: str, name: str) -> float:
    """Measure the share of time that the sampler covers while nothing else happens."""
    start, before = time.monotonic(), node.scrape().value(name, gpu="0", uuid=uuid)
    _until_sampled(node, 0.3)
    return float(node.scrape().value(name, gpu="0", uuid=uuid) - before) / (time.monotonic() - start)


def _until_sampled(node: Any, seconds: float) -> None:
    """Wait until the sampler has covered so many more seconds of the first GPU."""
    sampled = node.collector._registry.gpus[0]._throttling.sampled
    enough, end = sum(sampled.by_mask().values()) + seconds, time.monotonic() + 30
    while sum(sampled.by_mask().values()) < enough:
        assert time.monotonic() < end
        time.sleep(0.01)
        node.scrape()


def _counted(scrape: Any, names: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    return {(name, *labels): value for name in names for labels, value in scrape.values(name).items()}


def test_a_rate_over_nvlink_spans_the_new_connection(make_node: Any, hands_of: Any) -> None:
    node = make_node(still=True)
    hands = hands_of(node)
    node.gpus[0].set(nvlink_bytes=[0, 0])
    node.scrape()
    hands.give_away(1)
    _later(node)
    node.gpus[0].set(nvlink_bytes=[15_000_000 * 1024, 0])
    hands.take_back(1)
    assert _later(node).value("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", gpu="0") == 1000
    assert _inits(node) == 2


def test_an_xid_that_only_nvml_kept_outlives_the_connection(make_node: Any, hands_of: Any) -> None:
    node = make_node()
    hands = hands_of(node)
    node.scrape()
    hands.give_away(1)
    node.scrape()
    report_xid(node.gpus[2], 94)
    hands.take_back(1)
    scrape = node.scrape()
    assert _inits(node) == 2
    assert scrape.value(XIDS, gpu="2", xid="94") == 1
    report_xid(node.gpus[2], 94)
    assert node.scrape().value(XIDS, gpu="2", xid="94") == 2
