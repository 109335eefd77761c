r"""The lines of the kernel's log that report an event: kind, source, and whether it was corrected.

A new kind is a row of ``KINDS`` and its lines, rows of ``LINES``; nothing else has to be touched. The pattern of a line
is anchored at its beginning, and more than a process's name (15 characters, which its user chooses) is fixed in it, so
that no program can write one by its name.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of event.

    Attributes:
        name: the label ``kind``.
        meaning: in words, for the pages.
        rule: the alert that judges it.
        uncorrected: whether its lines say what was not corrected or lost.
        check: whether the check ``kernel_errors`` names it; else only what was not corrected.
        seconds: lines that are no further apart belong to one event.
        by_part: whether they have to be about the same part.
        deprecated: served with ``--metrics.deprecated`` only, until 0.4.
    """

    name: str
    meaning: str
    rule: str
    uncorrected: bool = False
    check: bool = False
    seconds: float = 10.0
    by_part: bool = True
    deprecated: bool = False


KINDS = (
    Kind("oom_kill", "a process killed for lack of memory", "HostOutOfMemory"),
    Kind("machine_check", "an error of CPU or memory, from the hardware or the firmware", "HostMachineCheck",
         uncorrected=True, seconds=2.0),
    Kind("pcie_aer", "an error on PCIe, from the hardware or the firmware", "HostPcieErrors",
         uncorrected=True, seconds=2.0),
    Kind("sxid", "an NVSwitch's error", "NvswitchFatalError"),
    Kind("nvme", "an NVMe disk that timed out, failed or is gone", "HostDiskErrors", uncorrected=True),
    Kind("disk", "another disk or an array that failed a read or a write, or lost a member", "HostDiskErrors",
         uncorrected=True),
    Kind("filesystem", "a local file system with errors, or read-only because of them", "HostKernelErrors", check=True),
    Kind("network_storage", "a file server or its connection that does not answer", "HostKernelErrors", seconds=60.0),
    Kind("nic", "a network card's firmware, power, temperature or queue", "NicDriverErrors", check=True),
    # A lock-up is repeated about every 20 s, a stall of RCU every minute and longer.
    Kind("soft_lockup", "a CPU that is stuck", "HostKernelErrors", check=True, seconds=200.0, by_part=False),
    # Repeated every 120 s for each task that is still blocked.
    Kind("hung_task", "a task that has waited for two minutes, mostly for storage or a driver", "HostKernelErrors",
         check=True, seconds=300.0),
    Kind("kernel_fault", "an oops, a bug or a panic of the kernel", "HostKernelErrors", check=True, by_part=False),
    Kind("resource_limit", "a limit of the kernel that is reached", "HostKernelErrors", seconds=60.0),
    Kind("segfault", "a program that crashed in a library of CUDA or in NCCL", "HostLibraryCrash"),
    # NicLinkDown and NicLinkFlapping judge links by the ports' own counters; every boot prints such lines.
    Kind("link", "a line of a driver about a lost link", "", deprecated=True),
    # Lines that no row knows, of the levels critical and worse: too different for a rule.
    Kind("other", "what no other kind has, of the levels critical and worse", "", deprecated=True),
)  # fmt: skip


