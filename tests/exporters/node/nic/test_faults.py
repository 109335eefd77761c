"""A sick file, port or device costs itself only."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.nic.collector import COLLECTOR
from pyrometer_exporters.node.nic.device import MAX_HUNG
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import regexp


def _missing(before: Any, after: Any) -> set[tuple[str, tuple[str, ...]]]:
    """The series that were there before and are no longer."""
    return {(s.family.name, s.labels) for s in before.samples} - {(s.family.name, s.labels) for s in after.samples}


def _until(true: Callable[[], object]) -> None:
    for _ in range(300):
        if true():
            return
        time.sleep(0.01)
    pytest.fail("it did not become true within 3 s")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.EACCES, errno.ENODEV, errno.EOPNOTSUPP])
def test_a_file_that_fails_costs_itself_only(node: Any, number: int) -> None:
    whole = node.scrape()
    node.files.errors["mlx5_0/ports/1/counters/VL15_dropped"] = number
    scrape = node.scrape()
    assert _missing(whole, scrape) == {
        ("pyrometer_nic_vl15_dropped_total", ("mlx5_0", "1")),
        ("pyrometer_nic_counter_saturated", ("mlx5_0", "1", "vl15_dropped")),
    }
    assert scrape.downs == {}


@pytest.mark.parametrize("text", [b"N/A (no PMA)\n", b"", b"-1\n", b"0x10\n", b"\xff\xfe\n", b"9" * 30])
def test_a_text_that_is_no_count_costs_itself_only(node: Any, text: bytes) -> None:
    node.files.texts["mlx5_0/ports/1/counters/symbol_error"] = text
    scrape = node.scrape()
    assert scrape.value("symbol_error_total", "mlx5_0", "1") is None
    assert scrape.value("link_downed_total", "mlx5_0", "1") == 0
    assert scrape.value("symbol_error_total", "mlx5_1", "1") == 0


def test_a_file_that_recovers_is_served_again(node: Any) -> None:
    node.files.errors["mlx5_0/ports/1/counters/symbol_error"] = errno.EIO
    scrape = node.scrape()
    assert scrape.value("symbol_error_total", "mlx5_0", "1") is None
    assert scrape.value("unreadable_file_info", "mlx5_0", "ports/1/counters/symbol_error", "eio") == 1
    node.files.errors.clear()
    node.clock.now += 6
    assert node.scrape().value("symbol_error_total", "mlx5_0", "1") == 0


def test_a_file_that_the_driver_refuses_is_asked_again_later_and_later(node: Any) -> None:
    name = "mlx5_0/ports/1/counters/VL15_dropped"
    node.files.errors[name] = errno.EINVAL

    def asked() -> int:
        before = sum(name in path for path in node.files.reads)
        node.scrape()
        return sum(name in path for path in node.files.reads) - before

    assert [asked(), asked()] == [1, 0]
    node.clock.now += 31
    assert [asked(), asked()] == [1, 0]
    node.clock.now += 31
    assert asked() == 0
    node.clock.now += 31
    node.files.errors.clear()
    assert node.scrape().value("vl15_dropped_total", "mlx5_0", "1") == 0


def test_a_group_of_files_that_all_fail_is_told(node: Any) -> None:
    node.files.errors["mlx5_0/ports/1/counters/"] = errno.EINVAL
    scrape = node.scrape()
    assert scrape.downs == {"mlx5_0/1/counters": "einval"}
    assert scrape.value("link_up", "mlx5_0", "1") == 1
    assert scrape.value("local_ack_timeout_errors_total", "mlx5_0", "1") == 0


def test_a_state_that_cannot_be_read_is_absent(node: Any) -> None:
    node.scrape()
    node.files.errors["mlx5_0/ports/1/state"] = errno.EIO
    scrape = node.scrape()
    assert scrape.value("link_up", "mlx5_0", "1") is None
    assert scrape.events() == 0
    assert scrape.downs == {"mlx5_0/1/state": "eio"}


def test_a_device_none_of_whose_files_can_be_read_is_down(node: Any) -> None:
    node.files.errors["infiniband/mlx5_0/"] = errno.EIO
    scrape = node.scrape()
    assert scrape.value("up", "mlx5_0") == 0
    assert scrape.downs == {"mlx5_0": "eio"}
    assert scrape.value("up", "mlx5_1") == 1


def test_a_file_that_hangs_costs_itself_only(node: Any) -> None:
    whole, began = node.scrape(), time.monotonic()
    release = node.files.hangs["infiniband/mlx5_0/ports/1/counters/symbol_error"] = threading.Event()
    for _ in range(3):
        scrape = node.scrape(seconds=1.0)
        assert _missing(whole, scrape) == {
            ("pyrometer_nic_symbol_error_total", ("mlx5_0", "1")),
            ("pyrometer_nic_counter_saturated", ("mlx5_0", "1", "symbol_error")),
        }
        assert scrape.value("unreadable_file_info", "mlx5_0", "ports/1/counters/symbol_error", "etimedout") == 1
    node.nic.flap()
    assert node.scrape().events() == 1
    node.files.hangs.clear()
    release.set()
    _until(lambda: node.files.paths and not node.device("mlx5_0").hanging)
    node.clock.now += 61 + time.monotonic() - began  # a minute after it came back, in the machine's time
    assert node.scrape().value("symbol_error_total", "mlx5_0", "1") == 0


def test_a_state_that_hangs_leaves_the_counters(node: Any) -> None:
    node.scrape()
    release = node.files.hangs["infiniband/mlx5_0/ports/1/state"] = threading.Event()
    scrape = node.scrape(seconds=1.0)
    release.set()
    assert scrape.value("link_up", "mlx5_0", "1") is None
    assert scrape.value("symbol_error_total", "mlx5_0", "1") == 0
    assert scrape.downs == {"mlx5_0/1/state": "etimedout"}


def test_a_device_on_which_many_files_hang_is_down_and_hides_no_other(node: Any) -> None:
    node.scrape()
    release = node.files.hangs["mlx5_0/ports/1/state"] = threading.Event()
    for name in ("phys_state", "rate", "counters/link_downed", "counters/symbol_error", "counters/port_rcv_data"):
        node.files.hangs[f"mlx5_0/ports/1/{name}"] = release
    before = threading.active_count()
    for _ in range(6):
        scrape = node.scrape(seconds=1.5)
        assert scrape.value("link_up", "mlx5_1", "1") == 1
        assert scrape.value("link_up", "eth0", "") == 1
    assert scrape.value("up", "mlx5_0") == 0
    assert {s.family.name for s in scrape.samples if s.labels[0] == "mlx5_0"} == {"pyrometer_nic_up"}
    assert scrape.downs == {"mlx5_0": "deadline"}
    # The device's own one, and those of the others, should this machine have kept them waiting.
    assert threading.active_count() <= before + MAX_HUNG + len(scrape.devices())
    release.set()
    node.files.hangs.clear()
    _until(lambda: node.scrape().value("up", "mlx5_0") == 1)


def test_a_device_that_is_slow_but_goes_on_is_left_to_finish(node: Any) -> None:
    node.scrape()
    node.files.slow["infiniband/mlx5_0/"] = 0.012
    for _ in range(2):
        scrape = node.scrape(seconds=2.5)
    assert scrape.downs == {}
    assert scrape.value("unreadable_file_info", "mlx5_0", "ports/1/counters/symbol_error", "etimedout") is None


def test_a_file_whose_open_hangs_is_a_device_that_hangs(node: Any) -> None:
    node.scrape()
    state = node.nic.port.folder / "state"
    state.unlink()
    os.mkfifo(state)
    node.clock.now += 60
    scrape = node.scrape(seconds=4)
    assert scrape.downs == {"mlx5_0/1/state": "etimedout"}
    assert scrape.value("link_up", "mlx5_1", "1") == 1
    with state.open("w"):  # lets the reader go
        node.stop()


def test_an_rdma_port_does_not_wait_for_what_needs_the_rtnl_lock(node: Any) -> None:
    node.scrape()
    assert [path for path in node.files.opened if path.endswith(("net/ib0/speed", "net/ib0/carrier"))] == []


def test_a_hanging_device_costs_one_thread_however_often_it_is_asked(node: Any) -> None:
    release = node.files.hangs["infiniband/mlx5_0/ports/1/state"] = threading.Event()
    node.scrape(seconds=0.2)
    before = threading.active_count()
    for _ in range(20):
        scrape = node.scrape(seconds=0.2)
    # And one for each of the others, should this machine have kept it waiting.
    assert threading.active_count() < before + len(scrape.devices())
    release.set()


def test_a_node_without_infiniband_serves_its_interfaces(node: Any) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        node.tree.unplug(name)
    (node.sysfs / "class/infiniband").rmdir()
    scrape = node.scrape()
    assert scrape.downs == {"infiniband": "no_device"}
    assert scrape.devices() == {"eth0"}


def test_a_sysfs_that_does_not_exist_is_told(node: Any, tmp_path: Path) -> None:
    node.sysfs = tmp_path / "none"
    scrape = node.scrape()
    assert scrape.downs == {"infiniband": "no_device", "net": "no_device"}
    assert scrape.samples == []


def test_a_procfs_that_does_not_exist_stops_nothing(node: Any, tmp_path: Path) -> None:
    node.tree.procfs = tmp_path / "none"
    node.scrape()
    node.nic.flap()
    assert node.scrape().events() == 1


def test_a_device_that_is_plugged_in_appears(node: Any) -> None:
    node.tree.unplug("mlx5_1")
    assert node.scrape().value("up", "mlx5_1") is None
    node.tree.plug("mlx5_1")
    assert node.scrape().value("up", "mlx5_1") == 1


def test_a_device_that_goes_away_is_absent_and_leaves_no_descriptor(node: Any) -> None:
    node.scrape()
    node.tree.unplug("mlx5_0")
    assert node.scrape().value("up", "mlx5_0") is None
    node.scrape()
    for _ in range(100):
        if not any("mlx5_0" in path for path in node.files.paths.values()):
            return
        time.sleep(0.01)
    pytest.fail("descriptors of a device that went away stayed open")


def test_closing_leaves_no_descriptor(node: Any) -> None:
    node.scrape()
    assert node.files.paths
    node.stop()
    assert node.files.paths == {}


def test_descriptors_are_kept_open_between_scrapes(node: Any) -> None:
    node.scrape()
    opened = len(node.files.opened)
    node.scrape()
    assert node.files.opened[opened:] == []


def test_the_limit_of_open_files_is_raised_as_far_as_allowed(node: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        COLLECTOR.build(node.context()).close()
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised == (8192 if hard == resource.RLIM_INFINITY else min(8192, hard), hard)


def test_a_file_that_was_replaced_is_read_anew_within_a_minute(node: Any) -> None:
    """On a copy of a tree; a descriptor of sysfs says at once that its file is gone."""
    node.scrape()
    file = node.nic.counters.folder / "symbol_error"
    (file.parent / "new").write_text("5\n")
    (file.parent / "new").rename(file)
    node.clock.now += 60
    assert node.scrape().value("symbol_error_total", "mlx5_0", "1") == 5


def test_a_device_made_anew_is_read_anew(node: Any) -> None:
    node.scrape()
    node.tree.reload_driver("mlx5_0")
    node.nic.count("symbol_error", 8)
    assert node.scrape().value("symbol_error_total", "mlx5_0", "1") == 8


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ESTALE])
def test_a_descriptor_that_lost_its_device_is_opened_again(node: Any, number: int) -> None:
    node.scrape()
    real, failed = node.files.pread, set()

    def once(descriptor: int, size: int, offset: int) -> bytes:
        if descriptor in stale and descriptor not in failed:
            failed.add(descriptor)
            raise OSError(number, os.strerror(number))
        return bytes(real(descriptor, size, offset))

    stale = set(node.files.paths)
    node.files.pread = once
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("symbol_error_total", "mlx5_0", "1") == 0


@pytest.mark.parametrize(
    ("flag", "names", "served", "unopened"),
    [
        ("exclude", "mlx5_0", {"mlx5_1", "eth0"}, ("mlx5_0", "ib0")),
        ("exclude", "eth.*|ib.*", {"mlx5_0", "mlx5_1"}, ("/class/net/",)),
        ("exclude", "mlx5_", {"mlx5_0", "mlx5_1", "eth0"}, ()),  # a name must match as a whole
        ("include", "mlx5_1", {"mlx5_1"}, ("mlx5_0", "eth0")),
    ],
)
def test_devices_that_are_not_wanted_are_never_opened_nor_are_their_interfaces(
    node: Any, flag: str, names: str, served: set[str], unopened: tuple[str, ...]
) -> None:
    node.flags[f"collector.nic.device-{flag}"] = regexp(names)
    scrape = node.scrape()
    assert scrape.devices() == served
    assert scrape.info("mlx5_1")["netdev"] == ("" if names == "eth.*|ib.*" else "ib1")
    assert [path for path in node.files.opened if any(part in path for part in unopened)] == []


def test_include_and_exclude_exclude_each_other(node: Any) -> None:
    node.flags = {"collector.nic.device-include": regexp("a"), "collector.nic.device-exclude": regexp("b")}
    with pytest.raises(UsageError, match="device-include"):
        node.scrape()


def test_virtual_interfaces_and_bonding_masters_are_skipped(node: Any) -> None:
    (node.sysfs / "devices/virtual/net/lo").mkdir(parents=True)
    (node.sysfs / "class/net/lo").symlink_to("../../devices/virtual/net/lo")
    assert (node.sysfs / "class/net/bonding_masters").is_file()
    assert node.scrape().devices() == {"mlx5_0", "mlx5_1", "eth0"}
