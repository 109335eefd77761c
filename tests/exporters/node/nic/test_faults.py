"""A sick file, port or device costs itself only."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.framework.flags import UsageError, regexp
from pyrometer_exporters.node.nic.collector import COLLECTOR


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.EACCES, errno.ENODEV, errno.EOPNOTSUPP])
def test_a_file_that_fails_costs_itself_only(node: Any, number: int) -> None:
    whole = node.scrape()
    node.files.errors["mlx5_0/ports/1/counters/VL15_dropped"] = number
    scrape = node.scrape()
    missing = {(s.family.name, s.labels) for s in whole.samples} - {(s.family.name, s.labels) for s in scrape.samples}
    assert missing == {
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
    assert node.scrape().value("symbol_error_total", "mlx5_0", "1") is None
    node.files.errors.clear()
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


def test_a_device_that_hangs_is_down_and_hides_no_other(node: Any) -> None:
    node.scrape()
    release = node.files.hangs["infiniband/mlx5_0/ports/1/counters/symbol_error"] = threading.Event()
    for _ in range(3):
        scrape = node.scrape(seconds=0.3)
        assert scrape.value("up", "mlx5_0") == 0
        assert {s.family.name for s in scrape.samples if s.labels[0] == "mlx5_0"} == {"pyrometer_nic_up"}
        assert scrape.downs == {"mlx5_0": "deadline"}
        assert scrape.value("link_up", "mlx5_1", "1") == 1
        assert scrape.value("link_up", "eth0", "") == 1
    node.nic.flap()
    release.set()
    node.files.hangs.clear()
    for _ in range(100):
        scrape = node.scrape()
        if scrape.value("up", "mlx5_0") == 1:
            break
        time.sleep(0.01)
    assert scrape.events() == 1
    assert scrape.downs == {}


def test_a_file_whose_open_hangs_is_a_device_that_hangs(node: Any) -> None:
    node.scrape()
    state = node.nic.port.folder / "state"
    state.unlink()
    os.mkfifo(state)
    scrape = node.scrape(seconds=0.3)
    assert scrape.downs == {"mlx5_0": "deadline"}
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
        node.scrape(seconds=0.2)
    assert threading.active_count() == before
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


def test_a_file_that_was_replaced_is_read_anew(node: Any) -> None:
    node.scrape()
    file = node.nic.counters.folder / "symbol_error"
    (file.parent / "new").write_text("5\n")
    (file.parent / "new").rename(file)
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

    def once(descriptor: int) -> bytes:
        if descriptor not in failed:
            failed.add(descriptor)
            raise OSError(number, os.strerror(number))
        return bytes(real(descriptor))

    stale = set(node.files.paths)
    node.files.pread = lambda d: once(d) if d in stale and d not in failed else real(d)
    scrape = node.scrape()
    assert scrape.downs == {}
    assert scrape.value("symbol_error_total", "mlx5_0", "1") == 0


def test_an_excluded_device_is_never_opened_nor_is_its_interface(node: Any) -> None:
    node.flags["collector.nic.device-exclude"] = regexp("mlx5_0")
    scrape = node.scrape()
    assert scrape.devices() == {"mlx5_1", "eth0"}
    assert [path for path in node.files.opened if "mlx5_0" in path or "ib0" in path] == []


def test_an_excluded_interface_is_never_opened(node: Any) -> None:
    node.flags["collector.nic.device-exclude"] = regexp("eth.*|ib.*")
    assert node.scrape().devices() == {"mlx5_0", "mlx5_1"}
    assert [path for path in node.files.opened if "/class/net/" in path] == []


def test_only_included_devices_are_opened(node: Any) -> None:
    node.flags["collector.nic.device-include"] = regexp("mlx5_1")
    scrape = node.scrape()
    assert scrape.devices() == {"mlx5_1"}
    assert scrape.info("mlx5_1")["netdev"] == "ib1"
    assert [path for path in node.files.opened if "mlx5_0" in path or "eth0" in path] == []


def test_a_name_must_match_as_a_whole(node: Any) -> None:
    node.flags["collector.nic.device-exclude"] = regexp("mlx5_")
    assert node.scrape().devices() == {"mlx5_0", "mlx5_1", "eth0"}


def test_include_and_exclude_exclude_each_other(node: Any) -> None:
    node.flags = {"collector.nic.device-include": regexp("a"), "collector.nic.device-exclude": regexp("b")}
    with pytest.raises(UsageError, match="device-include"):
        node.scrape()


def test_virtual_interfaces_and_bonding_masters_are_skipped(node: Any) -> None:
    (node.sysfs / "devices/virtual/net/lo").mkdir(parents=True)
    (node.sysfs / "class/net/lo").symlink_to("../../devices/virtual/net/lo")
    assert (node.sysfs / "class/net/bonding_masters").is_file()
    assert node.scrape().devices() == {"mlx5_0", "mlx5_1", "eth0"}
