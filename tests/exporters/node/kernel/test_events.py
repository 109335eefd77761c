"""Which lines are events, of what kind, and how many. The lines are those that Linux and the drivers print."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import kernel_lines

from pyrometer_exporters.node.gpu.xid.lines import LineParser
from pyrometer_exporters.node.kernel.catalogue import LINES, Line
from pyrometer_exporters.node.kernel.events import KINDS, EventReader, Sxid, sxid
from pyrometer_exporters.node.kernel.kmsg import Record

HERE = Path(__file__).parent
BOOTS = sorted((HERE / "boots").glob("*.txt"))
PEERS = kernel_lines.peers_rows()
PARSER = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def read(*lines: str, apart: float = 0.001, level: int = 3, began: float = 1000.0) -> dict[str, int]:
    """Return the events of lines by kind; those that were not corrected also as ``kind!``."""
    reader, found = EventReader(), Counter[str]()
    for number, text in enumerate(lines):
        event = reader.feed(Record(level, number, began + number * apart, text))
        if event is not None:
            found[event.kind] += event.is_new
            found[f"{event.kind}!"] += event.uncorrected
    return {name: count for name, count in found.items() if count}


def parts(*lines: str) -> list[str]:
    """Return what the event of the last line is about, after each."""
    reader = EventReader()
    events = [reader.feed(Record(3, n, 1000.0 + n * 0.001, text)) for n, text in enumerate(lines)]
    return [event.part for event in events if event is not None]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.kind}: {line.example[:60]}")
def test_each_line_of_the_catalogue_is_an_event_of_its_kind(line: Line) -> None:
    found = read(line.example)
    assert found.pop(line.kind) == 1
    assert found in ({}, {f"{line.kind}!": 1})
    assert found or not line.uncorrected
    assert line.kind in KINDS
    assert line.source


LOGGED = "mce: [Hardware Error]: Machine check events logged"
CORRECTED = "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1)"
APEI = "{3}[Hardware Error]: "


def firmware(severity: str, section: str, *more: str) -> list[str]:
    lines = ["Hardware error from APEI Generic Hardware Error Source: 512", f"event severity: {severity}",
             f" Error 0, type: {severity}", f"  section_type: {section}", *(f"  {line}" for line in more)]  # fmt: skip
    return [APEI + line for line in lines]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([LOGGED, CORRECTED], {"machine_check": 1}),
        ([LOGGED, CORRECTED, CORRECTED, CORRECTED], {"machine_check": 3}),
        (["EDAC MC0: 1 CE memory read error", "EDAC MC2: 1 UE memory read error"],
         {"machine_check": 2, "machine_check!": 1}),
        ([LOGGED, "[Hardware Error]: Corrected error, no action required.",
          "[Hardware Error]: CPU:2 (19:1:1) MC17_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b",
          "[Hardware Error]: Error Addr: 0x00000003f4c2d500", "EDAC MC0: 1 CE on mc#0csrow#2channel#3 (csrow:2)",
          "[Hardware Error]: cache level: L3/GEN, tx: GEN, mem-tx: RD"], {"machine_check": 1}),
        (["[Hardware Error]: Deferred error, no action required."], {"machine_check": 1, "machine_check!": 1}),
        ([LOGGED, "EDAC MC0: 1 UE memory read error on CPU_SrcID#0",
          "mce: Uncorrected hardware memory error in user-access at 7c7a37fc80",
          "Memory failure: 0x7c7a37f: Sending SIGBUS to python:12345 due to hardware memory corruption",
          "Memory failure: 0x7c7a37f: Sending SIGBUS to python:12346 due to hardware memory corruption",
          "Memory failure: 0x7c7a37f: recovery action for dirty LRU page: Recovered"],
         {"machine_check": 1, "machine_check!": 1}),
        (["mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010091",
          "mce: [Hardware Error]: TSC 0 ADDR 1 MISC 2", "mce: [Hardware Error]: PROCESSOR 0:50657 TIME 1 SOCKET 0"],
         {"machine_check": 1}),
        (["mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000800400"],
         {"machine_check": 1, "machine_check!": 1}),
        (["mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 0000000000000000"], {}),
        ([*firmware("corrected", "PCIe error", "device_id: 0000:16:01.0"),
          "pcieport 0000:16:01.0: AER: aer_status: 0x00000001, aer_mask: 0x00002000"], {"pcie_aer": 1}),
        (firmware("recoverable", "PCIe error"), {"pcie_aer": 1, "pcie_aer!": 1}),
        (["EDAC MC0: 1 CE Single-bit ECC on unknown memory (node: 0 - APEI location: node: 0 card: 0)",
          *firmware("corrected", "memory error")], {"machine_check": 1}),
        (firmware("fatal", "memory error"), {"machine_check": 1, "machine_check!": 1}),
        (firmware("info", "Firmware Error Record Reference"), {}),
        (["BERT: Error records from previous boot:", "[Hardware Error]: event severity: fatal",
          "[Hardware Error]:  Error 0, type: fatal", "[Hardware Error]:   section_type: PCIe error"], {}),
        (["pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:3b:00.0",
          "nvme 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
          "nvme 0000:3b:00.0:   device [144d:a80a] error status/mask=00000001/0000e000",
          "nvme 0000:3b:00.0:    [ 0] RxErr"] * 2, {"pcie_aer": 2}),
        (["pcieport 0000:3a:00.0: DPC: containment event, status:0x1f01 source:0x0000",
          "pcieport 0000:3a:00.0: DPC: unmasked uncorrectable error detected",
          "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
          "pcieport 0000:3a:00.0: AER: device recovery failed"], {"pcie_aer": 1, "pcie_aer!": 1}),
        (["nvme nvme4: I/O 22 QID 3 timeout, aborting", "nvme nvme4: I/O 22 QID 3 timeout, reset controller",
          *["I/O error, dev nvme4n1, sector 2048 op 0x0:(READ) flags 0x80700"] * 50,
          "nvme nvme4: Disabling device after reset failure: -19"], {"nvme": 1, "nvme!": 1}),
        (["I/O error, dev nvme4n1, sector 1", "I/O error, dev nvme5n1, sector 1"], {"nvme": 2, "nvme!": 2}),
        (["EXT4-fs error (device sda1): ext4_journal_check_start:83: comm python: Detected aborted journal",
          "Aborting journal on device sda1-8.", "EXT4-fs (sda1): Remounting filesystem read-only"], {"filesystem": 1}),
        (["XFS (loop0): User initiated shutdown received. Shutting down filesystem"], {}),
        (["BUG: unable to handle page fault for address: ffff8881", "#PF: supervisor write access in kernel mode",
          "Oops: 0002 [#1] PREEMPT SMP NOPTI", "Kernel panic - not syncing: Fatal exception"], {"kernel_fault": 1}),
        (["general protection fault: 0000 [#1] SMP PTI"], {"kernel_fault": 1}),
        (["Memory cgroup out of memory: Killed process 1 (a) total-vm:1kB", "oom_reaper: reaped process 1 (a)",
          "Memory cgroup out of memory: Killed process 2 (b) total-vm:1kB"], {"oom_kill": 2}),
    ],
)  # fmt: skip
def test_an_event_is_counted_once_however_many_lines_it_has(lines: list[str], found: dict[str, int]) -> None:
    assert read(*lines, level=0 if "Error]: TSC" in str(lines) else 3) == found


def test_a_task_that_stays_blocked_is_one_event_and_another_is_another() -> None:
    lines = [f"INFO: task python:4711 blocked for more than {seconds} seconds." for seconds in (122, 245, 368)]
    assert read(*lines, apart=123) == {"hung_task": 1}
    assert read(*lines, "INFO: task UVM GPU1 BH:4567 blocked for more than 120 seconds.", apart=123) == {"hung_task": 2}


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (["Out of memory: Killed process 4711 (python) total-vm:1kB"], "python[4711]"),
        ([LOGGED, CORRECTED], "EDAC MC1"),
        (firmware("corrected", "PCIe error", "device_id: 0000:16:01.0"), "0000:16:01.0"),
        ([*firmware("corrected", "x")[:2], f"{APEI}fru_text: A6", f"{APEI}  section_type: memory error"], "A6"),
        (["pcieport 10000:e0:06.0: AER: Correctable error message received from 10000:e1:00.0"], "10000:e1:00.0"),
        (["pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5"], ""),
        (["I/O error, dev nvme3n1, sector 1"], "nvme3"),
        (["XFS (dm-3): metadata I/O error in \"xfs_da_read_buf\" at daddr 0x1"], "dm-3"),
        (["mlx5_core 0000:5c:00.0: Detected insufficient power on the PCIe slot (27W)."], "0000:5c:00.0"),
    ],
)  # fmt: skip
def test_an_event_names_what_it_is_about(lines: list[str], part: str) -> None:
    assert parts(*lines)[-1] == part


NO_EVENTS = [
    "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "pcieport 0000:3a:00.0: AER: enabled with IRQ 26",
    "nvme nvme0: 64/0/0 default/read/poll queues",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    "critical target error, dev nvme0n1, sector 0 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 0",
    "mlx5_core 0000:13:00.0: mlx5_pcie_event:297:(pid 11): PCIe slot power capability was not advertised.",
    "mlx5_core 0000:18:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:18:00.0 ens1f0np0: Link up",
    "EXT4-fs (sda1): error count since last fsck: 3",
    "FAT-fs (sda1): Volume was not properly unmounted. Some data may be corrupt. Please run fsck.",
    "XFS (dm-3): Unmounting Filesystem",
    "RAS: Correctable Errors collector initialized.",
    "traps: python[4711] general protection fault ip:401136 sp:7ffd error:0 in python3.11[401000+1000]",
    "systemd[1]: Started Link down watcher.",
    "sshd[1]: user said: Out of memory: Killed process 1",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
]


@pytest.mark.parametrize("text", NO_EVENTS)
def test_lines_that_accompany_or_quote_an_event_or_come_with_every_boot_are_none(text: str) -> None:
    assert read(text) == {}
    assert sxid(text) is None


def test_what_healthy_machines_log_at_boot_counts_later() -> None:
    text = "mlx5_core 0000:01:00.0: mlx5_pcie_event:301:(pid 9): Detected insufficient power on the PCIe slot (27W)."
    assert [read(text, began=began) for began in (9.4, 3600.0)] == [{}, {"nic": 1}]
    assert EventReader().feed(Record(4, 1, 9.4, text), live=True) is not None


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.example[:60])
def test_no_program_can_write_an_event_by_its_names(line: Line) -> None:
    name = line.example[:15]
    crash = f"{name}[4711]: segfault at 0 ip 0000000000401136 sp 00007ffd error 6 in {line.example[15:]}[401000+1000]"
    assert read(crash).keys() <= {"segfault"}


@pytest.mark.parametrize("file", BOOTS, ids=lambda file: file.stem)
def test_a_clean_boot_has_no_event(file: Path) -> None:
    head, *lines = file.read_text().splitlines()
    assert head.startswith("# ")
    assert len(lines) > 300
    assert {kind: n for kind, n in read(*lines, level=6).items() if not KINDS[kind].deprecated} == {}
    xids = LineParser()
    assert not any(xids.feed(line) or sxid(line) for line in lines)


def _first_characters(pattern: Iterable[Any]) -> set[str] | None:
    """Return what a parsed expression can begin with; None where it can be empty, or begin with almost anything."""
    found: set[str] = set()
    for name, value in pattern:
        if str(name) in ("ASSERT", "ASSERT_NOT", "AT"):
            continue
        if str(name) == "LITERAL":
            return found | {chr(value)}
        if str(name) == "IN":
            return None if any(str(kind) != "LITERAL" for kind, _ in value) else found | {chr(v) for _, v in value}
        if str(name) == "SUBPATTERN":
            inner = [_first_characters(value[-1])]
        elif str(name) == "BRANCH":
            inner = [_first_characters(branch) for branch in value[1]]
        elif str(name) == "MAX_REPEAT":
            inner = [_first_characters(value[2])]
        else:
            return None
        if None in inner:
            return None
        found |= {character for characters in inner for character in characters or ()}
        if str(name) != "MAX_REPEAT" or value[0]:
            return found
    return None


@pytest.mark.parametrize("line", [line for line in LINES if not line.needle], ids=lambda line: line.example[:40])
def test_a_line_is_looked_for_by_every_word_that_it_begins_with(line: Line) -> None:
    first = _first_characters(PARSER.parse(line.expression))
    assert first is not None, "give it a needle"
    assert first == {start[0] for start in line.starts}


@pytest.mark.parametrize("line", [line for line in LINES if line.needle], ids=lambda line: line.needle)
def test_a_line_of_any_name_holds_its_needle(line: Line) -> None:
    assert line.needle in line.example
    assert line.needle in line.expression.replace("\\", "")


def test_clean_boots_are_of_six_kernels_and_six_vendors() -> None:
    heads = [file.read_text().partition("\n")[0] for file in BOOTS]
    assert len({head.partition("Linux ")[2].split("-")[0] for head in heads}) >= 6
    assert len({head[2:].split()[0] for head in heads}) >= 6


@pytest.mark.parametrize("row", PEERS, ids=lambda row: f"{row[0].split()[0]}: {row[1]}")
def test_what_the_peers_match_has_our_answer(row: list[str]) -> None:
    _, _, line, answer, reason = row
    if answer == "xid":
        assert LineParser().feed(line)
    elif answer == "sxid":
        assert sxid(line)
    else:
        expected = [answer.rstrip("!"), *([answer] if answer.endswith("!") else [])]
        assert read(line) == (dict.fromkeys(expected, 1) if answer != "-" else {})
    assert bool(reason) == (answer == "-")


@pytest.mark.parametrize(("level", "found"), [(0, {"other": 1}), (2, {"other": 1}), (3, {}), (6, {})])
def test_what_no_row_knows_counts_from_critical_on(level: int, found: dict[str, int]) -> None:
    assert read("CPU3: Core temperature above threshold", level=level) == found


def test_xids_and_details_of_a_machine_check_are_no_other_events_however_loud() -> None:
    assert read("NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.", level=0) == {}
    assert read("mce: [Hardware Error]: TSC 0 ADDR 1 MISC 2", level=0) == {}


def test_a_kind_has_a_rule_or_goes() -> None:
    rules = "".join(file.read_text() for file in (HERE.parents[3] / "alert_rules").glob("*.rules.yaml"))
    for kind in KINDS.values():
        assert kind.deprecated or f"alert: {kind.rule}\n" in rules, kind.name
        assert kind.name == "sxid" or any(line.kind == kind.name for line in LINES) or kind.name == "other"


def test_the_page_of_lines_is_the_catalogues() -> None:
    assert (HERE.parents[3] / "docs/reference/kernel-lines.md").read_text() == kernel_lines.page(), "`make reference`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            Sxid("3", "0000:c1:00.0", "20034", fatal=True, link="30"),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:C1:00.0): 11012, Non-fatal, Link 05 Ingress ECC soft error",
            Sxid("0", "0000:c1:00.0", "11012", fatal=False, link="5"),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:C1:00.0): 11012, Non-fatal, Link 00 Ingress ECC soft error",
            Sxid("0", "0000:c1:00.0", "11012", fatal=False, link="0"),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10003, Non-fatal, Link -1 Host unhandled interrupt",
            Sxid("0", "0000:c1:00.0", "10003", fatal=False, link=""),
        ),
        (
            "nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): 10004, Non-fatal, TSENSE THERM Shutdown",
            Sxid("1", "0000:c1:00.0", "10004", fatal=False, link=""),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal",
            Sxid("3", "0000:05:00.0", "12028", fatal=False, link=""),
        ),
    ],
)
def test_an_sxid_is_its_head_line(text: str, expected: Sxid) -> None:
    assert sxid(text) == expected


@given(st.lists(st.tuples(st.text() | st.sampled_from([line.example for line in LINES]), st.integers(0, 7))))
def test_any_lines_have_known_kinds_or_none(lines: list[tuple[str, int]]) -> None:
    reader = EventReader()
    for number, (text, level) in enumerate(lines):
        for line in (text, APEI + text):
            event = reader.feed(Record(level, number, number / 10, line))
            assert event is None or event.kind in KINDS
        sxid(f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {text}")
