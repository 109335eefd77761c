"""A pair of which a part above it does not start: nothing that was started before it stays."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer_simulator.demo.processes import DemoError
from pyrometer_simulator.pair.mimir import Mimir
from pyrometer_simulator.pair.thanos import Thanos
from pyrometer_simulator.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def running_in(folder: Path) -> Iterator[str]:
    """Yield the command of each process whose working directory is in a folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if (process / "cwd").readlink().is_relative_to(folder):
                yield (process / "cmdline").read_text().replace("\0", " ")


def test_a_process_that_is_left_is_found(tmp_path: Path) -> None:
    """Show that the test below can fail."""
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as left:
        try:
            assert [*running_in(tmp_path)] == ["sleep 60 "]
        finally:
            left.kill()


@pytest.mark.parametrize("above", [Thanos, Mimir])
def test_what_was_started_before_a_part_that_does_not_start_is_ended(
    above: type[Thanos | Mimir], tmp_path: Path, stack: Stack
) -> None:
    ends_at_once = Path(shutil.which("false") or "/bin/false")
    with pytest.raises(DemoError, match="ended with status 1"):
        above(tmp_path / "scene", stack, ends_at_once)
    assert (tmp_path / "scene/prometheus-b/data/wal").is_dir()
    assert list(running_in(tmp_path)) == []
