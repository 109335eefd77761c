"""The rights that a machine grants: the kernel's log readable, forbidden or absent, and what a default container lacks.

Each is brought about for real, by the kernel: by the capabilities that the command has, by the device nodes that are
there, and by a filter of system calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

KernelLog = Literal["readable", "forbidden", "absent"]

_DMESG_RESTRICT = Path("/proc/sys/kernel/dmesg_restrict")

# Docker leaves these to root: https://docs.docker.com/engine/containers/run/#runtime-privilege-and-linux-capabilities
_DOCKER_CAPABILITIES = (
    "chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service", "net_raw",
    "sys_chroot", "mknod", "audit_write", "setfcap",
)  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """The conditions that a command runs under."""

    name: str
    title: str
    kernel_log: KernelLog
    container: bool = False
    """Without CAP_SYS_ADMIN, and with the system calls forbidden that a container engine forbids by default."""

    def setpriv_flags(self, uid: int) -> list[str]:
        """Return the flags of setpriv(1) that start a command of this user with the capabilities of this profile."""
        flags = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        if self.container:
            return [*flags, f"--bounding-set=-all,{_added(*_DOCKER_CAPABILITIES)}", "--inh-caps=-all"]
        if self.kernel_log == "forbidden":
            return [*flags, "--bounding-set=-syslog,-sys_admin", "--inh-caps=-all"]
        if uid != 0 and self.kernel_log == "readable":
            # As for an ordinary user where kernel.dmesg_restrict is 0, without changing that for everybody.
            return [*flags, "--inh-caps=-all,+syslog", "--ambient-caps=-all,+syslog"]
        return flags

    @property
    def needs_closed_node(self) -> bool:
        """True if the device itself must be closed, as this kernel lets everybody read the log."""
        return self.kernel_log == "forbidden" and not _is_restricted()


PROFILES = (
    Profile("readable", "log readable", "readable"),
    Profile("forbidden", "log forbidden", "forbidden"),
    Profile("absent", "log absent", "absent"),
    Profile("container", "default container", "absent", container=True),
)


def _added(*capabilities: str) -> str:
    return ",".join(f"+{name}" for name in capabilities)


def _is_restricted() -> bool:
    try:
        return _DMESG_RESTRICT.read_text(encoding="ascii").strip() != "0"
    except OSError:
        return False
