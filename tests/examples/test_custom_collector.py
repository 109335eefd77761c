"""The collector in ``examples/custom_collector``, installed beside the node exporter and scraped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrometer_kit.http_client import get

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_collector"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, as pip installs it."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-build-isolation"]
    subprocess.run([*command, "--no-deps", "--target", folder, EXAMPLE], check=True, timeout=120)
    return folder


@contextmanager
def scraped(installed: Path, tmp_path: Path, *flags: str) -> Iterator[str]:
    """Start the node exporter with the example on its path; give what it serves."""
    command = [
        sys.executable, "-m", "pyrometer_exporters.node.main", "--web.listen-address=127.0.0.1:0",
        f"--path.state={tmp_path}", f"--path.sysfs={tmp_path}", f"--path.rings={tmp_path}",
        "--no-collector.gpu", *flags,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(installed), "SCRATCH": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as exporter:
        try:
            assert exporter.stderr is not None
            port = next(match[1] for line in exporter.stderr if (match := re.search(r"listening on [^ ]*:(\d+)", line)))
            yield get(f"http://127.0.0.1:{port}/metrics").decode()
        finally:
            exporter.terminate()
            exporter.stderr.read()


def test_its_metric_is_served_and_it_is_timed_like_the_exporters_own(installed: Path, tmp_path: Path) -> None:
    with scraped(installed, tmp_path) as page:
        assert re.search(rf'^site_scratch_free_bytes{{path="{tmp_path}"}} [1-9]\d*$', page, re.MULTILINE)
        assert 'pyrometer_collector_success{collector="scratch"} 1' in page
        assert 'pyrometer_collector_duration_seconds{collector="scratch"}' in page


def test_a_flag_leaves_it_out(installed: Path, tmp_path: Path) -> None:
    with scraped(installed, tmp_path, "--no-collector.scratch") as page:
        assert "scratch" not in page
        assert "pyrometer_collector_success" in page


def test_the_manual_shows_the_example_itself() -> None:
    page = (EXAMPLE.parents[1] / "docs/howto/custom-collector.md").read_text(encoding="utf-8")
    code = (EXAMPLE / "scratch_collector.py").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = [
        line
        for block in blocks
        for line in block.splitlines()
        if "(" in line and not line.startswith(("class", "    def"))
    ]
    assert shown
    assert [line for line in shown if line not in code.splitlines()] == []
    entry = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert entry[0] in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
