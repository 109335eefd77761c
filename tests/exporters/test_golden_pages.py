"""Every family of the exporters is on a golden page: a page of samples that a test compares to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.families import exported

FOLDER = Path(__file__).parent
# Where the source of a family is simulated, and the tests that write its golden page.
PLACES = {
    "framework": ("tests/exporters/framework/test_service.py", "tests/exporters/framework"),
    "active": ("tests/exporters/commands/test", "tests/exporters/commands/test"),
    "checks": ("simulator/pyrometer_simulator/host_files.py", "tests/exporters/node/checks"),
    "gpu": ("simulator/pyrometer_simulator/nvml/features/", "tests/exporters/node/gpu"),
    "kernel": ("simulator/pyrometer_simulator/kmsg.py", "tests/exporters/node/kernel"),
    "maintenance": ("tests/exporters/node/test_maintenance.py", "tests/exporters/node/test_maintenance.py"),
    "nccl": ("simulator/pyrometer_simulator/nccl/", "tests/exporters/node/nccl"),
    "nic": ("simulator/pyrometer_simulator/sysfs_layout.py, sysfs_drivers.py", "tests/exporters/node/nic"),
    "train": ("tests/exporters/node/train/conftest.py", "tests/exporters/node/train"),
    "ledger": ("tests/exporters/cluster/ledger/conftest.py", "tests/exporters/cluster/ledger"),
    "slurm": ("simulator/pyrometer_simulator/slurm.py", "tests/exporters/cluster/slurm"),
    "ufm": ("simulator/pyrometer_simulator/ufm.py", "tests/exporters/cluster/ufm"),
    "ufm-telemetry": ("simulator/pyrometer_simulator/ufm_telemetry.py", "tests/exporters/cluster/ufm_telemetry"),
}


def served(text: str) -> Iterator[str]:
    """Yield the name of each sample on a page."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield line.partition("{")[0].partition(" ")[0]


GOLDEN = frozenset(name for page in FOLDER.rglob("golden/*") for name in served(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("collector", exported())
def test_every_family_is_on_a_golden_page(collector: str) -> None:
    assert collector in PLACES, f"add to PLACES where {collector}'s source is simulated, and the tests of its page"
    source, tests = PLACES[collector]
    missing = [family.name for family in exported()[collector] if family.name not in GOLDEN]
    assert missing == [], (
        f"add where each comes from to {source}, then run PYROMETER_UPDATE_GOLDEN=1 .venv/bin/pytest {tests}"
    )


def test_a_sample_is_known_by_its_name() -> None:
    assert list(served('# HELP a b\n# TYPE a gauge\na 1\nb{c="d e"} 2 3\n\n')) == ["a", "b"]
