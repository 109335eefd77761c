"""The page of attacks, mutants and fuzzing is what its results make of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
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


def test_every_module_that_must_not_be_wrong_is_listed_and_exists() -> None:
    assert mutate_subjects.unlisted() == [], "tools/mutate_subjects.py: a subject, or BESIDE with a reason"
    for subject in mutate_subjects.SUBJECTS.values():
        assert all((ROOT / test).is_file() for test in subject.tests), subject.module
    assert set(json.loads(mutate.EQUIVALENT.read_text(encoding="utf-8"))) == set(mutate_subjects.SUBJECTS)


def test_a_module_that_is_divided_or_renamed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = {name: why for name, why in mutate_subjects.BESIDE.items() if not name.endswith((".engine", ".widening"))}
    monkeypatch.setattr(mutate_subjects, "BESIDE", beside | {"pyrometer_alerting.incidents.storage.outbox_old": "gone"})
    assert mutate_subjects.unlisted() == [
        "pyrometer_alerting.incidents.storage.engine",  # a new module beside the subjects
        "pyrometer_exporters.node.nic.widening",  # a subject imports it
        "pyrometer_alerting.incidents.storage.outbox_old",  # no module has this name
    ]


def test_the_version_is_that_of_the_code_alone(tmp_path: Path) -> None:
    def version(text: str) -> str:
        (tmp_path / "module.py").write_text(text)
        return mutate_subjects.version_of(tmp_path / "module.py")

    plain = version("def f():\n    return 1\n")
    assert version("'''Text\nof two lines.'''\n\ndef f():\n    '''More.'''\n    # why\n    return 1\n") == plain
    assert version("def f():\n    return 2\n") != plain
    assert len(plain) == 12


def test_a_row_of_other_code_is_stale_and_a_missing_one_is_not_measured(tmp_path: Path) -> None:
    now = mutate_subjects.current_version("outbox")
    row = {
        "module": "pyrometer_alerting.incidents.storage.outbox",
        "mutants": 4,
        "killed": 3,
        "equivalent": ["1: a"],
        "survivors": [],
    }
    rows = [{**row, "subject": "outbox", "version": now}, {**row, "subject": "store", "version": "0123456789ab"}]
    (tmp_path / "mutation.json").write_text(json.dumps(rows))
    lines = list(reliability.page(tmp_path))
    assert f"| outbox (`pyrometer_alerting.incidents.storage.outbox`) | 4 | 3 (100.0%) | 1 | 0 | `{now}` |" in lines
    assert any(line.startswith("| store (") and "**stale**: `0123456789ab`, now `" in line for line in lines)
    assert any(line.startswith("| leader (") and "**not measured**" in line for line in lines)
