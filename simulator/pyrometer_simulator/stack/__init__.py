"""The real Prometheus and Alertmanager for the demo and the tests, without root and without changing the system.

From PATH where they are new enough, else from Debian's testing suite, unpacked into a cache folder.
`python -m pyrometer_simulator.stack` says where each is.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.stack.cache import TOOLS, Progress, cache_folder, fill, missing
from pyrometer_simulator.stack.errors import INSTALL_HINT, StackError
from pyrometer_simulator.stack.versions import (
    OLDEST_ALERTMANAGER,
    OLDEST_PROMETHEUS,
    Version,
    on_path,
    parse_version,
    version_line,
)

__all__ = ["Stack", "StackError", "find_stack"]

# Debian's Alertmanager opens /usr/share/prometheus/alertmanager/default.tmpl by that path and does not start without.
# So the unpacked usr/share is laid over the system's, read-only, in a mount namespace that only this process sees.
# `.` instead of the path, because a colon or a comma in it would end the option; exec all the way, so that a signal
# to the process that was started reaches Alertmanager itself.
_LAY_OVER = (
    '(cd "$1" && exec mount -t overlay overlay -o ro,lowerdir=.:/usr/share /usr/share) || exit 125; shift; exec "$@"'
)


@dataclass(frozen=True)
class Stack:
    """Where the four tools are. The commands are beginnings of an argument list: append the tool's own flags."""

    prometheus: Path
    promtool: Path
    alertmanager_command: tuple[str, ...]
    amtool_command: tuple[str, ...]


def find_stack(progress: Progress = print) -> Stack:
    """Find the tools, downloading what is missing (50 MB at most, once).

    Args:
        progress: called with one line per stage; not called at all when everything is at hand.

    Raises:
        StackError: a tool cannot be had; one line says which and what to install.
    """
    prometheus = on_path(["prometheus"], OLDEST_PROMETHEUS)
    promtool = on_path(["promtool"], OLDEST_PROMETHEUS)
    alertmanager = on_path(["alertmanager", "prometheus-alertmanager"], OLDEST_ALERTMANAGER)
    amtool = on_path(["amtool"], OLDEST_ALERTMANAGER)
    found = {"prometheus": prometheus, "promtool": promtool, "prometheus-alertmanager": alertmanager and amtool}
    folder = cache_folder()
    packages = [package for package, path in found.items() if path is None]
    if missing(folder, packages):
        fill(folder, packages, _check, progress)
    return Stack(
        prometheus or folder / "prometheus/usr/bin/prometheus",
        promtool or folder / "promtool/usr/bin/promtool",
        *_alertmanager_commands(alertmanager, amtool, folder / "prometheus-alertmanager"),
    )


def _alertmanager_commands(
    alertmanager: Path | None, amtool: Path | None, unpacked: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Alertmanager and amtool of one origin: both from PATH, or both from the unpacked package."""
    if alertmanager and amtool:
        return (str(alertmanager),), (str(amtool),)
    _require_namespace(unpacked)
    return _in_namespace(unpacked, "prometheus-alertmanager"), _in_namespace(unpacked, "amtool")


def _in_namespace(unpacked: Path, tool: str) -> tuple[str, ...]:
    """The beginning of an argument list that runs `tool` of an unpacked package with its usr/share in place.

    An ordinary user needs a user namespace (and looks like root inside it), root does not.
    """
    flags = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    share, binary = unpacked / "usr/share", unpacked / "usr/bin" / tool
    return ("unshare", *flags, "sh", "-c", _LAY_OVER, "sh", str(share), str(binary))


def _require_namespace(unpacked: Path) -> None:
    """Fail in one line where the kernel (or a container's or AppArmor's rules) forbids the mount namespace."""
    if shutil.which("unshare") is None:
        raise StackError(f"unshare not found: install the package util-linux, or {INSTALL_HINT}")
    if not version_line(_in_namespace(unpacked, "amtool")):
        raise StackError(
            "this kernel lets no mount namespace be made, which the unpacked Alertmanager needs: install the package "
            "prometheus-alertmanager (>= 0.33) so that it and amtool are on PATH"
        )


def _check(package: str, unpacked: Path) -> None:
    """Whether each tool of a fresh package starts here and is new enough."""
    oldest = OLDEST_ALERTMANAGER if package == "prometheus-alertmanager" else OLDEST_PROMETHEUS
    for tool in TOOLS[package]:
        line = version_line([unpacked / "usr/bin" / tool])
        version: Version | None = parse_version(line)
        if version is None:
            raise StackError(
                f"{tool} of Debian testing does not start on this system (too old a libc?): {INSTALL_HINT}"
            )
        if version < oldest:
            raise StackError(f"this archive only has {line}: {INSTALL_HINT}")
