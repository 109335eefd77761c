"""The page of attacks, mutants and fuzzing is what its results make of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tools import mutate, mutate_subjects, reliability

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("file", "made"), [(reliability.PAGE, reliability.page), (reliability.THREATS, reliability.threats)]
)
def test_the_page_is_that_of_the_results(file: Path, made: Callable[[], Iterator[str]]) -> None:
    text = file.read_text(encoding="utf-8")
    assert reliability.written(text, list(made())) == text, "python tools/reliability.py --write"


def test_every_attack_names_tests_that_exist() -> None:
    for actor, part in yaml.safe_load(reliability.ATTACKS.read_text(encoding="utf-8")).items():
        assert {"may", "attacks"} == set(part), actor
        for attack in part["attacks"]:
            assert {"attack", "before", "now", "tests"} == set(attack)
            for test in attack["tests"]:
                file, *words = shlex.split(test)
                names = re.findall(r"def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"))
                wanted = re.split(" (?:and|or) ", words[1]) if words else ["test_"]
                assert [word for word in wanted if not any(word in name for name in names)] == [], test


def test_every_module_that_must_not_be_wrong_is_listed_and_exists() -> None:
    assert mutate_subjects.unlisted() == [], "tools/mutate_subjects.py: a subject, or BESIDE with a reason"
    for subject in mutate_subjects.SUBJECTS.values():
        assert all((ROOT / test).is_file() for test in subject.tests), subject.module
    assert set(json.loads(mutate.EQUIVALENT.read_text(encoding="utf-8"))) == set(mutate_subjects.SUBJECTS)
