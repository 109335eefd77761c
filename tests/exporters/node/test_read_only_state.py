"""An explicit --path.state on a file system that is mounted read-only: the node exporter serves, and says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrometer_kit.http_client import get

# In a mount namespace of its own, so that nothing is left of the mount: make the file system, then forbid writing.
SCRIPT = """
set -e
mount -t tmpfs pyrometer-test "$1"
mkdir "$1/state"
echo '{"version": 1}' > "$1/state/foreign.json"
mount -o remount,ro "$1"
folder=$1
shift
exec "$@" --path.state="$folder/state"
"""


def may_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


def text_of(url: str) -> str:
    return get(url).decode()


@contextmanager
def exporter(folder: Path) -> Iterator[tuple[str, Path]]:
    """An exporter whose state folder is read-only; yields its address and its log."""
    disk, log = folder / "disk", folder / "log"
    disk.mkdir()
    flags = ["--web.listen-address=127.0.0.1:0", f"--path.rings={folder}/rings", f"--path.sysfs={folder}/sys",
             f"--path.kmsg={folder}/none"]  # fmt: skip
    program = [sys.executable, "-m", "pyrometer_exporters.node.main", *flags]
    with log.open("wb") as file:
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", SCRIPT, "sh", disk, *program], stderr=file)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield f"http://{found[1]}", log
    finally:
        process.terminate()
        process.wait(20)


def test_the_node_is_served_and_the_disk_is_reported(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("needs root that may mount: the file system is a real one")
    with exporter(tmp_path) as (address, log):
        page = text_of(f"{address}/metrics")
        assert "\npyrometer_exporter_state_writable 0" in page
        assert "\npyrometer_exporter_build_info{" in page
        assert text_of(f"{address}/-/ready").strip() == "ready"
        said = [line for line in log.read_text().splitlines() if "--path.state" in line]
        assert len(said) == 1
        assert "Read-only file system" in said[0]
        assert "Traceback" not in log.read_text()
