"""The cache of unpacked Debian packages: each is complete or absent, whatever happens while it is filled."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyrometer_simulator.stack.apt import Apt
from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.stack.sources import debian_uris

Progress = Callable[[str], object]
Check = Callable[[str, Path], None]

# `<package>/usr/bin/<tool>`: what must run before a package counts as usable.
TOOLS = {
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    "prometheus-alertmanager": ("prometheus-alertmanager", "amtool"),
}


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/pyrometer/stack`, else `~/.cache/pyrometer/stack`, without creating it.

    Raises:
        StackError: the user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # a user id without an entry in passwd and without HOME, as in some containers
        raise StackError("no home folder for the cache: set XDG_CACHE_HOME to a folder of yours") from None
    return home / "pyrometer" / "stack"


def missing(folder: Path, packages: Sequence[str]) -> list[str]:
    """Return those of `packages` that are not unpacked below `folder`."""
    return [package for package in packages if not (folder / package).is_dir()]


def fill(folder: Path, packages: Sequence[str], check: Check, progress: Progress) -> None:
    """Unpack the missing ones of `packages` below `folder`, one folder each.

    Args:
        folder: the cache; made when missing.
        packages: names of Debian packages.
        check: called with a package and the folder it was unpacked to, before it is kept; raises StackError when the
            package is unusable (too old, does not start).
        progress: called with one line per stage.

    Raises:
        StackError: nothing to install from, with the reason of the last address that was tried.
    """
    try:
        with _locked(folder):
            _sweep(folder)
            wanted = missing(folder, packages)  # somebody else may have filled it while we waited
            if wanted:
                _fill_from_any(folder, _Order(wanted, check, progress))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StackError(f"cannot write to {folder}: {reason}; set XDG_CACHE_HOME to a folder of yours") from None


@dataclass(frozen=True)
class _Order:
    """Packages to fetch, the check of each, and where progress is reported."""

    packages: Sequence[str]
    check: Check
    progress: Progress


def _fill_from_any(folder: Path, order: _Order) -> None:
    """Try the machine's own mirrors, then Debian's; a failure before the last one is only reported."""
    uris = debian_uris()
    for uri in uris:
        with tempfile.TemporaryDirectory(prefix=".filling-", dir=folder) as scratch:
            try:
                _fill_from(uri, Path(scratch), folder, order)
            except StackError as error:
                if uri == uris[-1]:
                    raise
                order.progress(f"stack: {error}; trying the next archive")
            else:
                return


def _fill_from(uri: str, scratch: Path, folder: Path, order: _Order) -> None:
    apt = Apt(scratch, uri)
    order.progress("stack: reading the package lists of Debian testing")
    started = time.monotonic()
    size = apt.update()
    order.progress(f"stack: package lists ({size}) read in {time.monotonic() - started:.1f} s")
    for package in missing(folder, order.packages):
        unpacked = scratch / "unpacked" / package
        _fetch(apt, package, unpacked, order)
        unpacked.rename(folder / package)


def _fetch(apt: Apt, package: str, into: Path, order: _Order) -> None:
    offered = apt.describe(package)
    order.progress(f"stack: downloading {package} {offered.version} ({offered.size / 1e6:.1f} MB)")
    started = time.monotonic()
    into.mkdir(parents=True)
    apt.unpack(package, into)
    order.check(package, into)
    order.progress(f"stack: {package} ready in {time.monotonic() - started:.1f} s")


def _sweep(folder: Path) -> None:
    """Remove half-unpacked leftovers of a killed run; only called with the lock held."""
    for leftover in folder.glob(".filling-*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process fill the cache while the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
