"""NVIDIA's driver in the files of a node: the kernel's module, and the library that packages exchange under it."""

from __future__ import annotations

from pathlib import Path


class Installation:
    """The module's version in procfs, the library on disk, and which library the exporter has in its memory.

    Args:
        procfs: of the node.
        libraries: the folder of the libraries, to be made.
        version: of both.
    """

    def __init__(self, procfs: Path, libraries: Path, version: str) -> None:
        self._procfs = procfs
        self._libraries = libraries
        self.installed = version
        """Return the version of the library on disk."""
        libraries.mkdir(parents=True)
        (procfs / "driver/nvidia").mkdir(parents=True)
        (procfs / "self").mkdir(exist_ok=True)
        self.install(version)
        self.load()

    def install(self, version: str) -> None:
        """Exchange the packages: the old library is deleted, though processes still have it in their memory."""
        (self._libraries / f"libnvidia-ml.so.{self.installed}").unlink(missing_ok=True)
        (self._libraries / f"libnvidia-ml.so.{version}").touch()
        link = self._libraries / "libnvidia-ml.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(f"libnvidia-ml.so.{version}")
        self.installed = version

    def load(self) -> None:
        """Load the installed module, and let a new process map the installed library."""
        (self._procfs / "driver/nvidia/version").write_text(
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self.installed}  Release Build  (root@build)\n"
        )
        path = self._libraries / f"libnvidia-ml.so.{self.installed}"
        (self._procfs / "self/maps").write_text(
            "7f2a00000000-7f2a00028000 r--p 00000000 fd:01 1311   /usr/lib/x86_64-linux-gnu/libc.so.6\n"
            f"7f2a10000000-7f2a10200000 r-xp 00000000 fd:01 1312   {path}\n"
        )
