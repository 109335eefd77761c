"""The page of attacks, mutants and fuzzing is what its results make of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import yaml
from tools import mutate, mutate_subjects, reliability

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_that_of_the_results() -> None:
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    assert reliability.written(text, list(reliability.page())) == text, (
        "python tools/reliability.py --write docs/reliability.md"
    )


def test_every_attack_names_its_tests() -> None:
    attacks = yaml.safe_load((ROOT / "benchmarks/attacks.yaml").read_text(encoding="utf-8"))
    for subject in attacks.values():
        for attack in subject:
            assert {"attack", "before", "now", "tests"} == set(attack)
            assert all(shlex.split(test)[0].startswith("tests/") for test in attack["tests"])


def test_every_module_that_must_not_be_wrong_is_listed_and_exists() -> None:
    assert mutate_subjects.unlisted() == [], "tools/mutate_subjects.py: a subject, or BESIDE with a reason"
    for subject in mutate_subjects.SUBJECTS.values():
        assert all((ROOT / test).is_file() for test in subject.tests), subject.module
    assert set(json.loads(mutate.EQUIVALENT.read_text(encoding="utf-8"))) == set(mutate_subjects.SUBJECTS)
