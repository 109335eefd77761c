"""File systems; each file system is asked in a thread that is not waited for if it hangs.

Source of the list: ``<procfs>/1/mountinfo``, or ``self`` where another's can't be read. A line:
``36 35 98:0 / /data rw,noatime shared:1 - nfs4 server:/data rw,vers=4.2``; its last field is the file system's own
state: one that the kernel made read-only after errors says ``ro`` there, a read-only bind mount doesn't.
"""

from __future__ import annotations

import errno
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from pyrometer_exporters.node.checks.check import Check, Problem, Verdict, absent, failed, judged, listed, unknown
from pyrometer_exporters.node.checks.node import Node, StatFs

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "vfat"})
NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "glusterfs", "fuse.glusterfs", "9p",
    "fuse.sshfs", "fuse.s3fs", "fuse.juicefs", "fuse.weka", "afs", "pvfs2", "orangefs", "panfs", "virtiofs",
})  # fmt: skip
# FUSE has a name for each of its file systems (gcsfuse, mountpoint-s3, blobfuse2); these are of desktops, containers.
_LOCAL_FUSE: Final = frozenset({"fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "fuse.snapfuse", "fuse.fuse-overlayfs"})
PATIENCE_SECONDS: Final = 3.0
# The unit of systemd allows the exporter and its children 64 tasks.
MOST_THREADS: Final = 12
HANGS: Final = f"hangs: no answer in {PATIENCE_SECONDS:.0f} s"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  the place of shared memory
# Errors of the file system or its server; all others say that this process may not look (EACCES: a user's FUSE mount).
_DEAD: Final = frozenset({
    errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ECONNREFUSED,
    errno.ESHUTDOWN, errno.EREMOTEIO, errno.ENODEV, errno.ENXIO, errno.EUCLEAN,
})  # fmt: skip
# Small or always nearly full, and not written by jobs; HostDiskFull leaves out what is smaller, too.
_NEARLY_FULL: Final = ("/boot", "/efi", "/snap/")
_LEAST_BYTES: Final = 4 * 2**30
_OF_PODS: Final = ("/var/lib/kubelet/", "/var/lib/containerd/", "/run/containerd/", "/var/lib/docker/", "/run/docker/",
                   "/var/lib/containers/", "/run/containers/", "/var/lib/rancher/", "/run/k3s/", "/var/lib/k0s/",
                   "/var/snap/", "/run/netns/", "/run/crio/")  # fmt: skip
_OF_USERS: Final = (
    "/home/",
    "/root/",
    "/run/user/",
    "/run/media/",
    "/media/",
    "/tmp/",  # noqa: S108  mounted there by users
    "/var/tmp/",  # noqa: S108
    "/misc/",
    "/net/",
)
# Local file systems that their own service mounts, of whole disks that stay.
_POOLS: Final = ("zfs",)
_MOUNT: Final = "Mount it (`mount POINT`, `systemctl status` of its unit) and look at the server."
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    read_only: bool
    """As the file system itself is."""
    asked_read_only: bool
    """As it was mounted."""
    source: str
    options: str
    is_frozen: bool = False
    """In a container that hears of nothing that the host mounts or unmounts after its start."""

    @property
    def is_network(self) -> bool:
        """True if its data are elsewhere."""
        return self.kind in NETWORK or (self.kind.split(".")[0] == "fuse" and self.kind not in _LOCAL_FUSE)

    @property
    def is_of_windows(self) -> bool:
        """True of a drive of Windows under WSL, which comes and goes as people plug it."""
        return self.kind == "drvfs" or "aname=drvfs" in self.options

    @property
    def is_of_user(self) -> bool:
        """True of FUSE that an ordinary user has mounted, into which not even root may look."""
        return self.kind.startswith("fuse") and re.search(r"\buser_id=[1-9]", self.options) is not None


class _Answer(NamedTuple):
    """A file system's answer: its sizes, or the error and its number; neither if it hangs."""

    sizes: StatFs | None
    error: str = ""
    number: int = 0

    @property
    def is_dead(self) -> bool:
        """True if the error is the file system's own; others say that this process may not look."""
        return self.number in _DEAD


def mounts(node: Node) -> list[Mount] | None:
    """Return the mounted file systems, each device or server once for a place; None where they can't be listed."""
    for process in ("1", "self"):
        text = node.text(node.paths.procfs / process / "mountinfo")
        if text:
            by_point = {mount.point: mount for line in text.splitlines() if (mount := _parsed(line)) is not None}
            rootfs = str(node.paths.rootfs)
            is_container = rootfs != "/" and rootfs in by_point and (process == "self" or not node.sees_processes)
            # A place shows the last one of several.
            return _of_host(by_point.values(), rootfs, text) if is_container else list(by_point.values())
    return None


def _of_host(mounted: Iterable[Mount], rootfs: str, text: str) -> list[Mount]:
    """Return the host's mounts at their places on the host, of a container that has the host's / at ``rootfs``."""
    is_frozen = re.search(rf" {re.escape(rootfs)} \S+ (?:shared|master):", text) is None
    those = [mount for mount in mounted if _below(mount.point, [rootfs])]
    return [mount._replace(point=mount.point.removeprefix(rootfs) or "/", is_frozen=is_frozen) for mount in those]


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
    is_ro, asked = "ro" in after[2].split(","), "ro" in before[5].split(",")
    return Mount(point, after[0], is_ro, asked, after[1], after[2])


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
        return _Answer(node.statvfs(str(node.paths.rootfs / point.lstrip("/"))))
    except OSError as error:
        return _Answer(None, error.strerror or str(error), error.errno or 0)


def _used(node: Node, mounted: list[Mount], check: str) -> Verdict:
    points = [mount.point for mount in mounted if mount.kind in LOCAL and not mount.read_only]
    points = [point for point in points if not point.startswith(_NEARLY_FULL) and not _comes_and_goes(point, mounted)]
    limit = node.limit(check, "used")
    problems, blind, answered = [], [], 0
    for point, answer in ask(node, points).items():
        if answer is None and check == "filesystem_full":  # once is enough
            problems.append(f"{point} {HANGS}")
        if answer is None or answer.sizes is None:
            blind += [f"{point}: {answer.error}"] if answer is not None else []
            continue
        total, free = _total_and_free(answer.sizes, check)
        if not total or (check == "filesystem_full" and total * answer.sizes.f_frsize < _LEAST_BYTES):
            continue
        answered += 1
        used = 1 - free / total
        enough = check == "filesystem_full" and free * answer.sizes.f_frsize >= node.limit(check, "free")
        if used >= limit and not enough:
            problems.append(
                f"{point} is {used:.1%} full" if check != "inodes" else f"{used:.1%} of {point}'s inodes are used"
            )
    if answered or problems:
        return judged(problems)
    return unknown(listed(blind)) if blind else absent("no writable local file system")


def _total_and_free(sizes: StatFs, check: str) -> tuple[int, int]:
    if check == "inodes":
        return sizes.f_files, sizes.f_ffree
    # As df does: what is reserved for root belongs to neither side.
    return sizes.f_blocks - sizes.f_bfree + sizes.f_bavail, sizes.f_bavail


def _read_only(_node: Node, mounted: list[Mount]) -> Verdict:
    """Find what the kernel made read-only after errors: it was mounted to be written, and no longer can be."""
    local = [mount for mount in mounted if mount.kind in LOCAL]
    return judged([f"{m.point} ({m.kind}) is read-only" for m in local if m.read_only and not m.asked_read_only])


def _network(node: Node, mounted: list[Mount]) -> Verdict:
    wanted, learned = node.expected.get("mounts"), node.expected.learned("mounts")
    there = {mount.point: mount for mount in mounted}
    network = [mount.point for mount in mounted if mount.is_network]
    whose = {mount.point for mount in mounted if mount.is_of_user}
    stay = [m.point for m in mounted if (m.is_network or m.kind in _POOLS) and not _comes_and_goes(m.point, mounted)]
    stated = [point.rstrip("/") or "/" for point in wanted or ()]
    stay = [point for point in stay if point not in whose and not there[point].is_of_windows]
    facts = {"mounts": {point: {"name": point, "source": there[point].source} for point in stay}}
    # An automounter mounts it at the first use.
    missing = [point for point in stated if point not in there and not _below(point, _automounted(mounted))]
    problems = []
    if missing and _is_container(node, mounted):
        return unknown(f"the host's mounts can't be seen, so not whether {', '.join(missing)} is mounted", **facts)
    problems += [Problem(f"{point} is not mounted (stated)", action=_MOUNT) for point in missing]
    if wanted is None:
        problems += [
            Problem(f"{point} is not mounted (it was on the last healthy day)", action=_MOUNT, learned=True)
            for point in learned
            if point not in there and not _comes_and_goes(point, mounted)
        ]
    points = list(dict.fromkeys([*network, *(point for point in stated if point in there)]))
    points = [point for point in points if not _is_of_pod(point)]  # a pod's volume is the pod's trouble
    if not points and not problems:
        return absent("no network file system", **facts)
    answers = ask(node, points)
    problems += [Problem(f"{point} {HANGS}") for point, answer in answers.items() if answer is None]
    errors = [(point, answer) for point, answer in answers.items() if answer is not None and answer.error]
    problems += [Problem(f"{point}: {answer.error}") for point, answer in errors if answer.is_dead]
    blind = [
        f"{point}: {answer.error}"
        for point, answer in errors
        if not answer.is_dead and point not in whose and not _elsewhere(answer, point in stated)
    ]
    return judged(problems, blind, **facts)


def _elsewhere(answer: _Answer, stated: bool) -> bool:
    """Return whether a stated mount is there, and its path not in the namespace that this process looks from."""
    return stated and answer.number == errno.ENOENT


def _automounted(mounted: list[Mount]) -> list[str]:
    return [mount.point for mount in mounted if mount.kind == "autofs"]


def _below(point: str, folders: Iterable[str]) -> bool:
    return any(point == folder or point.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _comes_and_goes(point: str, mounted: list[Mount]) -> bool:
    """Return whether a mount is a pod's, a container's, a login's or an automounter's: nothing to be expected."""
    return point.startswith(_OF_USERS) or _is_of_pod(point) or _below(point, _automounted(mounted))


def _is_of_pod(point: str) -> bool:
    """Return whether a mount is of a pod or a container, here or, in a container, below the host's folder."""
    return any(folder in point for folder in _OF_PODS)


def _is_container(node: Node, mounted: list[Mount]) -> bool:
    """Return whether these are a container's own mounts, or those that the host had when it was started."""
    over = any(mount.point == "/" and mount.kind == "overlay" for mount in mounted)
    return any(mount.is_frozen for mount in mounted) or (over and not node.sees_processes)


def _shared_memory(node: Node, mounted: list[Mount]) -> Verdict:
    if not any(mount.point == SHARED_MEMORY for mount in mounted):
        return unknown(f"no mount of {SHARED_MEMORY} can be seen")
    if not any(mount.point == SHARED_MEMORY and mount.kind == "tmpfs" for mount in mounted):
        return failed(f"{SHARED_MEMORY} is not a tmpfs: NCCL and data loaders need it")
    answer = ask(node, [SHARED_MEMORY]).get(SHARED_MEMORY)
    sizes = answer.sizes if answer is not None else None
    if sizes is None:
        return unknown(f"{SHARED_MEMORY} does not answer")
    used = 1 - sizes.f_bavail / sizes.f_blocks if sizes.f_blocks else 0.0
    return judged([f"{SHARED_MEMORY} is {used:.1%} full"] if used >= node.limit("shared_memory", "used") else [])


# A file system that hangs must not hold up the other checks.
_mount_check = partial(Check, worker="mounts")

CHECKS = (
    _mount_check(
        "filesystem_full",
        "no local file system of 4 GiB or more is full: 95 % are used, and less than 50 GB are free",
        "/proc/1/mountinfo; statvfs(3)",
        "Imbue (95 %), gcm check-storage (85 %), gpud disk (90 %)",
        "Find what fills it (`du -xhd1 /`) and free space.",
        over_mounts(partial(_used, check="filesystem_full")),
        limits={"used": 0.95, "free": 50e9},
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
        "every network file system answers within 3 s, and those stated or mounted for a day are there",
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
)
