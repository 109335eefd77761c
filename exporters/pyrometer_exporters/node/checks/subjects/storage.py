"""Disks and file systems; each file system is asked in a thread that is not waited for if it hangs.

Source of the list: ``<procfs>/1/mountinfo``, or ``self`` where another's can't be read. A line:
``36 35 98:0 / /data rw,noatime shared:1 - nfs4 server:/data rw,vers=4.2``; its last field is the file system's own
state: one that the kernel made read-only after errors says ``ro`` there, a read-only bind mount doesn't.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from pyrometer_exporters.node.checks.check import Check, Verdict, absent, failed, judged, unknown
from pyrometer_exporters.node.checks.node import Node, StatFs

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "vfat"})
NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "glusterfs", "fuse.glusterfs", "9p",
    "fuse.sshfs", "fuse.s3fs", "fuse.juicefs", "fuse.weka", "afs", "pvfs2", "orangefs", "panfs", "virtiofs",
})  # fmt: skip
PATIENCE_SECONDS: Final = 3.0
# The unit of systemd allows the exporter and its children 64 tasks.
MOST_THREADS: Final = 12
HANGS: Final = f"hangs: no answer in {PATIENCE_SECONDS:.0f} s"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  the place of shared memory
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    read_only: bool


class _Answer(NamedTuple):
    """A file system's answer: its sizes, or the error; neither if it hangs."""

    sizes: StatFs | None
    error: str


def mounts(node: Node) -> list[Mount] | None:
    """Return the mounted file systems, each device or server once for a place; None where they can't be listed."""
    for process in ("1", "self"):
        text = node.text(node.paths.procfs / process / "mountinfo")
        if text:
            by_point = {mount.point: mount for line in text.splitlines() if (mount := _parsed(line)) is not None}
            return list(by_point.values())  # of several at one place the last one is seen
    return None


def over_mounts(judge: Callable[[Node, list[Mount]], Verdict]) -> Callable[[Node], Verdict]:
    """Make a check of the mounted file systems: unknown where they can't be listed."""

    def run(node: Node) -> Verdict:
        mounted = mounts(node)
        return unknown("the mounts can't be listed") if mounted is None else judge(node, mounted)

    return run


def _parsed(line: str) -> Mount | None:
    head, dash, tail = line.partition(" - ")
    before, after = head.split(" "), tail.split(" ")
    if not dash or len(before) < 6 or len(after) < 3:
        return None
    point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), before[4])
    return Mount(point, after[0], "ro" in after[2].split(","))


def ask(node: Node, points: Iterable[str]) -> Mapping[str, _Answer | None]:
    """Ask file systems, a few at once, for three seconds altogether; None for one that has not answered.

    One that was not asked, as others hang in all threads, is left out.
    """
    todo, answers = deque(points), dict[str, _Answer | None]()

    def work() -> None:
        while True:
            try:
                point = todo.popleft()
            except IndexError:
                return
            answers[point] = None
            answers[point] = _asked(node, point)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(len(todo), MOST_THREADS))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(answers)


def _asked(node: Node, point: str) -> _Answer:
    try:
        return _Answer(node.statvfs(str(node.paths.rootfs / point.lstrip("/"))), "")
    except OSError as error:
        return _Answer(None, error.strerror or str(error))


def _used(node: Node, mounted: list[Mount], check: str) -> Verdict:
    points = [mount.point for mount in mounted if mount.kind in LOCAL and not mount.read_only]
    limit = node.limit(check, "used")
    problems, answered = [], 0
    for point, answer in ask(node, points).items():
        if answer is None and check == "filesystem_full":  # once is enough
            problems.append(f"{point} {HANGS}")
            answered += 1
        if answer is None or answer.sizes is None:
            continue
        total, free = _total_and_free(answer.sizes, check)
        if total:
            answered += 1
            used = 1 - free / total
            if used >= limit:
                what = "inodes are used" if check == "inodes" else "full"
                problems.append(f"{point} is {used:.1%} full" if what == "full" else f"{used:.1%} of {point}'s {what}")
    return judged(problems) if answered else absent("no writable local file system")


def _total_and_free(sizes: StatFs, check: str) -> tuple[int, int]:
    if check == "inodes":
        return sizes.f_files, sizes.f_ffree
    # As df does: what is reserved for root belongs to neither side.
    return sizes.f_blocks - sizes.f_bfree + sizes.f_bavail, sizes.f_bavail


def _read_only(_node: Node, mounted: list[Mount]) -> Verdict:
    local = [mount for mount in mounted if mount.kind in LOCAL]
    return judged([f"{mount.point} ({mount.kind}) is read-only" for mount in local if mount.read_only])


