"""The past that is made for what looks back."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qs

import pytest

from pyrometer_simulator.http_server import HttpServer, Request, Response, json_response

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
END = 1_795_300_000.0
DAY = 86_400


@pytest.fixture
def backfill(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("backfill")


def young_prometheus(request: Request) -> Response:
    """Answer like one that has the series of exporters, and has not recorded anything yet."""
    query = parse_qs(request.body.decode())["query"][0]
    labels = {"cluster": "atlas", "run": "llama3-70b", "state": "useful"}
    rows = [{"metric": labels, "value": [END, "290"]}] if "pyrometer_run_seconds_total offset 5m" in query else []
    return json_response({"data": {"result": rows}})


@pytest.fixture
def young() -> Iterator[str]:
    with HttpServer(young_prometheus) as server:
        yield server.url


def test_the_goodput_ledger_has_a_past_before_its_rule_was_evaluated(backfill: ModuleType, young: str) -> None:
    drawn = 'sum by (state) (sum_over_time(run:pyrometer_run_seconds:new5m{cluster=~"atlas"}[1d]))'
    lines = list(backfill._past(backfill.lookbacks(drawn, 30 * DAY), young, END, 0))
    series = 'run:pyrometer_run_seconds:new5m{cluster="atlas",run="llama3-70b",state="useful"}'
    assert {line.rpartition("} ")[0] + "}" for line in lines} == {series}
    times = [float(line.split()[-1]) for line in lines]
    assert times == [END - 31 * DAY + 300 * number for number in range(31 * 288)]
    assert {287 < float(line.split()[-2]) < 293 for line in lines} == {True}


def test_rare_events_are_not_made_from_what_happened_just_now(backfill: ModuleType, young: str) -> None:
    drawn = "sum_over_time(gpu:pyrometer_gpu_xid_errors:new5m[1d]) or sum_over_time(node:up:lost5m[1d])"
    assert list(backfill._past(backfill.lookbacks(drawn, 30 * DAY), young, END, 0)) == []
