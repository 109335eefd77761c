"""The page of attacks, mutants and fuzzing is what its results make of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml
from tools import mutate, reliability

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


def test_a_mutant_is_one_change_and_never_of_a_message() -> None:
    source = (
        "def f(a: int = 1) -> int:\n    '''Return it.'''\n    if a < 2 and not a:\n        raise ValueError('no')\n"
        "    log.info('said')\n    return g('SELECT 1 WHERE a = ? AND b < ?', a + 1)\n"
    )
    found = {mutant.change for mutant in mutate.mutants_of(source)}
    assert {"a < 2  ->  a <= 2", "a + 1  ->  a - 1", "not a  ->  a", "1  ->  2", "2  ->  3"} <= found
    assert "'SELECT 1 WHERE a = ? AND b < ?'  ->  'SELECT 1 WHERE a = ? OR b < ?'" in found
    assert not any("said" in change or "'no'" in change for change in found)
    assert all(compile(mutant.source, "m", "exec") for mutant in mutate.mutants_of(source))
