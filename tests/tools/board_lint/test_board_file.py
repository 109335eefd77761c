"""Files of other people: boards in any wrapping, and what is none, each said in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.board_lint import board_file
from tools.board_lint.__main__ import main

from pyrometer_dashboards.main import rendered

BOARD = {"uid": "theirs", "title": "T", "schemaVersion": 39, "panels": []}


def said(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, list[str]]:
    """Return the exit status of checking these files, and the lines about them on stderr."""
    status = main([*map(str, paths)])
    return status, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "is not JSON: "),
        (b"[]", "is not a dashboard: it contains a list"),
        (b"3", "is not a dashboard: it contains a int"),
        (b"\xff\xfe{\x00}\x00", "is not valid UTF-8 (byte 0)"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"dashboard": 3, "meta": {}}', "the wrapped value is a int"),
        (b'{"apiVersion": "dashboard.grafana.app/v2beta1", "spec": {"elements": {}, "layout": {}}}', "schema v2"),
        (b'{"elements": {}, "layout": {}, "title": "T"}', "schema v2"),
    ],
)
def test_what_is_no_board_ends_in_one_line(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    status, lines = said(capsys, path)
    assert status == 2
    assert len(lines) == 1
    assert str(path) in lines[0]
    assert words in lines[0]


def test_a_folder_and_a_file_that_is_not_there_end_in_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = said(capsys, tmp_path, tmp_path / "nothing.json")
    assert status == 2
    assert [line.partition(": ")[2] for line in lines] == [
        f"{tmp_path} is a folder: name its files, such as {tmp_path}/*.json",
        f"can't read {tmp_path / 'nothing.json'}: No such file or directory",
    ]


def test_a_file_that_is_no_board_keeps_no_other_from_being_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_text("{")
    good.write_text(json.dumps(BOARD))
    assert main([str(bad), str(good)]) == 2
    told = capsys.readouterr()
    assert f"{good}: schemaVersion 39" in told.out
    assert f"{bad} is not JSON" in told.err
    assert "1 board, " in told.err


@pytest.mark.parametrize(
    "wrapped",
    [
        BOARD,
        {"dashboard": BOARD, "meta": {"slug": "t"}},
        {"apiVersion": "dashboard.grafana.app/v1beta1", "kind": "Dashboard", "metadata": {"name": "t"}, "spec": BOARD},
    ],
    ids=["bare", "from the programming interface", "a Kubernetes object"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_board_is_found_in_any_wrapping(wrapped: dict[str, Any], encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    path.write_text(json.dumps(wrapped), encoding=encoding)
    assert board_file.read(path) == BOARD


def test_a_board_like_12239_has_a_line_for_what_it_would_show_wrongly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    temperature = {
        "id": 12,
        "type": "timeseries",
        "title": "GPU Temperature",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "fieldConfig": {"defaults": {"unit": "celsius", "color": {"mode": "palette-classic"}}, "overrides": []},
        "gridPos": {"x": 0, "y": 0, "w": 18, "h": 8},
        "targets": [{"expr": 'DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}', "intervalFactor": 1}],
    }
    average = {
        "id": 14,
        "type": "gauge",
        "title": "GPU Avg. Temp",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "fieldConfig": {"defaults": {"unit": "celsius"}, "overrides": []},
        "gridPos": {"x": 18, "y": 0, "w": 6, "h": 8},
        "targets": [{"expr": 'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})', "range": True}],
    }
    board = {
        "__inputs": [{"name": "DS_PROMETHEUS", "type": "datasource"}],
        "uid": "Oxed_c6Wz",
        "title": "NVIDIA DCGM Exporter Dashboard",
        "schemaVersion": 22,
        "panels": [temperature, average],
        "templating": {"list": [{"name": "instance", "type": "query", "query": "label_values(instance)"}]},
    }
    path = tmp_path / "12239.json"
    path.write_text(json.dumps(board))
    assert main([str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    for words in (
        "12239.json: it carries id, version or __inputs",
        "12239.json: schemaVersion 22",
        "GPU Temperature: DCGM_FI_DEV_GPU_TEMP of the whole cluster",
        "GPU Temperature: intervalFactor still acts",
        "GPU Temperature: no variable $gpu",
        "GPU Avg. Temp: idle GPUs are in the middle",
        "GPU Avg. Temp: what has no data is painted",
    ):
        assert any(words in line for line in lines), words
    assert len(lines) == len(set(lines))


def test_checking_ours_says_so_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert f"{len(rendered())} boards, 0 findings" in capsys.readouterr().err


def test_checking_somebody_elses_board_has_a_line_per_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    panel = {"type": "stat", "title": "Hot", "targets": [{"expr": "rate(DCGM_FI_DEV_GPU_TEMP[5m])", "instant": True}]}
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"uid": "theirs", "title": "T", "schemaVersion": 39, "panels": [panel]}))
    assert main([str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("schemaVersion 39" in line for line in lines)
    assert any("Hot: rate() over [5m]" in line for line in lines)
    assert all(line.startswith(str(path)) for line in lines)
