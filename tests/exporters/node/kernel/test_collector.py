"""The kernel collector: counts over restarts, boots, rotations and overruns."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.kernel import follow
from pyrometer_exporters.node.kernel.collector import COLLECTOR
from pyrometer_exporters.node.kernel.events import KINDS
from pyrometer_exporters.node.kernel.follow import Follower
from pyrometer_exporters.node.kernel.kmsg import Record

EVENTS, LOST = "pyrometer_kernel_events_total", "pyrometer_kernel_log_lost_records_total"
LAST = "pyrometer_kernel_event_last_timestamp_seconds"


def test_every_kind_is_there_from_the_start_at_0(node: Any) -> None:
    found = node.scrape()
    served = [kind.name for kind in KINDS.values() if not kind.deprecated]
    assert {key[1]: value for key, value in found.items() if key[0] == EVENTS} == dict.fromkeys(served, 0)
    assert found[LOST,] == 0
    assert node.downs == {}


def test_an_event_is_counted_once_by_kind(node: Any) -> None:
    node.scrape()
    node.log.oom_kill(4711, "python")
    node.log.write("usb 1-1: new high-speed USB device")
    node.until({"oom_kill": 1})
    assert node.kinds() == {"oom_kill": 1}


def test_an_sxid_counts_on_its_head_line_with_code_link_and_severity(node: Any) -> None:
    node.log.sxid(3, "0000:c1:00.0", 20034, "LTSSM Fault Up", fatal=True, link=30)
    node.log.sxid(3, "0000:c1:00.0", 11012, "Ingress ECC soft limit error", fatal=False, link=30)
    found = node.scrape()
    assert found["pyrometer_nvswitch_sxid_errors_total", "3", "0000:c1:00.0", "20034", "fatal", "30"] == 1
    assert found["pyrometer_nvswitch_sxid_errors_total", "3", "0000:c1:00.0", "11012", "non_fatal", "30"] == 1
    assert found["pyrometer_nvswitch_errors_total", "fatal"] == 1
    assert found["pyrometer_nvswitch_errors_total", "non_fatal"] == 1
    assert found[EVENTS, "sxid"] == 2


def test_a_link_has_one_number_however_the_driver_pads_it_also_in_counts_of_an_earlier_version(node: Any) -> None:
    before = [["3", "0000:c1:00.0", "20034", "fatal", link, count] for link, count in (("08", 2), ("8", 1))]
    state = {"version": 1, "boot": "an earlier one", "sequence": 7, "kinds": {"sxid": 3}, "sxids": before}
    (node.state / "kernel.json").write_text(json.dumps(state))
    node.log.sxid(3, "0000:c1:00.0", 20034, "LTSSM Fault Up", fatal=True, link=8)
    found = node.scrape()
    counts = {key[1:]: value for key, value in found.items() if key[0] == "pyrometer_nvswitch_sxid_errors_total"}
    assert counts == {("3", "0000:c1:00.0", "20034", "fatal", "8"): 4}


def test_what_the_log_holds_at_the_first_start_is_in_the_first_scrape(node: Any) -> None:
    # Else a rise between the first two scrapes would look like something that has just happened.
    for pid in range(5):
        node.log.oom_kill(pid, "x")
    assert node.kinds() == {"oom_kill": 5}


def test_a_restart_counts_nothing_twice_and_what_came_meanwhile_once(node: Any) -> None:
    node.log.oom_kill(1, "a")
    assert node.kinds() == {"oom_kill": 1}
    node.log.write("nothing of note")
    node.collector.close()
    node.log.oom_kill(2, "b")
    node.start()
    assert node.kinds() == {"oom_kill": 2}
    node.start()
    assert node.kinds() == {"oom_kill": 2}


def test_a_new_boot_begins_its_log_anew_and_the_counts_go_on(node: Any) -> None:
    node.log.oom_kill(1, "a")
    node.log.oom_kill(2, "b")
    assert node.kinds() == {"oom_kill": 2}
    node.reboot("boot-2")
    node.log.truncate()
    node.log.sequence = 0
    node.log.oom_kill(3, "early in the boot, before the exporter")
    node.start()
    assert node.kinds() == {"oom_kill": 3}


def test_without_a_state_folder_a_restart_begins_at_0_and_at_the_logs_end(node: Any) -> None:
    node.state = None
    node.log.oom_kill(1, "before")
    assert node.kinds() == {}
    node.log.oom_kill(2, "after")
    node.until({"oom_kill": 1})
    node.start()
    assert node.kinds() == {}


def test_a_damaged_state_file_is_set_aside_and_old_events_are_not_counted_as_new(node: Any) -> None:
    node.log.oom_kill(1, "a")
    (node.state / "kernel.json").write_text('{"version": 1, "kinds": 3}')
    assert node.kinds() == {}
    assert (node.state / "kernel.json.corrupt").exists()


def test_a_state_that_cannot_be_saved_costs_no_metrics(node: Any) -> None:
    node.log.oom_kill(1, "a")
    (node.state / "kernel.json.new").mkdir()
    assert node.kinds() == {"oom_kill": 1}
    assert node.downs == {"state": "eisdir"}


@pytest.mark.parametrize("change", ["rotate", "truncate"])
def test_a_plain_file_may_be_rotated_and_truncated(node: Any, change: str) -> None:
    node.scrape()
    node.log.oom_kill(1, "a")
    node.until({"oom_kill": 1})
    getattr(node.log, change)()
    node.let_it_look()  # a file truncated and filled again between two looks can't be told from one that grew
    node.log.oom_kill(2, "b")
    node.until({"oom_kill": 2})
    node.log.oom_kill(3, "c")
    node.until({"oom_kill": 3})


def test_a_record_written_in_two_pieces_is_one(node: Any) -> None:
    node.scrape()
    with node.log.path.open("ab", buffering=0) as file:
        file.write(b"3,0,1,-;Out of memory: Kil")
        node.let_it_look()
        file.write(b"led process 1 (a)\n DEVICE=x\n")
    node.until({"oom_kill": 1})


def test_a_fifo_is_followed_over_its_writers(node: Any) -> None:
    node.log.path.unlink()
    os.mkfifo(node.log.path)
    node.scrape()
    for count in (1, 2):  # each opens the pipe and closes it again
        node.log.oom_kill(count, "a")
        node.until({"oom_kill": count})


def test_a_log_that_may_not_be_read_is_down_with_the_reason_and_is_read_once_it_may(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, _flags: int) -> int:
        raise PermissionError(1, "Operation not permitted", path)

    with monkeypatch.context() as patched:
        patched.setattr(follow, "_without_blocking", refuse)
        node.start()
        assert node.scrape() == {}
        assert node.downs == {"kmsg": "no_permission"}
    node.log.oom_kill(1, "a")
    node.until({"oom_kill": 1})
    assert node.downs == {}


@pytest.mark.parametrize(
    "text",
    [
        "Nov 28 18:00:01 gpu-001 kernel: [12345.6] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.\n",
        "[    0.000000] Linux version 6.8.0\n",
        '{"MESSAGE": "x"}\n',
    ],
)
def test_a_file_that_is_no_kernel_log_is_down_and_read_once_there_is_one(node: Any, text: str) -> None:
    node.log.path.write_text(text)
    assert node.scrape() == {}
    assert node.downs == {"kmsg": "no_kernel_log"}
    node.log.truncate()
    node.log.oom_kill(1, "a")
    node.until({"oom_kill": 1})
    assert node.downs == {}


def test_a_file_that_turns_out_to_be_none_is_down(node: Any) -> None:
    node.scrape()
    node.log.path.write_text("Nov 28 18:00:01 gpu-001 kernel: [12345.6] x\n" * 100)
    end = time.monotonic() + 5
    while node.scrape() and time.monotonic() < end:
        time.sleep(0.005)
    assert node.downs == {"kmsg": "no_kernel_log"}


def test_a_device_that_is_no_kernel_log_is_down(node: Any) -> None:
    node.log.path = Path("/dev/null")
    assert node.scrape() == {}
    assert node.downs == {"kmsg": "no_kernel_log"}


def test_what_programs_write_into_the_log_counts_nothing_and_is_not_lost(node: Any) -> None:
    node.log.write("a line of the kernel")
    with node.log.path.open("a") as file:
        file.write("11,1,5000000,-;Out of memory: Killed process 1 (forged) total-vm:1kB\n")
    node.log.sequence = 2
    node.log.oom_kill(2, "b")
    node.until({"oom_kill": 1})
    assert node.scrape()[LOST,] == 0


def test_a_restart_between_two_lines_of_an_event_counts_it_once(node: Any) -> None:
    node.log.write("mce: [Hardware Error]: Machine check events logged")
    node.log.write("EDAC MC1: 1 CE memory scrubbing error on DIMM0")
    assert node.kinds() == {"machine_check": 1}
    node.start()
    assert node.kinds() == {"machine_check": 1}


def test_kinds_that_are_deprecated_are_served_when_they_are_asked_for(node: Any) -> None:
    setattr(node.flags, "metrics.deprecated", True)
    node.log.write("mlx5_core 0000:18:00.0 ens1f0np0: Link down")
    node.log.write("CPU3: Core temperature above threshold", level=2)
    assert node.kinds() == {"link": 1, "other": 1}


def test_a_missing_log_is_down_as_missing(node: Any) -> None:
    node.log.path.unlink()
    node.scrape()
    assert node.downs == {"kmsg": "enoent"}


class Device:
    """The results of os.read on /dev/kmsg, step by step."""

    def __init__(self, *steps: bytes | OSError) -> None:
        self._steps = list(steps)

    def read(self, _descriptor: int, _size: int) -> bytes:
        step = self._steps.pop(0) if self._steps else BlockingIOError()
        if isinstance(step, OSError):
            raise step
        return step


def _followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *steps: bytes | OSError
) -> tuple[list[Record], Follower]:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    monkeypatch.setattr(follow.os, "read", Device(*steps).read)
    records: list[Record] = []
    follower = Follower(path, records.append)
    follower.start()
    assert follower.wait_settled(5)
    follower.close()
    return records, follower


def test_an_overrun_loses_what_was_overwritten_and_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, follower = _followed(
        tmp_path, monkeypatch, b"6,10,1,-;a\n", BrokenPipeError(), b"6,15,2,-;b\n D=1\n", b"6,16,3,-;c\n"
    )
    assert [record.sequence for record in records] == [10, 15, 16]
    assert follower.lost == 4
    assert follower.error is None


def test_a_record_that_its_reader_fails_on_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(b"6,1,1,-;bad\n6,2,1,-;good\n")
    taken = []

    def take(record: Record) -> None:
        if record.text == "bad":
            raise KeyError
        taken.append(record.text)

    follower = Follower(path, take)
    follower.start()
    assert follower.wait_settled(5)
    follower.close()
    assert taken == ["good"]


def pipes() -> list[str]:
    """Return what this process has open of pipes and FIFOs, by name; a listing's own descriptor is none."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += [str(link.readlink())]
    return sorted(name for name in found if name.startswith("pipe:") or name.endswith("/kmsg"))


