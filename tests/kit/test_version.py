"""The installed version, as importlib.metadata has it and without its imports."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pyrometer_kit import version


def test_it_is_what_the_installation_says() -> None:
    assert version.installed("pyrometer") == metadata.version("pyrometer")


def test_what_was_never_installed_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nowhere-2.0.dist-info").mkdir()
    (tmp_path / "nowhere-1.0.egg-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "absent"), str(tmp_path)])
    assert version.installed("nowhere") == "2.0"
    assert version.installed("now") == version.UNKNOWN


def test_the_node_exporter_loads_nothing_that_it_needs_only_elsewhere() -> None:
    program = (
        "import sys; from pyrometer_exporters import node; from pyrometer_exporters.node import main;"
        "from pyrometer_exporters.framework.collector import discover; discover(node); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "pyrometer_exporters.node.gpu.collector" in loaded
    # Together some 8 MB of what an exporter may take (docs/design.md: 40 MB).
    heavy = {"importlib.metadata", "email", "http.client", "zipfile", "yaml", "bcrypt", "prometheus_client"}
    heavy |= {"hmac", "hashlib", "html", "requests", "urllib3", "slack_sdk"}
    assert not heavy & set(loaded)
