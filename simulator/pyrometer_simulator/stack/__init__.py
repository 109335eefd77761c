"""The real Prometheus and Alertmanager for the demo and the tests, without root and without changing the system.

They come from PATH where they are new enough, else from Debian's testing suite, unpacked into a cache folder.
`python -m pyrometer_simulator.stack` prints where each is.
"""

from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.stack import alertmanager
from pyrometer_simulator.stack.cache import TOOLS, Progress, cache_folder, fill, missing
from pyrometer_simulator.stack.errors import INSTALL_HINT, StackError
from pyrometer_simulator.stack.versions import (
    OLDEST_ALERTMANAGER,
    OLDEST_PROMETHEUS,
    on_path,
    parse_version,
    version_line,
)

__all__ = ["Stack", "StackError", "find_stack"]


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
        StackError: a tool is missing and can't be downloaded; one line names it and what to install.
    """
    prometheus = on_path(["prometheus"], OLDEST_PROMETHEUS)
    promtool = on_path(["promtool"], OLDEST_PROMETHEUS)
    installed = _installed_alertmanager()
    tools = {"prometheus": prometheus, "promtool": promtool, alertmanager.PACKAGE: installed}
    packages = [package for package, tool in tools.items() if tool is None]
    folder = cache_folder() if packages else Path()  # who has all tools on PATH needs no home folder
    if missing(folder, packages):
        fill(folder, packages, _check, progress)
    return Stack(
        prometheus or folder / "prometheus/usr/bin/prometheus",
        promtool or folder / "promtool/usr/bin/promtool",
        *(installed or _unpacked_alertmanager(folder / alertmanager.PACKAGE)),
    )


def _installed_alertmanager() -> tuple[tuple[str], tuple[str]] | None:
    """Return the commands of Alertmanager and amtool on PATH; None unless both are there and new enough."""
    server = on_path(["alertmanager", "prometheus-alertmanager"], OLDEST_ALERTMANAGER)
    amtool = on_path(["amtool"], OLDEST_ALERTMANAGER)
    return ((str(server),), (str(amtool),)) if server and amtool else None


def _unpacked_alertmanager(unpacked: Path) -> tuple[tuple[str, ...], tuple[str]]:
    """Return the commands of Alertmanager and amtool of the unpacked package."""
    alertmanager.relocate(unpacked)  # a cache that an earlier version of this project filled has no relocated copy
    return alertmanager.start_command(unpacked), (str(unpacked / "usr/bin/amtool"),)


def _check(package: str, unpacked: Path) -> None:
    """Raise StackError unless each tool of a freshly unpacked package starts here and is new enough."""
    oldest = OLDEST_ALERTMANAGER if package == alertmanager.PACKAGE else OLDEST_PROMETHEUS
    for tool in TOOLS[package]:
        line = version_line([unpacked / "usr/bin" / tool])
        version = parse_version(line)
        if version is None:
            raise StackError(
                f"{tool} of Debian testing does not start on this system (too old a libc?): {INSTALL_HINT}"
            )
        if version < oldest:
            raise StackError(f"this archive only has {line}: {INSTALL_HINT}")
    if package == alertmanager.PACKAGE:
        alertmanager.relocate(unpacked)
