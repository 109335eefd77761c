"""Describe what the exporter runs in: versions, container, rights, devices; one line each, unknown where unreadable."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_PACKAGES = ("pyrometer-exporters", "nvidia-ml-py", "prometheus-client", "PyYAML", "bcrypt")
# Rights that the kernel or the driver may keep from an exporter: the kernel log, other users' processes, GPM.
_SWITCHES = ("sys/kernel/dmesg_restrict", "sys/kernel/yama/ptrace_scope", "sys/kernel/perf_event_paranoid")
_STATUS = ("Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
_DRIVER_FILES = ("driver/nvidia/version", "driver/nvidia/params")
_UNKNOWN = "unknown"
_MOST_LINES = 60


def lines(procfs: Path, dev: Path = Path("/dev")) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of everything that a stranger must know to judge the report."""
    yield "Python", " ".join(sys.version.split())
    yield "kernel", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "system", _os_release()
    yield "C library", " ".join(platform.libc_ver()) or _UNKNOWN
    for name in _PACKAGES:
        yield name, _version(name)
    yield "processors", f"{os.cpu_count() or _UNKNOWN}, load {_text(procfs / 'loadavg')}"
    yield "container", ", ".join(_container(procfs)) or "none seen"
    yield "cgroup", _text(procfs / "self" / "cgroup").replace("\n", "; ")
    for line in _text(procfs / "self" / "status").splitlines():
        name, _, value = line.partition(":")
        if name in _STATUS:
            yield f"process {name}", " ".join(value.split())
    for name in _SWITCHES:
        yield name, _text(procfs / name)
    for name in _DRIVER_FILES:
        for line in _text(procfs / name).splitlines()[:_MOST_LINES]:
            yield name, line
    yield from _devices(dev)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _os_release() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", _UNKNOWN)
    return _UNKNOWN


def _container(procfs: Path) -> Iterator[str]:
    """Yield what shows that this is a container."""
    if Path("/.dockerenv").exists():
        yield "/.dockerenv"
    if Path("/run/.containerenv").exists():
        yield "/run/.containerenv"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        yield "Kubernetes"
    if _text(procfs / "1" / "comm") not in ("systemd", "init", _UNKNOWN):
        yield "process 1 is not init"


def _devices(dev: Path) -> Iterator[tuple[str, str]]:
    """Yield owner, mode and whether this process may open each of the driver's devices and the kernel's log."""
    for path in [*sorted(dev.glob("nvidia*"))[:_MOST_LINES], dev / "kmsg"]:
        yield str(path), _reason_or(lambda path=path: _access(path))  # type: ignore[misc]


def _access(path: Path) -> str:
    status = path.stat()
    may = ", ".join(word for flag, word in ((os.R_OK, "read"), (os.W_OK, "write")) if os.access(path, flag))
    return f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}, this process may {may or 'not open it'}"


def _text(path: Path) -> str:
    return _reason_or(lambda: path.read_text(errors="replace").strip())


def _reason_or(read: Callable[[], str]) -> str:
    try:
        return read()
    except OSError as error:
        return f"{_UNKNOWN} ({error.strerror})"
