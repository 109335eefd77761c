"""Evidence is one file: its query is asked, its weight counts, its sentence is in the message, and no list names it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from alerting_fakes import START, FakePrometheus, training_incident

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.evidence import build_evidence
from pyrometer_alerting.diagnosis.catalog import Catalog, load
from pyrometer_alerting.diagnosis.investigation import investigate
from pyrometer_alerting.diagnosis.look import Questions
from pyrometer_alerting.model.fact import Roster
from pyrometer_kit.prometheus import Series

PLANTED = """
from pyrometer_alerting.diagnosis.look import Kind, Look, Query, Subject
from pyrometer_alerting.model.fact import Fact

def leaks(questions):
    found = questions.values(f"max by (node) (liquid_leak{questions.of_nodes()}) == 1", ("node",))
    facts = (Fact("leak", {"node": node}, began=questions.began, source="liquid_leak") for (node,) in found)
    return Look(tuple(facts), frozenset({"leak"}))

def said(fact):
    return f"coolant under {fact.labels['node']}"

SUBJECT = Subject(99, {"leak": Kind("host", "coolant leak", 1.5, says=said)}, (Query(leaks, "leaks", first_look=8),))
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The product's evidence and one more file."""
    package = tmp_path / "planted_evidence"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "leaks.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    own, more = load(), load(importlib.import_module("planted_evidence"))
    return Catalog({**own.kinds, **more.kinds}, {**own.queries, **more.queries})


@pytest.fixture
def prometheus() -> FakePrometheus:
    """A run of two nodes, one of which has a leak."""
    fake = FakePrometheus()
    ranks = [
        Series({"node": node, "gpu": "0", "rank": str(rank), "attempt": "0"}, ((START, 1.0),))
        for rank, node in enumerate(("gpu-001", "gpu-002"))
    ]
    fake.on("rank_info", ranks)
    fake.on("liquid_leak", [Series({"node": "gpu-002"}, ((START, 1.0),))])
    return fake


def test_a_new_file_of_evidence_is_in_the_message(planted: Catalog, prometheus: FakePrometheus) -> None:
    incident = training_incident()
    diagnosis = investigate(prometheus, incident, [], START + 60, planted)
    message = build_evidence(training_incident(diagnosis=diagnosis), Style()).text
    assert "gpu-002: coolant leak" in message
    assert "coolant under gpu-002" in message


def test_without_the_file_nothing_asks_for_it(prometheus: FakePrometheus) -> None:
    investigate(prometheus, training_incident(), [], START + 60)
    assert not any("liquid_leak" in query for query in prometheus.queries)


@pytest.mark.parametrize("name", load().queries)
def test_a_query_answers_with_kinds_that_have_a_weight(name: str) -> None:
    roster = Roster("0", {"gpu-001": ("0",)})
    look = load().queries[name].find(Questions(FakePrometheus(), training_incident(), START, START - 60, roster))
    assert look.kinds <= load().kinds.keys()
