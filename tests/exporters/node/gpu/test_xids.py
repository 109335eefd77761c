"""Xids at the collector: from both sources, of sick GPUs, over restarts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from pyrometer_exporters.node.gpu.xid.catalogue import Classes
from pyrometer_exporters.node.kernel import follow
from pyrometer_kit.errors import UsageError
from pyrometer_simulator.nvml.features.events import report_xid

ERRORS = "pyrometer_gpu_xid_errors_total"
CRITICAL = "pyrometer_gpu_xid_critical_errors_total"


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(follow, "REOPEN_SECONDS", 0.02)


@pytest.fixture
def node(make_node: Any, state: Path) -> Any:
    """Two GPUs, scraped once, and an exporter that keeps state."""
    return make_node(count=2, state=state, scraped=True)


def _until(node: Any, gpu: str, expected: dict[str, float]) -> Any:
    """Scrape until the Xids of a GPU that were ever counted are these."""
    end = time.monotonic() + 30
    while True:
        scrape = node.scrape()
        found = {labels[2]: value for labels, value in scrape.values(ERRORS, gpu=gpu).items() if value}
        if found == expected:
            return scrape
        assert time.monotonic() < end, found
        time.sleep(0.01)


def _until_log_is_read(node: Any) -> None:
    node.log.xid(node.gpus[0].pci_bus_id, 31, "MMU Fault")
    _until(node, "0", {"31": 1})


def test_critical_codes_are_there_from_the_start_at_0_for_every_gpu(make_node: Any) -> None:
    scrape = make_node(count=2).scrape()
    for gpu in ("0", "1"):
        found = scrape.values(ERRORS, gpu=gpu)
        assert {int(labels[2]) for labels in found} == set(Classes().critical_codes())
        assert {labels[3] for labels in found} == {"critical"}
        assert set(found.values()) == {0}


def test_an_xid_of_the_log_and_of_nvml_counts_once(node: Any) -> None:
    report_xid(node.gpus[1], 48)
    node.log.xid(node.gpus[1].pci_bus_id, 48, "DBE (double bit error)", pid=1234)
    scrape = _until(node, "1", {"48": 1})
    assert scrape.value(ERRORS, gpu="1", xid="48", uuid=node.gpus[1].uuid) == 1
    assert scrape.value(ERRORS, gpu="0", xid="48") == 0
    _until_log_is_read(node)
    _until(node, "1", {"48": 1})


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 999])
def test_an_xid_that_only_nvml_tells_is_counted_with_its_class(node: Any, xid: int) -> None:
    report_xid(node.gpus[0], xid)
    scrape = _until(node, "0", {str(xid): 1})
    assert scrape.value(ERRORS, gpu="0", xid=str(xid), **{"class": Classes().of(xid)}) == 1


def test_critical_xids_of_all_codes_are_one_count_of_each_gpu(node: Any) -> None:
    first = node.scrape()
    assert [first.value(CRITICAL, gpu=gpu) for gpu in ("0", "1")] == [0, 0]
    for xid in (48, 79, 31, 94):  # 31 is the job's own fault, 94 was contained
        report_xid(node.gpus[1], xid)
    scrape = _until(node, "1", {"48": 1, "79": 1, "31": 1, "94": 1})
    assert scrape.value(CRITICAL, gpu="1", uuid=node.gpus[1].uuid) == 2
    assert scrape.value(CRITICAL, gpu="0") == 0


def test_several_xids_between_two_scrapes_all_count(node: Any) -> None:
    for _ in range(20):
        report_xid(node.gpus[0], 31)
    _until(node, "0", {"31": 20})


def test_a_lost_gpu_serves_its_xids_and_nothing_else(node: Any) -> None:
    node.gpus[1].lose()
    node.log.fallen_off_bus(node.gpus[1].pci_bus_id)
    scrape = _until(node, "1", {"79": 1})
    assert scrape.value("pyrometer_gpu_up", gpu="1") == 0
    assert scrape.value("DCGM_FI_DEV_XID_ERRORS", gpu="1", err_code="79") == 79
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="1") is None


def test_a_gpu_that_goes_without_an_xid_counts_as_79_once_however_often_the_driver_says_so(node: Any) -> None:
    node.gpus[1].lose()
    node.log.fallen_off_bus(node.gpus[1].pci_bus_id, with_xid=False)
    for _ in range(3):
        node.log.not_responding(node.gpus[1].pci_bus_id)
    _until(node, "1", {"79": 1})
    _until_log_is_read(node)
    _until(node, "1", {"79": 1})


def test_a_hung_gpu_holds_up_no_events_of_its_neighbour(node: Any) -> None:
    node.gpus[1].hang()
    node.scrape(0.5)
    report_xid(node.gpus[0], 94)
    node.log.xid(node.gpus[1].pci_bus_id, 119, "Timeout after 6s of waiting for RPC response from GPU1 GSP!")
    start = time.monotonic()
    _until(node, "0", {"94": 1})
    _until(node, "1", {"119": 1})
    assert time.monotonic() - start < 20
    node.gpus[1].recover()


def test_events_of_a_gpu_that_came_back_are_heard_again(node: Any) -> None:
    node.gpus[1].lose()
    node.scrape()
    node.gpus[1].recover()
    node.scrape()
    report_xid(node.gpus[1], 95)
    _until(node, "1", {"95": 1})


def test_events_are_heard_after_a_driver_reload_and_nothing_is_shut_down_under_them(node: Any) -> None:
    report_xid(node.gpus[0], 31)
    node.gpus.reload_driver()
    until(lambda: node.scrape().value("pyrometer_gpu_up", gpu="0") == 1)
    report_xid(node.gpus[0], 43)
    until(lambda: node.scrape().value(ERRORS, gpu="0", xid="43") == 1)
    assert node.library.unsafe_shutdowns == 0


def test_a_gpu_that_refuses_to_record_leaves_no_event_set_behind(make_node: Any) -> None:
    node = make_node(count=2, setup=lambda gpus: gpus[0].set(errors={"nvmlDeviceRegisterEvents": 16}))
    for _ in range(5):
        assert node.scrape().downs == {"0": "reset_required"}
    calls = node.library.calls
    assert calls["nvmlEventSetCreate"] - calls["nvmlEventSetFree"] == 1  # the healthy neighbour's


def test_a_driver_without_events_leaves_the_log(make_node: Any) -> None:
    node = make_node(count=1, setup=lambda gpus: gpus[0].set(errors={"nvmlDeviceRegisterEvents": 3}))
    assert node.scrape().downs == {}
    node.log.xid(node.gpus[0].pci_bus_id, 64, "Row remapping failure")
    _until(node, "0", {"64": 1})


def test_a_gpu_that_refuses_to_record_for_no_reason_is_served_and_asked_again(make_node: Any) -> None:
    node = make_node(count=1, still=True, setup=lambda gpus: gpus[0].set(errors={"nvmlDeviceRegisterEvents": 999}))
    for _ in range(4):
        assert node.scrape().downs == {}
    assert node.library.calls["nvmlDeviceRegisterEvents"] == 1
    node.gpus[0].set(errors={})
    node.scrape_every(60)
    report_xid(node.gpus[0], 48)
    assert node.scrape_every(15).value(ERRORS, gpu="0", xid="48") == 1
    calls = node.library.calls
    assert calls["nvmlEventSetCreate"] - calls["nvmlEventSetFree"] == 1


def test_a_log_that_may_not_be_read_is_said_and_leaves_nvml(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, _flags: int) -> int:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(follow, "_without_blocking", refuse)
    node = make_node(count=1)
    assert node.scrape().downs == {"kmsg": "no_permission"}
    report_xid(node.gpus[0], 79)
    report_xid(node.gpus[0], 154)
    scrape = _until(node, "0", {"79": 1, "154": 1})
    assert scrape.value(ERRORS, xid="154", **{"class": "warning"}) == 1
    assert scrape.value("DCGM_FI_DEV_SM_CLOCK", gpu="0") is not None


def test_what_a_log_held_before_the_first_scrape_is_not_counted_as_new_once_it_can_be_read(
    make_node: Any, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    def refuse(path: str, _flags: int) -> int:
        raise PermissionError(1, "Operation not permitted", path)

    with monkeypatch.context() as patched:
        patched.setattr(follow, "_without_blocking", refuse)
        node = make_node(count=1, state=state)
        node.log.xid(node.gpus[0].pci_bus_id, 48, "DBE")
        assert node.scrape().downs == {"kmsg": "no_permission"}
        node.log.xid(node.gpus[0].pci_bus_id, 62, "PMU Halt")
    _until(node, "0", {"62": 1})
    node.log.xid(node.gpus[0].pci_bus_id, 48, "DBE")
    _until(node, "0", {"62": 1, "48": 1})


@pytest.mark.parametrize(
    ("action", "number", "expected"), [("None", 0, "info"), ("Node Reboot Required", 2, "critical")]
)
def test_a_recovery_action_has_the_class_of_what_it_asks_for(
    node: Any, action: str, number: int, expected: str
) -> None:
    report_xid(node.gpus[0], 154)  # without a word about the action
    node.log.recovery_action(node.gpus[0].pci_bus_id, action, number)
    scrape = _until(node, "0", {"154": 1})
    assert scrape.value(ERRORS, gpu="0", xid="154", **{"class": expected}) == 1
    assert scrape.value(ERRORS, gpu="0", xid="154", **{"class": "warning"}) is None


def test_a_consequence_is_marked_with_its_cause(node: Any) -> None:
    node.log.xid(node.gpus[0].pci_bus_id, 45, "Ch 00000010", pid=9, caused_by=79)
    scrape = _until(node, "0", {"45": 1})
    assert scrape.value("pyrometer_gpu_xid_consequences_total", gpu="0", xid="45", caused_by="79") == 1


def test_the_last_xid_has_time_mig_instances_process_and_job(node: Any, tmp_path: Path) -> None:
    process = tmp_path / "proc" / "4242"
    process.mkdir(parents=True)
    (process / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n")
    (process / "status").write_text("Name:\tpython\nUid:\t1234567\t1234567\t1234567\t1234567\n")
    before = time.time()
    node.log.xid(node.gpus[0].pci_bus_id, 31, "MMU Fault", pid=4242, instances=(5, 0))
    scrape = _until(node, "0", {"31": 1})
    (labels,) = scrape.values("pyrometer_gpu_xid_last_info")
    assert labels == ("0", node.gpus[0].uuid, "31", "", "5", "0", "4242", "python", "4711", "1234567")
    at = scrape.value("pyrometer_gpu_xid_last_timestamp_seconds", gpu="0", xid="31")
    assert before - 1 <= at <= time.time()


def test_the_job_of_a_process_that_has_ended_is_remembered(node: Any, tmp_path: Path) -> None:
    process = tmp_path / "proc" / "4242"
    process.mkdir(parents=True)
    (process / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n")
    node.gpus[0].set(processes=[[4242, 1 << 30]])
    assert node.scrape().value("pyrometer_gpu_job_info", job_id="4711") == 1
    (process / "cgroup").unlink()
    process.rmdir()
    node.log.xid(node.gpus[0].pci_bus_id, 43, "Ch 00000010", pid=4242)
    scrape = _until(node, "0", {"43": 1})
    assert scrape.value("pyrometer_gpu_xid_last_info", gpu="0", job_id="4711") == 1


def test_dcgms_gauge_holds_the_last_xid_with_its_code_and_text(node: Any) -> None:
    scrape = node.scrape()
    assert scrape.value("DCGM_FI_DEV_XID_ERRORS", gpu="0", err_code="0", err_msg="No Error", Hostname="gpu-042") == 0
    node.log.xid(node.gpus[0].pci_bus_id, 31, "MMU Fault")
    node.log.xid(node.gpus[0].pci_bus_id, 4321, "new")
    scrape = _until(node, "0", {"31": 1, "4321": 1})
    assert scrape.value("DCGM_FI_DEV_XID_ERRORS", gpu="0", err_code="4321", err_msg="Unknown Error") == 4321
    assert scrape.value("DCGM_FI_DEV_XID_ERRORS", gpu="1") == 0


def test_dcgms_gauge_forgets_with_a_boot_and_not_with_a_restart(node: Any, tmp_path: Path) -> None:
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("a")
    node = node.restarted()
    node.scrape()
    report_xid(node.gpus[0], 48)
    _until(node, "0", {"48": 1})
    node = node.restarted()
    assert node.scrape().value("DCGM_FI_DEV_XID_ERRORS", gpu="0") == 48
    node.collector.close()
    boot.write_text("b")
    for _ in range(2):
        node = node.restarted()
        scrape = node.scrape()
        assert scrape.value("DCGM_FI_DEV_XID_ERRORS", gpu="0", err_msg="No Error") == 0
        assert scrape.value("pyrometer_gpu_xid_errors_total", gpu="0", xid="48") == 1
        assert scrape.values("pyrometer_gpu_xid_last_info", gpu="0", xid="48")
    report_xid(node.gpus[0], 48)
    _until(node, "0", {"48": 2})
    assert node.scrape().value("DCGM_FI_DEV_XID_ERRORS", gpu="0") == 48


def test_a_restart_counts_nothing_twice_and_what_came_meanwhile_once(node: Any) -> None:
    report_xid(node.gpus[0], 48)
    node.log.xid(node.gpus[0].pci_bus_id, 48, "DBE")
    _until(node, "0", {"48": 1})
    node.collector.close()
    node.log.xid(node.gpus[0].pci_bus_id, 79, "GPU has fallen off the bus.")
    restarted = node.restarted()
    first = restarted.scrape()
    assert first.value(ERRORS, gpu="0", xid="48") == 1
    assert first.value(ERRORS, gpu="0", xid="79", **{"class": "critical"}) == 1
    _until(restarted.restarted(), "0", {"48": 1, "79": 1})


def test_an_event_told_by_nvml_before_a_restart_and_by_the_log_after_counts_once(node: Any) -> None:
    report_xid(node.gpus[0], 48)
    _until(node, "0", {"48": 1})
    restarted = node.restarted()
    restarted.scrape()
    node.log.xid(node.gpus[0].pci_bus_id, 48, "DBE")
    node.log.xid(node.gpus[1].pci_bus_id, 31, "MMU Fault")
    _until(restarted, "1", {"31": 1})
    _until(restarted, "0", {"48": 1})


def test_the_first_scrape_has_what_the_log_held_before(make_node: Any, tmp_path: Path, state: Path) -> None:
    # Else the second would look like an Xid of now.
    (tmp_path / "kmsg").write_text("3,7,5000000,-;NVRM: Xid (PCI:0000:18:00): 62, PMU Halt\n")
    scrape = make_node(count=1, state=state).scrape()
    assert scrape.value(ERRORS, gpu="0", xid="62") == 1


def test_a_damaged_state_file_costs_old_counts_and_nothing_else(make_node: Any, state: Path) -> None:
    (state / "gpu_xid.json").write_text('{"version": 1, "counts": 7}')
    node = make_node(count=1, state=state)
    assert node.scrape().downs == {}
    node.log.xid(node.gpus[0].pci_bus_id, 62, "PMU Halt")
    _until(node, "0", {"62": 1})


def test_a_gpu_that_nvml_never_presented_has_its_address_and_its_critical_codes_from_the_start(
    make_node: Any,
) -> None:
    node = make_node(count=2, setup=lambda gpus: gpus[1].hide())
    first = node.scrape().values(ERRORS, gpu="0000:2a:00.0", uuid="")
    assert {int(labels[2]) for labels in first} == set(Classes().critical_codes())
    assert set(first.values()) == {0}
    node.log.xid(node.gpus[1].pci_bus_id, 143, "GPU initialization failure")
    until(lambda: node.scrape().value(ERRORS, gpu="0000:2a:00.0", uuid="", xid="143"))


def test_an_xid_of_a_gpu_that_only_the_log_knows_is_kept(make_node: Any) -> None:
    node = make_node(count=1, scraped=True)
    node.log.xid("0000:99:00.0", 79, "GPU has fallen off the bus.")
    until(lambda: node.scrape().value(ERRORS, gpu="0000:99:00.0", uuid="", xid="79"))


def test_where_the_driver_does_not_start_its_gpus_have_their_codes_all_the_same(make_node: Any) -> None:
    scrape = make_node(count=2, setup=lambda gpus: gpus.fail_init(9)).scrape()
    assert {labels[0] for labels in scrape.values(ERRORS)} == {"0000:18:00.0", "0000:2a:00.0"}


@pytest.mark.parametrize("flag", ["--collector.gpu.device-exclude=0000:2a:00.0", "--collector.gpu.device-include=0"])
def test_an_excluded_gpu_that_nvml_never_presented_stays_out(make_node: Any, flag: str) -> None:
    scrape = make_node(flag, count=2, setup=lambda gpus: gpus[1].hide()).scrape()
    assert {labels[0] for labels in scrape.values(ERRORS)} == {"0"}


def test_xids_of_an_excluded_gpu_are_not_served(make_node: Any) -> None:
    node = make_node("--collector.gpu.device-exclude=1", count=2, scraped=True)
    node.log.xid(node.gpus[1].pci_bus_id, 79, "GPU has fallen off the bus.")
    node.log.xid(node.gpus[0].pci_bus_id, 31, "MMU Fault")
    scrape = _until(node, "0", {"31": 1})
    assert {labels[0] for labels in scrape.values(ERRORS)} == {"0"}


def test_a_site_has_its_own_classes(make_node: Any, tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text("94: critical\n")
    node = make_node(f"--collector.gpu.xid-classes={tmp_path / 'classes.yaml'}", count=1)
    assert node.scrape().value(ERRORS, xid="94", **{"class": "critical"}) == 0


def test_a_wrong_class_file_keeps_the_exporter_from_starting(make_node: Any, tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text("94: fatal\n")
    with pytest.raises(UsageError, match=r"classes.yaml:1: fatal is not a class"):
        make_node(f"--collector.gpu.xid-classes={tmp_path / 'classes.yaml'}")
