"""The generated pages of the reference say what the code says."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from tools import reference

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", reference.PAGES)
def test_the_page_is_what_the_code_says(page: str) -> None:
    text = (ROOT / f"docs/reference/{page}.md").read_text(encoding="utf-8")
    assert text == reference.PAGES[page](), f"docs/reference/{page}.md is outdated; run: make docs"


def test_every_command_for_users_is_listed() -> None:
    page = reference.commands_page()
    for script in reference.commands():
        assert f"\n## {script.name}\n" in page
    assert "\n### pyrometer-alerting replay\n" in page
    assert "\n### pyrometer-dashboards rules\n" in page


def test_a_command_that_parses_nothing_is_an_error() -> None:
    with pytest.raises(LookupError, match="broken replay"):
        reference.parser_of(lambda: None, "broken", "replay")


def test_a_flag_shows_its_value_its_default_and_its_help() -> None:
    parser = argparse.ArgumentParser(prog="x")
    parser.add_argument("--port", type=int, default=9935, metavar="N", help="port of %(prog)s (default: %(default)s)")
    parser.add_argument("--mode", choices=("a", "b"), required=True)
    parser.add_argument("--secret", help=argparse.SUPPRESS)
    text = reference.section("x", parser)
    assert "| `--port` `N` | `9935` | port of x |" in text
    assert r"| `--mode` `a\|b` (required) |  |  |" in text
    assert "secret" not in text


def test_a_summary_shows_labels_instead_of_templates() -> None:
    summary = "{{ $labels.node }} {{ if $labels.gpu }}GPU {{ $labels.gpu }}{{ else }}{{ $value }} GPUs{{ end }} lost"
    assert reference._without_templates(summary) == "*node* GPU *gpu* lost"
    assert reference._without_templates("fell by {{ $value }} %") == "fell by … %"


def test_a_wrong_call_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["nothing"]) == 2
    assert capsys.readouterr().err == "usage: python tools/reference.py commands|alerts|checks|peaks FILE\n"


def test_every_flag_is_in_a_guide_or_in_a_deployment() -> None:
    """One that is in neither is one to deprecate; a collector's on and off are described once for all."""
    flags = re.findall(r"(?m)^\| `(--[\w.-]+)`", (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8"))
    generated = {"reference", "metrics.md", "changelog.md"}
    guides = [path for path in (ROOT / "docs").rglob("*.md") if generated.isdisjoint(path.parts)]
    deployments = [path for path in (ROOT / "compose").rglob("*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in (*guides, *deployments)]
    named = {flag for text in texts for flag in re.findall(r"--[\w.-]*\w", text)}
    assert len(flags) > 150
    assert [flag for flag in flags if flag not in named and not re.fullmatch(r"--(no-)?collector\.[\w-]+", flag)] == []
