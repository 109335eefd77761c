"""Docstrings, comments, messages and pages are worded so that nobody has to decode them (tools/prose.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import prose

ROOT = Path(__file__).parents[1]
PLANTED = Path("kit/pyrometer_kit/planted.py")


def found(source: str, path: Path = PLANTED) -> list[str]:
    return [finding.wrong for finding in prose.findings(path, source)]


def test_nothing_has_to_be_decoded() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: no list of files")
    assert [str(finding) for path in prose.files() for finding in prose.findings(path)] == []


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("The GPU is opened anew.", "anew"),
        ("A value that is to be had.", "to be had"),
        ("It goes on without the GPU.", "goes on without"),
        ("The port is nobody's.", "port is nobody's"),
        ("The file comes back by itself.", "by itself"),
        ("The driver tells its version.", "tells"),
        ("The number stands in the file.", "stands"),
        ("Return what it says.", "what it says"),
        ("The GPU gives no answer now.", "gives no answer"),
        ("It has failed for 5 minutes or longer.", "minutes or longer"),
        ("The reason could not be had.", "could not be had"),
        ("This cause does not convince.", "does not convince"),
        ("It was so as far back as was looked.", "as far back as was looked"),
        ("The GPU is hotter than it may be.", "than it may be"),
    ],
)
def test_a_word_is_found_wherever_prose_is(sentence: str, wrong: str) -> None:
    assert wrong in found(f'"""{sentence}"""\n')
    assert wrong in found(f"x = 1  # {sentence}\n")
    assert wrong in found(f'log.warning("{sentence}")\n')
    assert wrong in found(f"# {sentence}\nx = 1\n")
    assert wrong in found(f"# Title\n\n- {sentence}\n", Path("docs/planted.md"))
    assert wrong in found(f"summary: {sentence}\n", Path("alert_rules/planted.rules.yaml"))


@pytest.mark.parametrize(
    "opener", ["What a file holds.", "Of a device the name.", "Whether it is up.", "It, once more."]
)
def test_an_opener_is_found_in_every_docstring_and_page(opener: str) -> None:
    for source in (
        f'"""{opener}"""\n',
        f'class A:\n    """{opener}"""\n',
        f'def f():\n    """{opener}"""\n',
        f"# {opener}\n",
    ):
        assert found(source) == [f"{' '.join(opener.split()[:4])} ..."]
    assert found(f"Fine here. {opener}\n", Path("docs/planted.md")) != []


def test_a_function_begins_with_a_verb_while_classes_and_properties_need_not() -> None:
    assert found('def f():\n    """The port of a device."""\n') == ["The port of a ..."]
    assert found('def f():\n    """Return the port of a device."""\n') == []
    assert found('class A:\n    """The port of a device."""\n') == []
    assert found('class A:\n    @property\n    def f(self):\n        """The port of a device."""\n') == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Tell a slow rank from a stalled one.",
        "MFU stands for model FLOPs utilisation.",
        "Read `anew` from the file.",
        "What does this cost?",
    ],
)
def test_ordinary_english_is_no_finding(sentence: str) -> None:
    assert found(f'"""{sentence}"""\n') == []
    assert found(f"{sentence}\n", Path("docs/planted.md")) == []


def test_code_and_examples_are_not_read() -> None:
    assert found("```\nthe server tells it anew\n```\n", Path("docs/planted.md")) == []
    assert found('"""Parse.\n\n    >>> tells("anew")\n"""\n') == []
    assert (
        found('def test_it_is_made_anew() -> None:\n    assert "x" in "it tells this anew"\n', Path("tests/a.py")) == []
    )


def test_the_program_prints_each_finding_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text('"""Fine."""\n\n# The driver tells this.\n', encoding="utf-8")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "files", lambda _folders: [tmp_path / "a.py"])
    assert prose.main([]) == 1
