"""The accumulator of link losses alone: every branch of what counts, what doesn't, and since when a port settles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pyrometer_exporters.node.nic.link_down import ADMIN, PortMemory, PortObservation, Widening


def seen(state: str = "up", sources: Mapping[str, int | None] | None = None, **more: Any) -> PortObservation:
    fields = {"boot": "b1", "inode": 7, "ifindex": 3, "admin_down": False, **more}
    return PortObservation(active={"up": True, "down": False, "unread": None}[state], sources=sources or {}, **fields)


def armed(**sources: int) -> PortMemory:
    """A port whose link was seen up: its losses count."""
    memory = PortMemory()
    assert memory.advance(seen(sources=sources), 1.0) == 0
    return memory


def test_a_new_port_has_no_history() -> None:
    fresh = PortMemory()
    assert (fresh.ever_active, fresh.rate_max, fresh.ifindex, fresh.active) == (False, 0, 0, False)


def test_caches_are_no_part_of_a_ports_history() -> None:
    memory, other = armed(c=1), armed(c=1)
    other.advance(seen(sources={"c": 1}), 2.0)
    other.update_settling(seen(), 3.0)
    memory.update_settling(seen(), 3.0)
    other._undisturbed_since = 99.0
    assert memory == other
    assert not {"_undisturbed_since", "_last_two"} & {part.partition("=")[0] for part in repr(other).split()}


def test_an_observation_is_of_no_boot_and_no_virtual_function_by_default() -> None:
    memory = armed(c=1)
    plain = PortObservation("b1", 7, 3, active=True, admin_down=False, sources={"c": 2})
    assert memory.advance(plain, 2.0) == 1


def test_a_third_equal_read_adds_nothing() -> None:
    memory = armed(c=1)
    down = seen("down", {"c": 2})
    assert [memory.advance(down, at) for at in (2.0, 3.0, 4.0, 5.0)] == [1, 0, 0, 0]
    assert (memory.events, memory.last_down) == (1, 2.0)


@pytest.mark.parametrize(("more", "cause"), [
    ({"nobodys": "virtual_function"}, "virtual_function"), ({"booting": True}, "boot"),
])  # fmt: skip
def test_a_loss_that_is_no_fault_is_counted_by_its_cause(more: dict[str, bool], cause: str) -> None:
    memory = armed(c=1)
    assert memory.advance(seen(sources={"c": 4}, **more), 2.0) == 0
    assert memory.ignored == {cause: 3}


def test_a_reload_and_a_reboot_restart_every_count() -> None:
    memory = armed(c=5)
    for now, (more, resets) in enumerate((
        ({"inode": 8}, {"driver_reload": 1}), ({"inode": 8, "boot": "b2"}, {"driver_reload": 1, "reboot": 1}),
        ({"inode": 9, "boot": "b2"}, {"driver_reload": 2, "reboot": 1}),
    )):  # fmt: skip
        memory.behind = {"c": 1}
        memory.widening = Widening(wraps={"x": 1})
        assert memory.advance(seen(sources={"c": 9 + now}, **more), 2.0 + now) == 0
        assert memory.resets == resets
        assert (memory.behind, memory.ignored) == ({}, {})
        assert memory.widening == Widening()


def test_the_reason_is_the_kernels_as_soon_as_it_has_one() -> None:
    memory = armed(c=1)
    memory.advance(seen("down", {"c": 2}), 2.0)
    assert memory.last_reason == ""
    memory.advance(seen("unread", {"c": 2}, reason="overheat"), 3.0)  # the state couldn't be read
    assert memory.last_reason == ""
    memory.advance(seen("down", {"c": 2}, reason="no_cable"), 4.0)
    assert memory.last_reason == "no_cable"


def test_a_loss_that_was_over_before_it_was_seen_keeps_its_reason() -> None:
    memory = armed(c=1)
    memory.advance(seen("up", {"c": 2}), 2.0)
    assert memory.last_reason == "recovered_before_seen"
    memory.advance(seen("down", {"c": 3}, reason="no_cable", admin_down=True), 3.0)
    assert (memory.last_reason, memory.ignored) == ("recovered_before_seen", {ADMIN: 1})


def test_a_port_that_never_lost_its_link_has_no_reason() -> None:
    memory = PortMemory()
    memory.advance(seen("down", reason="no_cable"), 1.0)
    assert (memory.last_down, memory.last_reason) == (None, "")


def test_an_administrator_who_switches_off_a_link_that_is_down_takes_no_loss_back() -> None:
    memory = armed(c=1)
    assert memory.advance(seen("down", {"c": 2}), 2.0) == 1
    assert memory.advance(seen("down", {"c": 2}, admin_down=True), 3.0) == 0
    assert (memory.events, memory.ignored) == (1, {})


def test_a_source_that_cannot_be_read_owes_what_the_others_saw() -> None:
    memory = armed(c=1, d=1)
    memory.advance(seen("up", {"c": 2, "d": None}), 2.0)
    memory.advance(seen("up", {"c": 4, "d": None}), 3.0)
    assert memory.behind == {"d": 3}
    assert memory.advance(seen("up", {"c": 4, "d": 4}), 4.0) == 0
    assert (memory.events, memory.behind) == (3, {})


@pytest.mark.parametrize(("state", "sources", "behind"), [
    ("down", {"carrier": 2, "link_downed": 255}, {}),  # pinned: it will never show it
    ("down", {"carrier": 256, "link_downed": 300}, {"link_downed": 1}),
    ("down", {"carrier": 256, "other": 255}, {"other": 1}),  # 255 is the end of link_downed alone
    ("up", {"carrier": 2, "link_downed": 5}, {}),  # the link is back: it would have shown it
])  # fmt: skip
def test_a_source_is_late_only_where_the_link_is_still_down(
    state: str, sources: dict[str, int], behind: dict[str, int]
) -> None:
    before = {name: value - (name == "carrier") for name, value in sources.items()}
    memory = armed(**before)
    assert memory.advance(seen(state, sources), 2.0) == 1
    assert memory.behind == behind


def test_sources_that_agree_owe_nothing() -> None:
    memory = armed(c=1, d=1)
    assert memory.advance(seen("down", {"c": 2, "d": 2}), 2.0) == 1
    assert memory.behind == {}


def test_a_port_that_was_switched_off_settles_as_that_when_it_is_back() -> None:
    memory = armed()
    memory.update_settling(seen(), 0.0)
    memory.update_settling(seen(), 61.0)
    memory.advance(seen("down", admin_down=True), 70.0)
    memory.update_settling(seen("down", admin_down=True), 70.0)
    assert (memory.settling, memory.disturbed_at) == (ADMIN, None)
    memory.advance(seen(), 80.0)
    memory.update_settling(seen(), 80.0)
    assert memory.settling == ADMIN
    memory.update_settling(seen(), 140.0)
    assert memory.settling == ""
