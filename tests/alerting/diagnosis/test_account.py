from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from alerting_fakes import START, training_incident

from pyrometer_alerting.app.commands import explain
from pyrometer_alerting.channel.answers import why
from pyrometer_alerting.diagnosis.account import lines
from pyrometer_alerting.diagnosis.conclusion import case_of
from pyrometer_alerting.diagnosis.ranking import candidates
from pyrometer_alerting.diagnosis.weights import FEATURES, Weights
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model.fact import Fact, Roster
from pyrometer_alerting.model.incident import Cause, Diagnosis
from pyrometer_kit.errors import UsageError

PART = {"node": "gpu-042", "gpu": "3"}
HEAT = Fact(
    "hw_thermal",
    PART,
    began=START - 2,
    precision=3.0,
    value=40.0,
    peers=0.0,
    source='events{gpu="3"}',
    seen_at=START + 40,
)
DIAGNOSIS = Diagnosis(
    START + 40,
    (Cause("gpu-042 GPU 3", "hardware thermal throttling", score=97.0, labels=PART, confidence="high"),),
    facts=(HEAT,),
    drops=(START,),
    roster=Roster("0", {"gpu-042": ("3",)}),
)


def test_every_fact_weight_and_query_is_accounted_for() -> None:
    account = "\n".join(lines(training_incident(diagnosis=DIAGNOSIS)))
    assert "gpu-042 GPU 3: hardware thermal throttling (high, 97 %)" in account
    assert f"  {FEATURES['began_with_drop']:+.2f}  began_with_drop" in account
    assert "prior of hw_thermal" in account
    assert '  query: events{gpu="3"}' in account
    assert "or up to 3 s earlier, lasts" in account


def test_no_fact_and_no_candidate_is_left_out() -> None:
    facts = tuple(
        replace(HEAT, labels={"node": "gpu-042", "gpu": str(gpu)}, source=f"query {gpu}!", strength=gpu / 40)
        for gpu in range(40)
    )
    account = list(lines(training_incident(diagnosis=replace(DIAGNOSIS, facts=facts, roster=None))))
    assert [f"  query: query {gpu}!" in account for gpu in range(40)] == [True] * 40
    case = case_of(training_incident(), replace(DIAGNOSIS, facts=facts, roster=None), Weights())
    assert sum(line.startswith("candidate ") for line in account) == len(candidates(facts, case))


def test_the_weights_of_a_candidate_add_up() -> None:
    account = list(lines(training_incident(diagnosis=DIAGNOSIS)))
    weights = [float(line.split()[0]) for line in account if re.match(r" +[+-]\d", line)]
    assert sum(weights[:-1]) == pytest.approx(weights[-1], abs=0.05)


def test_a_document_of_before_facts_has_an_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    with store.transaction() as tx:
        tx.save_incident(training_incident(diagnosis=Diagnosis(START, DIAGNOSIS.causes)), START)
    store.close()
    for name in ("llama-70b", "incident-1", ""):
        assert explain([f"--storage.path={tmp_path}", name]) == 0
        assert "no facts are stored with it" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"no incident 'other' .* known runs: incident \(llama-70b\)"):
        explain([f"--storage.path={tmp_path}", "other"])


def test_why_gives_the_same_account_in_the_channel() -> None:
    told = why("llama-70b", [training_incident(diagnosis=DIAGNOSIS)], START + 60)
    assert "*Facts and weights* (`pyrometer-alerting explain incident` has all)" in told
    assert f"{FEATURES['began_with_drop']:+.2f} began_with_drop" in told
    assert len(told) <= 2900
    assert "Facts" not in why("llama-70b", [training_incident()], START + 60)
