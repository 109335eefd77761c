"""A module that is slow to import waits for the worker that needs it."""

from __future__ import annotations

import subprocess
import sys


def test_the_service_listens_before_pandas_and_matplotlib_are_imported() -> None:
    late = "{'pandas', 'numpy', 'matplotlib'}"
    script = f"import sys, pyrometer_alerting.app.main; print(sorted({late} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"