def test_nothing_is_left_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    before = pipes()
    followers = [Follower(path, lambda _record: None) for _ in range(5)]
    for follower in followers:
        follower.start()
        assert follower.wait_settled(5)
        follower.close()
    end = time.monotonic() + 5
    while any(thread.name == "kmsg" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.005)
    assert set(pipes()) <= set(before)
    assert pipes().count(str(path)) == 1
    os.close(writer)


def test_output_is_the_golden_one(node: Any, golden: Callable[[str, str], None]) -> None:
    node.log.oom_kill(1, "a")
    node.log.sxid(3, "0000:c1:00.0", 20034, "LTSSM Fault Up", fatal=True, link=30)
    node.start()
    samples = [item for item in node.collector.collect(time.monotonic() + 4) if isinstance(item, Sample)]
    text = re.sub(rf"({LAST}\{{.*\}}) .*", r"\1 TIME", Renderer().text(samples).decode())
    golden(text, "golden/metrics.txt")
    parsed = {family.name for family in text_string_to_metric_families(text.replace("TIME", "0"))}
    assert parsed == {family.name.removesuffix("_total") for family in COLLECTOR.families}


def test_the_latest_event_of_a_kind_has_its_time_and_what_it_was_about_over_restarts(node: Any) -> None:
    node.log.oom_kill(1, "a")
    node.log.oom_kill(4711, "python")
    node.until({"oom_kill": 2})
    last = {key[1:]: value for key, value in node.scrape().items() if key[0] == LAST}
    assert last.keys() == {("oom_kill", "python[4711]")}
    node.start()
    assert {key[1:]: value for key, value in node.scrape().items() if key[0] == LAST} == last


def test_what_the_hardware_could_not_correct_counts_apart(node: Any) -> None:
    node.log.write("EDAC MC0: 1 CE memory read error on DIMM0")
    node.log.write("EDAC MC2: 1 UE memory scrubbing error")
    node.log.write("pcieport 0000:3a:00.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:3b:00.0")
    node.until({"machine_check": 2, "pcie_aer": 1})
    found = node.scrape()
    assert found["pyrometer_kernel_uncorrected_events_total", "machine_check"] == 1
    assert found["pyrometer_kernel_uncorrected_events_total", "pcie_aer"] == 1
