"""Which NVLinks are up, from the field values where those can be believed, and else by a call for each link."""

from __future__ import annotations

from typing import Any

import pytest

CALL = "nvmlDeviceGetNvLinkState"


def _down(node: Any) -> set[str]:
    return {labels[2] for labels, up in node.scrape().values("pyrometer_gpu_nvlink_up").items() if up == 0}


def _calls(node: Any) -> int:
    return int(node.library.calls.get(CALL, 0))


def test_links_are_asked_one_by_one_only_to_compare_once_a_minute(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    assert _calls(node) == 18
    node.clock.now += 15
    node.gpus[0].set(nvlinks_down=[3])
    assert _down(node) == {"3"}
    assert _calls(node) == 18
    node.clock.now += 45
    assert _down(node) == {"3"}
    assert _calls(node) == 36


@pytest.mark.parametrize("told", [None, 0, 1])
def test_where_the_field_says_something_else_than_the_call_the_call_counts(make_node: Any, told: int | None) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(nvlinks_down=[3], nvlink_state_field=told)
    for down in ([3], [3, 5], []):
        node.gpus[0].set(nvlinks_down=down)
        assert _down(node) == {str(link) for link in down}
        node.clock.now += 15


def test_a_field_that_stops_to_tell_is_replaced_by_the_call_at_once(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    node.gpus[0].set(nvlinks_down=[3], nvlink_state_field=None)
    node.clock.now += 15
    assert _down(node) == {"3"}


def test_a_field_that_freezes_is_found_out_within_a_minute(make_node: Any) -> None:
    node = make_node(count=1, still=True, scraped=True)
    node.gpus[0].set(nvlinks_down=[3], nvlink_state_field=1)
    for _ in range(2):
        node.clock.now += 60
        assert _down(node) == {"3"}
        node.clock.now += 15
        assert _down(node) == {"3"}


def test_a_field_that_is_right_again_is_believed_again(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(nvlink_state_field=0)
    node.scrape()
    node.gpus[0].set(nvlink_state_field=1)
    for seconds in (60, 15):
        calls = _calls(node)
        node.clock.now += seconds
        node.scrape()
    assert _calls(node) == calls


def test_a_link_that_the_call_knows_nothing_of_is_absent_whatever_the_field_says(make_node: Any) -> None:
    node = make_node(count=1, still=True)
    node.gpus[0].set(errors={CALL: 3})
    scrape = node.scrape()
    assert scrape.values("pyrometer_gpu_nvlink_up") == {}
    assert scrape.value("pyrometer_gpu_nvlinks_up") is None
