"""The manual builds without a warning, loads nothing from another host, and has every place that others link to."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyrometer_simulator.stack.promtool import rules_of

ROOT = Path(__file__).parents[2]
LOADING = re.compile(
    r"""<(?:script|img|iframe|source|link[^>]*rel="?(?:stylesheet|icon|preconnect))[^>]*(?:src|href)="?(https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_page_is_built(site: Path) -> None:
    built = {path.relative_to(site).with_suffix(".md") for path in pages(site)}
    assert {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")} <= built


def test_a_list_after_a_line_of_text_is_a_list(site: Path) -> None:
    """Python-Markdown would run its items into the paragraph before."""
    flat = re.compile(r"<p>[^<]*(?:<(?!/p>)[^<]*)*?\n(?:1\.|[-*]) ")
    assert [path.name for path in pages(site) if flat.search(path.read_text(encoding="utf-8"))] == []
    alerts = (site / "alerts.html").read_text(encoding="utf-8")
    assert "<ol>\n<li>Is it one GPU" in alerts


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    assert [path.name for path in pages(site) if LOADING.search(path.read_text(encoding="utf-8"))] == []


def test_no_script_or_style_names_a_host_to_load_from(site: Path) -> None:
    hosts = re.compile(r"""https?://(?:unpkg\.com|cdn\.|cdnjs\.|fonts\.)""")
    files = [path for path in site.rglob("*") if path.suffix in (".js", ".css")]
    assert files
    assert [path.name for path in files if hosts.search(path.read_text(encoding="utf-8"))] == []


def test_the_pattern_finds_a_page_that_loads_from_another_host() -> None:
    assert LOADING.search('<script src="https://unpkg.com/iframe-worker/shim"></script>')
    assert LOADING.search('<link rel="stylesheet" href="//fonts.example.org/a.css">')
    assert not LOADING.search('<a href="https://prometheus.io/">Prometheus</a>')


def test_every_runbook_has_its_place_on_the_page(site: Path) -> None:
    page = (site / "alerts.html").read_text(encoding="utf-8")
    rules = [rule for rule in rules_of((ROOT / "alert_rules").glob("*.rules.yaml")) if "alert" in rule]
    places = {rule["annotations"]["runbook"].partition("#")[2] for rule in rules}
    assert places
    assert {place for place in places if f'id="{place}"' not in page} == set()


def test_the_root_pages_are_in_the_manual(site: Path) -> None:
    assert "Add an alert" in (site / "contributing.html").read_text(encoding="utf-8")
    assert "0.1.0" in (site / "changelog.html").read_text(encoding="utf-8")
