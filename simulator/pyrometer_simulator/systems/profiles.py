"""The rights of a command: the kernel's log readable, forbidden or absent, and those of a default container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KernelLog = Literal["readable", "forbidden", "absent"]


@dataclass(frozen=True)
class User:
    """Somebody who types the commands."""

    name: str
    uid: int
    home: str


ROOT = User("root", 0, "/root")
ORDINARY = User("newcomer", 4711, "/home/newcomer")
USERS = {"root": ROOT, "ordinary": ORDINARY}
# The device's node without its permission in the container's control group: the kernel refuses to open it.
_LOG_FLAGS: dict[KernelLog, list[str]] = {
    "readable": ["--device=/dev/kmsg"], "forbidden": ["--volume=/dev/kmsg:/dev/kmsg"], "absent": [],
}  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """The conditions that a command runs under; a ``container`` has what Docker grants by default and no more."""

    name: str
    title: str
    kernel_log: KernelLog
    container: bool = False

    def flags(self, user: User) -> list[str]:
        """Return the flags of ``docker run``."""
        log = _LOG_FLAGS[self.kernel_log]
        if self.container:
            return [*log, f"--user={user.uid}:{user.uid}"]
        if user is ROOT:
            added = ["SYS_PTRACE", "NET_ADMIN", *([] if self.kernel_log == "forbidden" else ["SYS_ADMIN", "SYSLOG"])]
            open_paths = "--security-opt=apparmor=unconfined", "--security-opt=systempaths=unconfined"
            return [*log, *(f"--cap-add={name}" for name in added), *open_paths]
        # As where kernel.dmesg_restrict is 0: by setpriv (below), since --user takes all capabilities away.
        return [*log, "--cap-add=SYSLOG"] if self.kernel_log == "readable" else [*log, f"--user={user.uid}:{user.uid}"]

    def command(self, user: User, script: str) -> list[str]:
        """Return the command in the container that runs a shell script as this user."""
        shell = ["sh", "-c", script]
        if user is ROOT or self.container or self.kernel_log != "readable":
            return shell
        become = [f"--reuid={user.uid}", f"--regid={user.uid}", "--clear-groups"]
        return ["setpriv", *become, "--inh-caps=-all,+syslog", "--ambient-caps=-all,+syslog", *shell]


PROFILES = (
    Profile("readable", "log readable", "readable"),
    Profile("forbidden", "log forbidden", "forbidden"),
    Profile("absent", "log absent", "absent"),
    Profile("container", "default container", "absent", container=True),
)
