"""Losses of a link are counted once, whatever happens between two looks."""

from __future__ import annotations

from typing import Any


def test_a_port_starts_at_zero_whatever_its_counters_say(node: Any) -> None:
    node.nic.counters.set("link_downed", 9)
    node.nic.interface.values.set("carrier_down_count", 12)
    scrape = node.scrape()
    assert scrape.events() == 0
    assert scrape.value("link_downed_total", "mlx5_0", "1") == 9
    assert scrape.value("link_last_down_timestamp_seconds", "mlx5_0", "1") is None


def test_a_flap_between_two_scrapes_counts(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    scrape = node.scrape()
    assert scrape.value("link_up", "mlx5_0", "1") == 1
    assert scrape.events() == 1
    assert scrape.value("link_last_down_timestamp_seconds", "mlx5_0", "1") == node.clock.now
    assert scrape.events("mlx5_1") == 0


def test_a_flap_of_an_interface_without_rdma_counts(node: Any) -> None:
    node.scrape()
    node.tree.interface("eth0").flap()
    assert node.scrape().events("eth0", "") == 1


def test_kernels_that_count_both_directions_together_are_understood(node: Any) -> None:
    (node.tree.interface("eth0").folder / "carrier_down_count").unlink()
    node.scrape()
    node.tree.interface("eth0").flap()
    node.tree.interface("eth0").flap()
    assert node.scrape().events("eth0", "") == 2


def test_an_interface_made_anew_is_a_driver_reload(node: Any) -> None:
    node.scrape()
    node.nic.interface.values.set("ifindex", 99)
    node.nic.flap()
    assert node.scrape().events() == 0
    node.nic.flap()
    assert node.scrape().events() == 1


def test_a_link_that_stays_down_counts_once(node: Any) -> None:
    node.scrape()
    node.nic.down()
    assert [node.scrape().events() for _ in range(3)] == [1, 1, 1]
    node.nic.up()
    assert node.scrape().events() == 1


def test_sources_are_merged_by_their_largest_increase(node: Any) -> None:
    node.scrape()
    node.nic.count("link_downed", 2)
    node.nic.interface.values.add("carrier_down_count", 3)
    assert node.scrape().events() == 3


def test_a_saturated_counter_leaves_it_to_the_others(node: Any) -> None:
    node.nic.counters.set("link_downed", 255)
    node.scrape()
    node.nic.flap()
    assert node.scrape().events() == 1


def test_a_loss_that_no_counter_saw_counts_by_the_state(node: Any) -> None:
    node.nic.counters.set("link_downed", 255)
    (node.sysfs / "class/net/ib0").unlink()
    node.scrape()
    node.nic.down()
    assert node.scrape().events() == 1
    assert node.scrape().events() == 1
    node.nic.up()
    node.scrape()
    node.nic.down()
    assert node.scrape().events() == 2


def test_a_flap_while_the_exporter_was_down_counts(node: Any) -> None:
    node.nic.counters.set("link_downed", 4)
    node.scrape()
    node.stop()
    node.nic.flap()
    node.nic.flap()
    assert node.scrape().events() == 2


def test_a_port_that_went_down_while_the_exporter_was_down_is_still_expected_up(node: Any) -> None:
    node.scrape()
    node.stop()
    node.nic.down()
    scrape = node.scrape()
    assert scrape.value("expected_up", "mlx5_0", "1") == 1
    assert scrape.events() == 1


def test_a_reboot_is_no_event_and_keeps_the_count(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    node.scrape()
    node.stop()
    node.tree.reboot()
    node.nic.count("link_downed", 3)
    scrape = node.scrape()
    assert scrape.events() == 1
    node.nic.flap()
    assert node.scrape().events() == 2


def test_a_reboot_with_the_link_down_is_no_event_even_when_it_comes_up(node: Any) -> None:
    node.scrape()
    node.stop()
    node.tree.reboot()
    node.nic.down()
    assert node.scrape().events() == 0
    node.nic.flap()
    node.nic.up()
    assert node.scrape().events() == 0


def test_a_driver_reload_is_no_event(node: Any) -> None:
    node.nic.counters.set("link_downed", 5)
    node.scrape()
    node.tree.reload_driver("mlx5_0")
    assert node.scrape().events() == 0
    node.nic.flap()
    assert node.scrape().events() == 1


def test_a_driver_reload_that_keeps_the_counters_is_no_event(node: Any) -> None:
    node.scrape()
    node.tree.reload_driver("mlx5_0")
    node.nic.counters.set("link_downed", 2)
    assert node.scrape().events() == 0


def test_clearing_the_counters_is_no_event(node: Any) -> None:
    node.nic.counters.set("link_downed", 200)
    node.scrape()
    node.nic.clear()
    assert node.scrape().events() == 0
    node.nic.flap()
    assert node.scrape().events() == 1


def test_events_after_a_clear_count(node: Any) -> None:
    node.nic.counters.set("link_downed", 200)
    node.scrape()
    node.nic.clear()
    node.nic.flap()
    assert node.scrape().events() == 1


def test_a_disabled_port_is_no_event_and_not_expected_up(node: Any) -> None:
    node.scrape()
    node.nic.admin_down()
    scrape = node.scrape()
    assert scrape.events() == 0
    assert scrape.value("expected_up", "mlx5_0", "1") == 0
    node.nic.up()
    assert node.scrape().events() == 0
    node.nic.flap()
    assert node.scrape().events() == 1


def test_an_interface_that_is_switched_off_is_no_event(node: Any) -> None:
    node.scrape()
    node.tree.interface("eth0").admin_down()
    scrape = node.scrape()
    assert scrape.events("eth0", "") == 0
    assert scrape.value("link_up", "eth0", "") == 0
    node.tree.interface("eth0").admin_up()
    assert node.scrape().events("eth0", "") == 0


def test_switching_off_ipoib_says_nothing_about_the_port(node: Any) -> None:
    node.scrape()
    node.nic.interface.admin_down()
    scrape = node.scrape()
    assert scrape.events() == 0
    assert scrape.value("expected_up", "mlx5_0", "1") == 1
    node.nic.flap()
    assert node.scrape().events() == 1


def test_switching_ipoib_on_again_is_no_event(node: Any) -> None:
    node.scrape()
    node.nic.interface.admin_down()
    node.scrape()
    node.nic.interface.admin_up()
    assert node.scrape().events() == 0


def test_a_renamed_device_keeps_its_count(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    node.scrape()
    node.tree.rename("mlx5_0", "rocep24s0")
    scrape = node.scrape()
    assert scrape.events("rocep24s0") == 1
    assert scrape.events("mlx5_0") is None
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


def test_an_uptime_that_cannot_be_read_ignores_nothing(node: Any) -> None:
    (node.tree.procfs / "uptime").write_text("soon\n")
    node.scrape()
    node.nic.flap()
    assert node.scrape().events() == 1


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


def test_the_source_that_lags_is_remembered_over_a_restart(node: Any) -> None:
    node.scrape()
    node.nic.port.set("state", "1: DOWN")  # the counters follow later
    assert node.scrape().events() == 1
    node.stop()
    node.nic.count("link_downed")
    assert node.scrape().events() == 1


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