class Line(NamedTuple):
    """Describe one message of the kernel, which may have several wordings.

    Attributes:
        kind: of ``KINDS``.
        source: where in Linux, or in which driver.
        pattern: of its beginning, with names of ``_SHORT`` between braces. The groups ``part`` and ``number`` are what
            it is about, ``ue`` is there where the error was not corrected, ``status`` is a machine check's status word.
        example: as it is printed.
        uncorrected: whether it always reports something not corrected.
        step: its place in the lines of one event; 0 for events whose lines come in any order.
        repeats: whether a second such line is a second event.
        needle: for lines that begin with a name that others choose, or with any driver's: a text that they hold.
        healthy_at_boot: whether healthy machines log it while they boot: then it is no event.
        begins: for lines that begin with one of several words, or not with a word of the pattern: those words.
    """

    kind: str
    source: str
    pattern: str
    example: str
    uncorrected: bool = False
    step: int = 0
    repeats: bool = False
    needle: str = ""
    healthy_at_boot: bool = False
    begins: tuple[str, ...] = ()

    @property
    def starts(self) -> frozenset[str]:
        """Return the first three characters of each of its wordings; none for lines that are found by their needle."""
        if self.needle:
            return frozenset()
        short = next((begins for name, begins in _BEGINS.items() if self.pattern.startswith(f"{{{name}}}")), ())
        return frozenset(word[:START] for word in self.begins or short or (self.expression.replace("\\", ""),))

    @property
    def of_function(self) -> bool:
        """Return whether it begins with any driver's name and a PCI address."""
        return self.pattern.startswith(r"[\w-]+ ")

    @property
    def expression(self) -> str:
        """Return the pattern with the names between braces spelled out."""
        pattern = self.pattern
        for name, text in _SHORT.items():
            pattern = pattern.replace(f"{{{name}}}", text)
        return pattern


START = 3  # so many characters at a line's beginning say which lines it may be
PCI = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_SHORT = {
    "mlx5": r"mlx5_core (?P<part>{pci})(?: [\w.-]+)?: (?:\w+:\d+:\(pid \d+\): )?",
    "cable": r"Port module event\[error\]: module \d+, Cable error, (?:High Temperature|Power budget exceeded|Bus stuck"
    "|Bad or shorted|No eeprom)",
    "mce": r"(?:mce: )?\[Hardware Error\]: ",
    # NVMe has a kind of its own; virtual CDs and floppies of a BMC fail at every boot.
    "disk": r"(?:(?:s|h|v|xv)d[a-z]+|(?!(?:nvme|sr|fd|loop|z?ram|nbd)\d)[a-z][\w-]*)",
    "io": r"(?:blk_update_request: |print_req_error: |end_request: )?"
    r"(?:I/O|critical (?:medium|target|nexus|space allocation)) error, dev ",
    # A device that does not know these says so, and loses nothing.
    "supported": r"(?![^\n]*op 0x\w+:\((?:DISCARD|WRITE_ZEROES|SECURE_ERASE)\))",
    "pci": PCI,
}

_BEGINS = {"mce": ("mce: ", "[Hardware"), "supported": ("blk_", "print_", "end_", "I/O", "critical")}

