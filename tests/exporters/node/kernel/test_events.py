"""Which lines are events, and of what kind. The lines are those that Linux and the drivers print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.kernel.events import KINDS, Sxid, kind_of, part_of, sxid
from pyrometer_exporters.node.kernel.kmsg import Record

EVENTS = [
    ("oom_kill", "Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, UID:1000"),
    ("oom_kill", "Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB, UID:1000 pgtables:1kB"),
    ("oom_kill", "Out of memory: Kill process 4711 (python) score 987 or sacrifice child"),
    ("oom_kill", "Out of memory (oom_kill_allocating_task): Killed process 4711 (python) total-vm:1kB"),
    ("machine_check", "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010091"),
    ("machine_check", "mce: [Hardware Error]: Machine check events logged"),
    ("machine_check", "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4"),
    ("machine_check", "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1)"),
    ("machine_check", "EDAC MC2: 1 UE memory scrubbing error"),
    ("pcie_aer", "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0"),
    ("pcie_aer", "pcieport 0000:3a:00.0: AER: Multiple Uncorrected (Fatal) error received: 0000:3b:00.0"),
    ("pcie_aer", "pcieport 0000:3a:00.0: AER: Multiple Correctable error message received from 0000:3b:00.0"),
    ("pcie_aer", "pcieport 0000:3a:00.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:3b:00.0"),
    ("pcie_aer", "pcieport 10000:e0:06.0: DPC: containment event, status:0x1f01 source:0x0000"),
    ("nvme", "nvme nvme0: I/O 22 QID 3 timeout, aborting"),
    ("nvme", "nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"),
    ("nvme", "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"),
    ("nvme", "blk_update_request: critical medium error, dev nvme0n1, sector 2048"),
    ("link", "mlx5_core 0000:18:00.0 ens1f0np0: Link down"),
    ("link", "bnxt_en 0000:af:00.0 eth0: NIC Link is Down"),
    ("link", "ens3f0: NIC Link is Down"),
    ("link", "mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, High Temperature"),
    ("soft_lockup", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4711]"),
    ("soft_lockup", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"),
    ("soft_lockup", "INFO: task python:4711 blocked for more than 122 seconds."),
    ("soft_lockup", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("soft_lockup", "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:"),
    ("other", "Kernel panic - not syncing: Fatal exception"),
    ("other", "BUG: unable to handle page fault for address: ffff8881"),
]

NO_EVENTS = [
    "oom_reaper: reaped process 4711 (python), now anon-rss:0kB",
    "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "mce: [Hardware Error]: TSC 0 ADDR 1 MISC 2",
    "mce: [Hardware Error]: PROCESSOR 0:50657 TIME 1 SOCKET 0 APIC 0 microcode 1",
    "{1}[Hardware Error]: event severity: corrected",
    "pcieport 0000:3a:00.0: AER: enabled with IRQ 26",
    "pcieport 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "nvme nvme0: 64/0/0 default/read/poll queues",
    "mlx5_core 0000:18:00.0 ens1f0np0: Link up",
    "bnxt_en 0000:af:00.0 eth0: NIC Link is Up, 100000 Mbps full duplex",
    "systemd[1]: Started Link down watcher.",
    "sshd[1]: user said: Out of memory: Killed process 1",
    "NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus.",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Data {0x50610002, 0x10100030}",
]


@pytest.mark.parametrize(("kind", "text"), EVENTS)
def test_an_event_has_its_kind(kind: str, text: str) -> None:
    assert kind_of(Record(3, 1, 1.0, text)) == kind


@pytest.mark.parametrize("text", NO_EVENTS)
def test_lines_that_accompany_or_quote_an_event_are_none(text: str) -> None:
    assert kind_of(Record(3, 1, 1.0, text)) is None
    assert sxid(text) is None


@pytest.mark.parametrize(("level", "kind"), [(0, "other"), (2, "other"), (3, None), (6, None)])
def test_what_no_pattern_knows_counts_from_critical_on(level: int, kind: str | None) -> None:
    assert kind_of(Record(level, 1, 1.0, "CPU3: Core temperature above threshold")) == kind


def test_xids_are_not_kernel_events_however_loud() -> None:
    assert kind_of(Record(0, 1, 1.0, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.")) is None


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
    ],
)
def test_an_sxid_is_its_head_line(text: str, expected: Sxid) -> None:
    assert sxid(text) == expected


@given(st.text(), st.integers(0, 7))
def test_any_line_has_a_known_kind_or_none(text: str, level: int) -> None:
    assert kind_of(Record(level, 1, 1.0, text)) in (None, *KINDS)
    sxid(text)
    sxid(f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {text}")


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("oom_kill", "python[4711]"),
        ("machine_check", "CPU 3"),
        ("machine_check", "EDAC MC2"),
        ("pcie_aer", "0000:3b:00.0"),
        ("pcie_aer", "10000:e0:06.0"),
        ("nvme", "nvme3"),
        ("nvme", "nvme0"),
    ],
)
def test_an_event_names_what_it_is_about(kind: str, part: str) -> None:
    assert part in {part_of(kind, line) for of, line in EVENTS if of == kind}
