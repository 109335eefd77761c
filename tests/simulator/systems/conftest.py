"""The rights that a test needs to take rights away from a command."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

SYS_ADMIN, SYSLOG = 21, 34


@pytest.fixture
def whole_root() -> None:
    """Skip a test without root, or as the root of a container, who lacks what the profiles give and take."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, as make test-systems does")
    held = re.search(r"^CapEff:\t(\w+)$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert held is not None
    for bit, name in ((SYS_ADMIN, "CAP_SYS_ADMIN"), (SYSLOG, "CAP_SYSLOG")):
        if not int(held[1], 16) >> bit & 1:
            pytest.skip(f"needs root with {name}, as make test-systems does")