# fmt: off
LINES = (
    Line("oom_kill", "mm/oom_kill.c",
         r"(?:Memory cgroup )?[Oo]ut of memory(?: \([^)]*\))?: Kill(?:ed)? process (?P<number>\d+) "
         r"\((?P<part>[^)]*)\)",
         "Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB, UID:1000",
         repeats=True, begins=("Memory", "Out of", "out of")),

    # Memory and CPU: a notice, what the decoder says, and what became of the page are one event.
    Line("machine_check", "arch/x86/kernel/cpu/mce/core.c",
         "{mce}Machine check events logged",
         "mce: [Hardware Error]: Machine check events logged", step=1, repeats=True),
    Line("machine_check", "arch/x86/kernel/cpu/mce/core.c",
         r"{mce}(?P<part>CPU \d+): Machine Check(?P<exception> Exception)?: [0-9a-f]+ Bank \d+: "
         "(?P<status>[0-9a-f]{16})",
         "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000800400", step=2, repeats=True),
    Line("machine_check", "drivers/edac/mce_amd.c",
         "{mce}(?:Corrected error, no action required|(?P<ue>Deferred error|Uncorrected, software"
         "|System Fatal error))",
         "[Hardware Error]: Corrected error, no action required.", step=2, repeats=True),
    Line("machine_check", "drivers/edac/mce_amd.c",
         r"{mce}(?P<part>CPU:\d+) \([0-9a-f:]+\) MC\d+_STATUS\[(?:[^\]]*\b(?P<ue>UE|UC"
         r"|Deferred)\b)?[^\]]*\]: 0x[0-9a-f]{16}",
         "[Hardware Error]: CPU:2 (19:1:1) MC17_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-"
         "|-]: 0xdc2040000000011b", step=3, repeats=True),
    # Firmware's errors are counted by their own record, which this line repeats.
    Line("machine_check", "drivers/edac/edac_mc.c, edac_device.c",
         r"(?P<part>EDAC (?:MC|DEVICE)\d+): (?:\d+ )?(?:C|(?P<ue>U))E[ :](?![^\n]*APEI location)",
         "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0xee30a0 "
         "offset:0x0 grain:32)", step=4, repeats=True, begins=("EDAC",)),
    Line("machine_check", "arch/x86/kernel/cpu/mce/core.c",
         "{mce}Machine check: ",
         "mce: [Hardware Error]: Machine check: Processor context corrupt", uncorrected=True, step=5),
    Line("machine_check", "arch/x86/kernel/cpu/mce/core.c",
         "mce: (?:Uncorrected hardware memory error in user-access at|Kernel accessed poison in user space at) ",
         "mce: Uncorrected hardware memory error in user-access at 7c7a37fc80", uncorrected=True, step=6, repeats=True),
    Line("machine_check", "mm/memory-failure.c",
         "(?:Memory failure:|MCE) (?P<part>0x[0-9a-f]+): (?:Sending SIGBUS to|Killing|recovery action for"
         "|already hardware poisoned|corrupted page was)",
         "Memory failure: 0x7c7a37f: Sending SIGBUS to python:12345 due to hardware memory corruption",
         uncorrected=True, step=7, begins=("Memory", "MCE")),
    Line("machine_check", "drivers/ras/cec.c",
         "RAS: Soft-offlining pfn: (?P<part>0x[0-9a-f]+)",
         "RAS: Soft-offlining pfn: 0x7c7a37f", step=7),
    Line("machine_check", "arch/arm64/kernel/traps.c",
         r"SError Interrupt on (?P<part>CPU\d+), code ",
         "SError Interrupt on CPU3, code 0x00000000be000000 -- SError", uncorrected=True, step=2, repeats=True),

    # PCIe: the port's line and the device's are one event. Firmware's records (APEI) are read by events.py.
    Line("pcie_aer", "drivers/pci/pcie/dpc.c",
         r"[\w-]+ (?P<part>{pci}): DPC: containment event",
         "pcieport 10000:e0:06.0: DPC: containment event, status:0x1f01 source:0x0000",
         uncorrected=True, step=1, repeats=True, needle="DPC: containment"),
    Line("pcie_aer", "drivers/pci/pcie/aer.c",
         r"[\w-]+ {pci}: AER: (?:Multiple )?(?:C|(?P<ue>Unc))orrect[^:\n]* error (?:message )?received(?:(?: from"
         "|:)* (?P<part>{pci}))?",
         "pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:3b:00.0", step=2, repeats=True,
         needle="AER: "),
    Line("pcie_aer", "drivers/pci/pcie/aer.c",
         r"[\w-]+ (?P<part>{pci}): (?:AER: )?PCIe Bus Error: severity=(?:Corr|(?P<ue>Unc))",
         "nvme 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
         step=3, repeats=True, needle="PCIe Bus Error: "),
    Line("pcie_aer", "drivers/pci/pcie/aer.c",
         r"[\w-]+ (?P<part>{pci}): (?:AER: )?aer_status: 0x",
         "pcieport 0000:16:01.0: AER: aer_status: 0x00000001, aer_mask: 0x00002000", step=4, repeats=True,
         needle="aer_status: 0x"),
    Line("pcie_aer", "drivers/pci/pcie/err.c",
         r"[\w-]+ (?P<part>{pci}): (?:AER: )?(?:subordinate )?device recovery failed",
         "pcieport 0000:3a:00.0: AER: device recovery failed", uncorrected=True, step=5, needle="recovery failed"),
    Line("pcie_aer", "drivers/pci/pcie/aer.c",
         r"[\w-]+ (?P<part>{pci}): (?:AER: )?aer_uncor_severity: 0x",
         "pcieport 0000:3a:00.0: AER: aer_uncor_severity: 0x00062030", uncorrected=True, step=5,
         needle="aer_uncor_severity: 0x"),

    Line("nvme", "drivers/nvme/host/pci.c",
         r"nvme (?P<part>nvme\d+): I/O [^\n]*timeout, completion polled",
         "nvme nvme0: I/O 22 QID 3 timeout, completion polled"),
    Line("nvme", "drivers/nvme/host/pci.c, core.c",
         r"nvme (?P<part>nvme\d+): (?:I/O [^\n]*timeout|controller is down; will reset"
         "|Disabling device after reset failure|Removing after probe failure|Device not ready; aborting"
         "|Device shutdown incomplete|frozen state error detected)",
         "nvme nvme4: Disabling device after reset failure: -19", uncorrected=True),
    Line("nvme", "block/blk-core.c, blk-mq.c",
         r"{supported}{io}(?P<part>nvme\d+)",
         "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2", uncorrected=True),
    Line("nvme", "fs/buffer.c",
         r"Buffer I/O error on dev(?:ice)? (?P<part>nvme\d+)",
         "Buffer I/O error on dev nvme0n1p1, logical block 789012, lost sync page write", uncorrected=True),
    Line("nvme", "drivers/nvme/host/multipath.c",
         r"block (?P<part>nvme\d+)\S*: no available path - failing I/O",
         "block nvme0n1: no available path - failing I/O", uncorrected=True),

    Line("disk", "block/blk-core.c, blk-mq.c",
         "{supported}{io}(?P<part>{disk})",
         "blk_update_request: critical medium error, dev sdb, sector 2048", uncorrected=True),
    Line("disk", "fs/buffer.c",
         "Buffer I/O error on dev(?:ice)? (?P<part>{disk})",
         "Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write", uncorrected=True),
    Line("disk", "drivers/scsi/scsi_lib.c",
         r"sd \S+: (?:\[(?P<part>sd[a-z]+)\] )?rejecting I/O to offline device",
         "sd 0:0:1:0: rejecting I/O to offline device", uncorrected=True),
    Line("disk", "drivers/md/raid1.c, raid5.c, raid10.c, raid0.c",
         r"md/raid\S*?(?P<part>md[\w-]+): Disk failure on \S+",
         "md/raid1:md0: Disk failure on nvme0n1p2, disabling device.", uncorrected=True),
    Line("disk", "block/blk-core.c",
         r"[^\n]{0,40}\battempt to access beyond end of device",
         "kworker/u203:1: attempt to access beyond end of device", uncorrected=True,
         needle="attempt to access beyond end"),

    Line("filesystem", "fs/ext4/super.c",
         r"EXT[234]-fs error \(device (?P<part>[^)\s]+)\)",
         "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0"),
    Line("filesystem", "fs/ext4/super.c, fs/f2fs/super.c",
         r"(?:EXT[234]-fs|XFS|BTRFS|F2FS-fs|JFS|NILFS)(?: \((?P<part>[^)\s]+)\))?: (?:Remounting filesystem "
         "read-only|I/O error while writing superblock)",
         "EXT4-fs (md0): Remounting filesystem read-only", begins=("EXT", "XFS", "BTRFS", "F2FS", "JFS", "NILFS")),
    Line("filesystem", "fs/fat/misc.c",
         r"(?:EXT[234]-fs|FAT-fs) \((?P<part>[^)\s]+)\): (?:Filesystem has been set read-only"
         "|previous I/O error to superblock detected)",
         "FAT-fs (sda1): Filesystem has been set read-only", begins=("EXT", "FAT")),
    Line("filesystem", "fs/jbd2/journal.c",
         r"Aborting journal on device (?P<part>\S+?)(?:-\d+)?\.",
         "Aborting journal on device sda1-8."),
    Line("filesystem", "fs/jbd2/commit.c",
         "JBD2: (?:Detected IO errors while flushing file data on|I/O error when updating journal superblock for"
         r"|Error -\d+ detected when updating journal superblock for) (?P<part>\S+?)(?:-\d+)?\.?$",
         "JBD2: Detected IO errors while flushing file data on dm-0-8"),
    Line("filesystem", "fs/xfs/xfs_fsops.c, xfs_error.c",
         r"XFS \((?P<part>[^)\s]+)\): (?!User initiated)(?:[^\n]*(?:[Cc]orruption (?:of|detected)|CRC error"
         "|[Ss]hutting down filesystem|has been shut down due to)|metadata I/O error|[Ll]og I/O error"
         "|xfs_do_force_shutdown)",
         "XFS (dm-3): Corruption of in-memory data (0x8) detected at xfs_trans_cancel+0x122/0x160. Shutting down "
         "filesystem."),
    Line("filesystem", "fs/btrfs/messages.c, volumes.c",
         r"BTRFS(?: error|: error| critical) \(device (?P<part>[\w-]+)",
         "BTRFS error (device sda1): bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0"),
    Line("filesystem", "OpenZFS module/zfs/spa_misc.c",
         "WARNING: Pool '(?P<part>[^']+)' has encountered an uncorrectable I/O failure",
         "WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended."),

    Line("network_storage", "net/sunrpc/clnt.c",
         r"nfs: server (?P<part>\S+) not responding",
         "nfs: server 10.0.0.5 not responding, still trying"),
    Line("network_storage", "fs/nfs/nfs4state.c",
         "(?:NFS: )?nfs4_reclaim_open_state: Lock reclaim failed",
         "NFS: nfs4_reclaim_open_state: Lock reclaim failed!", begins=("NFS", "nfs4")),
    Line("network_storage", "fs/nfs/nfs4state.c",
         r"NFS: state manager: [^\n]* failed on NFSv4 server (?P<part>\S+)",
         "NFS: state manager: lease expired failed on NFSv4 server 10.0.0.5 with error 13"),
    Line("network_storage", "lustre/ptlrpc/import.c",
         r"Lustre: [^\n]*Connection to (?P<part>\S+) \(at [^)]+\) was lost",
         "Lustre: data-OST0001-osc-ffff8e1c: Connection to data-OST0001 (at 10.0.0.1@o2ib) was lost; in progress "
         "operations using this service will wait for recovery to complete"),
    Line("network_storage", "lustre/ptlrpc/import.c",
         r"LustreError: [^\n]*This client was evicted by (?P<part>[^\s;]+)",
         "LustreError: 167-0: data-OST0001-osc-ffff8e1c: This client was evicted by data-OST0001; in progress "
         "operations using this service will fail."),
    Line("network_storage", "fs/smb/client/connect.c",
         r"CIFS: (?:VFS: )?(?P<part>\\\S+) has not responded in \d+ seconds",
         "CIFS: VFS: \\\\nas has not responded in 180 seconds. Reconnecting..."),
    Line("network_storage", "drivers/nvme/host/tcp.c, rdma.c",
         r"nvme (?P<part>nvme\d+): (?:starting error recovery|failed nvme_keep_alive_end_io"
         "|Failed reconnect attempt)",
         "nvme nvme2: starting error recovery"),

    # At boot, healthy cards ask for what is granted later (DGX Spark: NVIDIA/dgx-spark-playbooks pull request 108).
    Line("nic", "drivers/net/ethernet/mellanox/mlx5/core/events.c",
         "{mlx5}Detected insufficient power on the PCIe slot",
         "mlx5_core 0000:5c:00.0: Detected insufficient power on the PCIe slot (27W).", healthy_at_boot=True),
    Line("nic", "drivers/net/ethernet/mellanox/mlx5/core/events.c, health.c, cmd.c, en_main.c",
         "{mlx5}(?:{cable}|High temperature on sensors|device's health compromised"
         r"|Fatal error \d+ detected|Health issue observed, [^\n]*severity\([0-4]\)|synd 0x0*[1-9a-f][0-9a-f]*: "
         r"|[^\n]*timeout\. Will cause a leak of a command resource|TX timeout (?:detected|on queue)"
         "|RX timeout on channel)",
         "mlx5_core 0000:5c:00.0: poll_health:773:(pid 0): device's health compromised - reached miss count"),
    Line("nic", "drivers/net/ethernet/mellanox/mlx5/core/events.c",
         r"mlx5_port_module_event:\d+:\(pid \d+\): {cable}",
         "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature"),
    Line("nic", "net/sched/sch_generic.c, until 6.7",
         r"NETDEV WATCHDOG: (?P<part>\S+) \([^)]*\): transmit queue \d+ timed out",
         "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out"),
    Line("nic", "net/sched/sch_generic.c",
         r"[\w-]+ (?P<part>{pci}) [\w.-]+: NETDEV WATCHDOG: ",
         "mlx5_core 0000:65:00.0 eth0: NETDEV WATCHDOG: CPU: 5: transmit queue 0 timed out 5032 ms",
         needle="NETDEV WATCHDOG: "),
    Line("nic", "drivers/net/ethernet/broadcom/bnxt/bnxt.c, bnxt_hwrm.c",
         r"bnxt_en (?P<part>{pci})(?: \([^)]*\)| [\w.-]+)?(?: \([^)]*\))?: (?:TX timeout detected"
         r"|Error \(timeout: \d+\) msg|Abandoning msg \{0x\w+ 0x\w+\} len: \d+ due to firmware status"
         "|Firmware fatal reset event|Fatal firmware reset event)",
         "bnxt_en 0000:af:00.0 eth0: TX timeout detected, starting reset task!"),
    Line("nic", "drivers/infiniband/hw/efa/efa_com.c",
         "(?:efa (?P<part>{pci})|infiniband (?P<name>(?:rdmap"
         r"|efa_)[\w.-]+)): (?:Wait for completion \(polling\) timeout|The device didn't send any completion"
         "|Admin queue is closed|Reset indication didn't turn|Device isn't ready)",
         "infiniband rdmap16s27: Admin queue is closed", begins=("efa ", "infiniband")),
    Line("nic", "drivers/net/ethernet/amazon/ena/ena_netdev.c",
         r"ena (?P<part>{pci})(?: [\w.-]+)?: (?:Keep alive watchdog timeout"
         r"|Wait for completion \(polling\) timeout|Reset indication didn't turn)",
         "ena 0000:00:05.0 eth0: Keep alive watchdog timeout."),
    Line("nic", "drivers/net/ethernet/intel",
         r"(?:igb|igc|ixgbe|e1000e|i40e|ice) (?P<part>{pci})(?: [\w.-]+)?: (?:Detected (?:Tx|Hardware) Unit Hang"
         "|PCIe link lost|Adapter removed|initiating reset due to tx timeout|tx_timeout)",
         "ixgbe 0000:63:00.0 eno3: Detected Tx Unit Hang", begins=("igb", "igc", "ixgbe", "e1000e", "i40e", "ice")),

    Line("soft_lockup", "kernel/watchdog.c",
         r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - (?P<part>CPU#\d+)",
         "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4711]", begins=("NMI", "watchdog", "BUG")),
    Line("soft_lockup", "kernel/watchdog.c, watchdog_hld.c",
         r"(?:(?:NMI )?watchdog: )?(?:CPU\d+: )?Watchdog detected hard LOCKUP on (?P<part>cpu \d+)",
         "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", begins=("NMI", "watchdog", "CPU", "Watchdog")),
    Line("soft_lockup", "kernel/rcu/tree_stall.h",
         r"(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected ",
         "rcu: INFO: rcu_preempt self-detected stall on CPU", begins=("rcu", "INFO")),
    Line("soft_lockup", "kernel/workqueue.c",
         "BUG: workqueue lockup - pool",
         "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 31s!"),

    Line("hung_task", "kernel/hung_task.c",
         r"(?:INFO: )?task (?P<part>[^\n]{1,48}):(?P<number>\d+) blocked (?:in I/O wait )?for more than \d+ seconds",
         "INFO: task UVM GPU1 BH:4567 blocked for more than 120 seconds.", begins=("INFO", "task")),

    Line("kernel_fault", "arch/x86/mm/fault.c, mm/page_alloc.c, mm/memory.c, kernel/sched/core.c",
         "BUG: (?:unable to handle |kernel NULL pointer dereference|Bad page (?:state|map) in process"
         "|scheduling while atomic: |KASAN: |stack guard page was hit)",
         "BUG: unable to handle page fault for address: ffff8881"),
    Line("kernel_fault", "lib/bug.c",
         r"kernel BUG at \S+:\d+!", "kernel BUG at mm/slub.c:305!"),
    Line("kernel_fault", "kernel/panic.c",
         "Kernel [Pp]anic - not syncing", "Kernel panic - not syncing: Fatal exception"),
    Line("kernel_fault", "arch/x86/kernel/dumpstack.c, arch/arm64/kernel/traps.c",
         "(?:Oops|Internal error|divide error|invalid opcode|general protection fault|stack segment"
         r"|double fault)[:,][^\n]{4,160}\[#\d+\] ?(?:SMP|PREEMPT)",
         "Oops: 0002 [#1] PREEMPT SMP NOPTI",
         begins=("Oops", "Internal", "divide", "invalid", "general", "stack", "double")),
    Line("kernel_fault", "arch/arm64/mm/fault.c",
         "Unable to handle kernel (?:NULL pointer dereference|paging request|access|execut|read|write)",
         "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010"),

    Line("resource_limit", "fs/file_table.c",
         r"VFS: file-max limit \d+ reached", "VFS: file-max limit 1000000 reached"),
    Line("resource_limit", "net/netfilter/nf_conntrack_core.c",
         "(?:(?:nf|ip)_conntrack: )+table full",
         "nf_conntrack: nf_conntrack: table full, dropping packet", begins=("nf_", "ip_")),
    Line("resource_limit", "net/core/neighbour.c",
         r"neighbour: \w+: neighbor table overflow",
         "neighbour: arp_cache: neighbor table overflow!"),
    Line("resource_limit", "net/core/dev.c",
         r"unregister_netdevice: waiting for (?P<part>\S+) to become free",
         "unregister_netdevice: waiting for eth0 to become free. Usage count = 1"),
    Line("resource_limit", "net/ipv4/tcp.c",
         "TCP: out of memory -- consider tuning tcp_mem", "TCP: out of memory -- consider tuning tcp_mem"),

    Line("segfault", "arch/x86/mm/fault.c",
         r"(?P<part>[^\n]{1,15})\[(?P<number>\d+)\]: segfault at [^\n]* in (?:libnccl|libcuda|libcublas|libcudnn"
         "|libnvidia|libnvrtc)",
         "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in "
         "libnccl.so.2[7f7c7ac00000+d3d3000]", repeats=True, needle=": segfault at "),

    Line("link", "drivers/net/ethernet",
         "(?:mlx5_core|bnxt_en|i40e|ice|ixgbe|igb|tg3|mlx4_en"
         r"|mlx4_core) {pci}(?: \S+)?: (?:NIC )?[Ll]ink (?:is )?[Dd]own",
         "mlx5_core 0000:18:00.0 ens1f0np0: Link down", repeats=True,
         begins=("mlx", "bnxt", "i40e", "ice", "ixgbe", "igb", "tg3")),
    Line("link", "drivers/net/ethernet",
         r"[\w.-]{1,15}: NIC Link is Down",
         "ens3f0: NIC Link is Down", repeats=True, needle=": NIC Link is Down"),
)
# fmt: on
