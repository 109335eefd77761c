"""Losses of a link are counted once, whatever happens between two looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

HAPPENINGS: dict[str, Callable[[Any], object]] = {
    "flap": lambda node: node.nic.flap(),
    "down": lambda node: node.nic.down(),
    "up": lambda node: node.nic.up(),
    "disable": lambda node: node.nic.admin_down(),
    "loss": lambda node: node.nic.count("link_downed"),
    "carrier-loss": lambda node: node.nic.interface.values.add("carrier_down_count", 1),
    "clear": lambda node: node.nic.clear(),
    "ipoib-off": lambda node: node.nic.interface.admin_down(),
    "ipoib-on": lambda node: node.nic.interface.admin_up(),
    "no-interface": lambda node: (node.sysfs / "class/net/ib0").unlink(),
    "new-interface": lambda node: node.nic.interface.values.set("ifindex", 99),
    "lagging-counters": lambda node: node.nic.port.set("state", "1: DOWN"),
    "no-uptime": lambda node: (node.tree.procfs / "uptime").write_text("soon\n"),
    "reload": lambda node: node.tree.reload_driver("mlx5_0"),
    "reboot": lambda node: node.tree.reboot(),
    "restart": lambda node: node.stop(),
}
# Happenings in turn; link_downed=N sets that counter, a number is a look that finds so many events.
STORIES = {
    "counters before the first look": "link_downed=9 0",
    "a flap": "0 flap 1",
    "a link that stays down": "0 down 1 1 1 up 1",
    "the largest increase of several sources": "0 loss loss carrier-loss carrier-loss carrier-loss 3",
    "a saturated counter": "link_downed=255 0 flap 1",
    "a loss that only the state shows": "link_downed=255 no-interface 0 down 1 1 up 1 down 2",
    "counters that follow the state, over a restart": "0 lagging-counters 1 restart loss 1",
    "a loss while the exporter was down": "0 restart down 1",
    "flaps while the exporter was down": "link_downed=4 0 restart flap flap 2",
    "a reboot": "0 flap 1 restart reboot loss loss loss 1 flap 2",
    "a reboot with the link down": "0 restart reboot down 0 flap up 0",
    "a driver reload": "link_downed=5 0 reload 0 flap 1",
    "a driver reload that keeps the counters": "0 reload link_downed=2 0",
    "an interface made anew": "0 new-interface flap 0 flap 1",
    "a clear": "link_downed=200 0 clear 0 flap 1",
    "a flap after a clear": "link_downed=200 0 clear flap 1",
    "a disabled port": "0 disable 0 up 0 flap 1",
    "IPoIB switched off": "0 ipoib-off 0 flap 1",
    "IPoIB switched on again": "0 ipoib-off 0 ipoib-on 0",
    "an uptime that cannot be read": "no-uptime 0 flap 1",
}


@pytest.mark.parametrize("story", STORIES.values(), ids=list(STORIES))
def test_losses_are_counted_once_and_only_those_that_may_be_faults(node: Any, story: str) -> None:
    for word in story.split():
        counter, _, value = word.partition("=")
        if word.isdigit():
            assert node.scrape().events() == int(word)
        elif value:
            node.nic.counters.set(counter, int(value))
        else:
            HAPPENINGS[word](node)


def test_a_port_that_was_never_lost_has_no_time_of_a_loss(node: Any) -> None:
    node.nic.counters.set("link_downed", 9)
    node.nic.interface.values.set("carrier_down_count", 12)
    scrape = node.scrape()
    assert scrape.events() == 0
    assert scrape.value("link_downed_total", "mlx5_0", "1") == 9
    assert scrape.value("link_last_down_timestamp_seconds", "mlx5_0", "1") is None


def test_a_flap_shows_on_its_own_port_with_its_time(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    scrape = node.scrape()
    assert scrape.value("link_up", "mlx5_0", "1") == 1
    assert scrape.value("link_last_down_timestamp_seconds", "mlx5_0", "1") == node.clock.now
    assert (scrape.events(), scrape.events("mlx5_1")) == (1, 0)


@pytest.mark.parametrize("counts_losses", [True, False], ids=["", "kernel that counts both directions together"])
def test_flaps_of_an_interface_without_rdma_count(node: Any, counts_losses: bool) -> None:
    interface = node.tree.interface("eth0")
    if not counts_losses:
        (interface.folder / "carrier_down_count").unlink()
    node.scrape()
    interface.flap()
    interface.flap()
    assert node.scrape().events("eth0", "") == 2


def test_an_interface_that_is_switched_off_is_no_event(node: Any) -> None:
    node.scrape()
    node.tree.interface("eth0").admin_down()
    scrape = node.scrape()
    assert scrape.events("eth0", "") == 0
    assert scrape.value("link_up", "eth0", "") == 0
    node.tree.interface("eth0").admin_up()
    assert node.scrape().events("eth0", "") == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [("down", 1), ("disable", 0), ("ipoib-off", 1)],
    ids=["down while the exporter was down", "disabled", "IPoIB switched off"],
)
def test_a_port_that_was_up_is_expected_up_unless_it_is_disabled(node: Any, change: str, expected: int) -> None:
    node.scrape()
    node.stop()
    HAPPENINGS[change](node)
    assert node.scrape().value("expected_up", "mlx5_0", "1") == expected


def test_a_renamed_device_keeps_its_count(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    node.scrape()
    node.tree.rename("mlx5_0", "rocep24s0")
    scrape = node.scrape()
    assert (scrape.events("rocep24s0"), scrape.events("mlx5_0")) == (1, None)
    node.tree.nic("rocep24s0").flap()
    assert node.scrape().events("rocep24s0") == 2


def test_a_device_without_a_guid_keeps_its_count_by_its_pci_address(node: Any) -> None:
    (node.nic.folder / "node_guid").write_text("0000:0000:0000:0000\n")
    node.scrape()
    node.nic.flap()
    node.scrape()
    node.tree.rename("mlx5_0", "mlx5_9")
    assert node.scrape().events("mlx5_9") == 1


def test_devices_with_the_same_guid_are_told_apart(node: Any) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        (node.tree.nic(name).folder / "node_guid").write_text("a088:c203:00f1:0001\n")
    node.scrape()
    node.nic.flap()
    scrape = node.scrape()
    assert (scrape.events("mlx5_0"), scrape.events("mlx5_1")) == (1, 0)


def test_a_device_that_was_unplugged_keeps_its_count(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    node.scrape()
    node.tree.unplug("mlx5_0")
    assert node.scrape().events() is None
    node.tree.plug("mlx5_0")
    assert node.scrape().events() == 1


def ignored(scrape: Any, cause: str, device: str = "mlx5_0") -> float | None:
    value: float | None = scrape.value("link_down_ignored_total", device, "1", cause)
    return value


def test_losses_of_the_first_minutes_after_a_boot_are_counted_apart(node: Any) -> None:
    (node.tree.procfs / "uptime").write_text("120.00 300.00\n")
    node.scrape()
    node.nic.flap()
    node.nic.flap()
    scrape = node.scrape()
    assert (scrape.events(), ignored(scrape, "boot")) == (0, 2)
    (node.tree.procfs / "uptime").write_text("901.00 300.00\n")
    node.nic.flap()
    scrape = node.scrape()
    assert (scrape.events(), ignored(scrape, "boot")) == (1, 2)


def test_losses_by_an_administrator_are_counted_apart(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    node.nic.admin_down()
    scrape = node.scrape()
    assert (scrape.events(), ignored(scrape, "admin")) == (1, 1)


def test_losses_of_a_port_that_was_never_up_are_counted_apart(node: Any) -> None:
    node.nic.down()
    node.scrape()
    node.nic.count("link_downed")
    scrape = node.scrape()
    assert (scrape.events(), ignored(scrape, "never_up")) == (0, 1)


def test_a_loss_that_shows_while_the_link_is_down_has_its_reason(node: Any) -> None:
    node.scrape()
    node.nic.down()
    scrape = node.scrape()
    assert scrape.value("link_down_reason_info", "mlx5_0", "1", "polling") == 1
    assert scrape.value("link_last_down_info", "mlx5_0", "1", "polling") == 1
    node.nic.up()
    scrape = node.scrape()
    assert scrape.value("link_down_reason_info", "mlx5_0", "1", "polling") is None
    assert scrape.value("link_last_down_info", "mlx5_0", "1", "polling") == 1


def test_a_loss_that_was_over_before_anybody_looked_says_so(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    assert node.scrape().value("link_last_down_info", "mlx5_0", "1", "recovered_before_seen") == 1


def settling(node: Any, device: str = "mlx5_0") -> str:
    found = node.scrape().samples
    words = [s.labels[2] for s in found if s.family.name == "pyrometer_nic_settling_info" and s.labels[0] == device]
    return " ".join(words)


def test_a_port_settles_for_a_minute_after_it_was_first_seen(node: Any) -> None:
    assert settling(node) == "never_up"
    node.clock.now += 59
    assert settling(node) == "never_up"
    node.clock.now += 1
    assert settling(node) == ""


def settled(node: Any) -> None:
    node.scrape()
    for _ in range(2):
        node.clock.now += 60
        node.scrape()


def test_a_port_settles_until_a_minute_after_its_driver_was_reloaded_and_its_link_came_up(node: Any) -> None:
    settled(node)
    node.tree.reload_driver("mlx5_0")
    node.nic.train()
    assert (settling(node), settling(node, "mlx5_1")) == ("driver_reload", "")
    node.nic.up()
    assert settling(node) == "driver_reload"
    node.clock.now += 60
    assert settling(node) == ""


def test_a_link_that_does_not_come_up_has_settled_after_a_quarter_of_an_hour_and_stays_so(node: Any) -> None:
    settled(node)
    node.tree.reload_driver("mlx5_0")
    node.nic.train()
    node.scrape()
    node.clock.now += 899
    assert settling(node) == "driver_reload"
    node.clock.now += 1
    assert settling(node) == ""
    node.stop()
    assert settling(node) == ""


def test_a_port_that_an_administrator_switched_off_settles_as_long_as_it_is_off(node: Any) -> None:
    settled(node)
    node.nic.admin_down()
    assert settling(node) == "admin"
    node.clock.now += 5000
    assert settling(node) == "admin"
    node.nic.train()
    assert settling(node) == "admin"
    node.clock.now += 900
    assert settling(node) == ""


def test_all_ports_settle_during_a_boot(node: Any) -> None:
    settled(node)
    node.tree.reboot()
    (node.tree.procfs / "uptime").write_text("90.00 300.00\n")
    assert settling(node) == "boot"
    node.clock.now += 811
    (node.tree.procfs / "uptime").write_text("901.00 300.00\n")
    assert settling(node) == "boot"
    node.clock.now += 60
    assert settling(node) == ""