def _network(node: Node, mounted: list[Mount]) -> Verdict:
    points = [mount.point for mount in mounted if mount.kind in NETWORK]
    wanted = node.expected.get("mounts") or []
    missing = [f"{point} is not mounted ({node.expected.how('mounts')})" for point in wanted if point not in points]
    if not points and not missing:
        return absent("no network file system")
    answers = ask(node, points)
    problems = [f"{point} {HANGS}" for point, answer in answers.items() if answer is None]
    problems += [f"{point}: {answer.error}" for point, answer in answers.items() if answer is not None and answer.error]
    return judged(problems + missing, mounts=sorted(points))


def _shared_memory(node: Node, mounted: list[Mount]) -> Verdict:
    if not any(mount.point == SHARED_MEMORY and mount.kind == "tmpfs" for mount in mounted):
        return failed(f"{SHARED_MEMORY} is not a tmpfs: NCCL and data loaders need it")
    answer = ask(node, [SHARED_MEMORY]).get(SHARED_MEMORY)
    sizes = answer.sizes if answer is not None else None
    if sizes is None:
        return unknown(f"{SHARED_MEMORY} does not answer")
    used = 1 - sizes.f_bavail / sizes.f_blocks if sizes.f_blocks else 0.0
    return judged([f"{SHARED_MEMORY} is {used:.1%} full"] if used >= node.limit("shared_memory", "used") else [])


def _nvme(node: Node) -> Verdict:
    folder = node.paths.sysfs / "class/nvme"
    names = node.names(folder)
    wanted = node.expected.get("nvmes")
    if not names and not wanted:
        return absent("no NVMe disk")
    states = {name: node.text(folder / name / "state") for name in names}
    problems = [f"{name} is {state}" for name, state in states.items() if state not in (None, "live")]
    live = [name for name, state in states.items() if state in (None, "live")]
    if wanted and len(names) < wanted:
        problems.append(f"{len(names)} of {wanted} NVMe disks ({node.expected.how('nvmes')})")
    return judged(problems, nvmes=len(live))


def _raid(node: Node) -> Verdict:
    text = node.text(node.paths.procfs / "mdstat") or ""
    # md0 : active raid1 nvme1n1[1](F) nvme0n1[0] / 937560960 blocks super 1.2 [2/1] [U_]
    arrays = re.findall(r"^(md\S+) : .*\n\s+\d+ blocks.*\[(\d+)/(\d+)\]", text, re.MULTILINE)
    if not arrays:
        return absent("no software RAID with redundancy")
    return judged([f"{name} has {have} of {disks} disks" for name, disks, have in arrays if int(have) < int(disks)])


# A file system that hangs must not hold up the other checks.
_mount_check = partial(Check, worker="mounts")

CHECKS = (
    _mount_check(
        "filesystem_full",
        "no local file system is full",
        "/proc/1/mountinfo; statvfs(3)",
        "Imbue (95 %), gcm check-storage (85 %), gpud disk (90 %)",
        "Find what fills it (`du -xhd1 /`) and free space.",
        over_mounts(partial(_used, check="filesystem_full")),
        limits={"used": 0.95},
    ),
    _mount_check(
        "inodes",
        "no local file system is out of inodes",
        "/proc/1/mountinfo; statvfs(3)",
        "LBNL NHC check_fs_iused",
        "Find the folder with the many small files, remove them.",
        over_mounts(partial(_used, check="inodes")),
        limits={"used": 0.95},
    ),
    _mount_check(
        "filesystem_read_only",
        "the kernel has not remounted any file system read-only",
        "/proc/1/mountinfo (super options)",
        "LBNL NHC check_fs_mount_rw",
        "`dmesg` shows why; run fsck or replace the disk, then reboot.",
        over_mounts(_read_only),
    ),
    _mount_check(
        "network_mounts",
        "every network file system answers within 3 s, and those configured are mounted",
        "/proc/1/mountinfo; statvfs(3), each in a thread of a process that may hang",
        "gpud nfs, LBNL NHC, gcm check-storage",
        "Check the server; `umount -l` the dead mount and mount it again, else reboot.",
        over_mounts(_network),
    ),
    _mount_check(
        "shared_memory",
        f"{SHARED_MEMORY} exists and is not full",
        "/proc/1/mountinfo; statvfs(3)",
        "gcm, NCCL's troubleshooting guide",
        "Remove what ended jobs left in /dev/shm (`fuser -v /dev/shm/*`).",
        over_mounts(_shared_memory),
        limits={"used": 0.9},
    ),
    Check(
        "nvme",
        "all NVMe disks are present and alive",
        "sysfs: class/nvme/nvme*/state",
        "gcm check-blockdev",
        "`nvme list`, `nvme smart-log`; exchange the disk.",
        _nvme,
    ),
    Check(
        "raid",
        "no software RAID is missing a disk",
        "/proc/mdstat",
        "gpud disk, Imbue (zpool)",
        "Replace the disk and add it again (`mdadm --detail`, `mdadm --add`).",
        _raid,
        severity="warning",
    ),
)
