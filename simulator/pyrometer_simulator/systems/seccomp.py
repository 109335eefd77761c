"""Forbids the system calls that container engines forbid by default, for this process and all that it starts.

The list is Docker's default profile for a container without CAP_SYS_ADMIN and its like, as far as calls go by number
alone; of clone's flags those for new namespaces. clone3 is answered as unknown, as Docker does, since a filter can't
see its flags: the C library then uses clone. https://docs.docker.com/engine/security/seccomp/
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

# x86_64's numbers: arch/x86/entry/syscalls/syscall_64.tbl
_FORBIDDEN = {
    "pivot_root": 155, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
    "reboot": 169, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179,
    "lookup_dcookie": 212, "clock_settime": 227, "mbind": 237, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304,
    "setns": 308, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
}  # fmt: skip
_CLONE, _CLONE3 = 56, 435
_NEW_NAMESPACES = 0x7E020000
_ARCH_X86_64 = 0xC000003E

# linux/bpf_common.h, linux/seccomp.h: offsets are those of struct seccomp_data.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

SUPPORTED = platform.machine() == "x86_64"


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install() -> None:
    """Install the filter, for good. The caller needs CAP_SYS_ADMIN.

    Raises:
        OSError: the kernel refuses it, or this is not x86_64.
    """
    if not SUPPORTED:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    instructions = _instructions()
    program = _Program(len(instructions), b"".join(struct.pack("=HBBI", *each) for each in instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {errno.errorcode.get(number, number)}")


def _instructions() -> list[tuple[int, int, int, int]]:
    """Return the filter: operation, jump if true, jump if false, operand."""
    allow, refuse, unknown = (
        (_RETURN, 0, 0, verdict) for verdict in (_ALLOW, _FAIL | errno.EPERM, _FAIL | errno.ENOSYS)
    )
    head = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _ARCH_X86_64), allow, (_LOAD, 0, 0, _NUMBER)]
    each = [line for number in _FORBIDDEN.values() for line in ((_EQUAL, 0, 1, number), refuse)]
    clone3 = [(_EQUAL, 0, 1, _CLONE3), unknown]
    clone = [(_EQUAL, 0, 3, _CLONE), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), refuse]
    return [*head, *each, *clone3, *clone, allow]
