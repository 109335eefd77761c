"""Targets from host lists and sinfo's output: what is understood, what is refused, what Prometheus gets."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.commands.targets.hostlist import expand
from pyrometer_exporters.commands.targets.main import main
from pyrometer_exporters.commands.targets.nodes import parse
from pyrometer_kit.errors import UsageError

# As `sinfo` of Slurm 23.11 prints it.
SINFO = """\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up   infinite      1 drain* gpu-004
gpu*         up   infinite      3    mix gpu-[001-003]
debug        up    1:00:00      2   idle gpu-[001-002]
empty        up   infinite      0    n/a n/a
"""
SINFO_NODES = """\
NODELIST   NODES PARTITION       STATE
gpu-001        1      gpu*        idle
gpu-001        1     debug        idle
gpu-002        1      gpu*       down*
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[1-3]", ["gpu-1", "gpu-2", "gpu-3"]),
        ("gpu-[008-010]", ["gpu-008", "gpu-009", "gpu-010"]),
        ("gpu-[98-101]", ["gpu-98", "gpu-99", "gpu-100", "gpu-101"]),
        ("gpu-[1,3-4],login", ["gpu-1", "gpu-3", "gpu-4", "login"]),
        ("r[1-2]n[1-2].dc", ["r1n1.dc", "r1n2.dc", "r2n1.dc", "r2n2.dc"]),
    ],
)
def test_a_host_list_stands_for_its_names(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["gpu-[1-3", "gpu-1]", "gpu-[[1]]", "gpu-[3-1]", "gpu-[]", "gpu-[a-b]", "a,,b", "n[0-999999999]", "ü", "-x",
             "a[1-999][1-999]", 'x"y', "a{b}"],
)  # fmt: skip
def test_what_is_no_host_list_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as error:
        expand(text)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="ab-.,[]0129 ", max_size=30))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand(text)
    except UsageError:
        return
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)


@given(st.integers(0, 9999), st.integers(0, 300), st.integers(1, 6))
def test_a_range_has_all_its_numbers(first: int, count: int, width: int) -> None:
    names = expand(f"n[{first:0{width}d}-{first + count}]")
    assert [int(name[1:]) for name in names] == list(range(first, first + count + 1))
    assert names[0] == f"n{first:0{width}d}"


def test_sinfo_as_it_comes() -> None:
    assert list(parse(SINFO.splitlines())) == ["gpu-004", "gpu-001", "gpu-002", "gpu-003"]
    assert list(parse(SINFO_NODES.splitlines())) == ["gpu-001", "gpu-002"]


def test_sinfo_with_bars_between_its_columns() -> None:
    """As recorded in facebookresearch/gcm, gcm/tests/data: blanks around, a column that is empty, one with a "#"."""
    text = (
        "AVAIL|CPUS|STATE|REASON |RESERVATION|NODELIST |CPU_LOAD |PARTITION |PARTITION\n"
        "up|80|drain*|replace #3 \N{REPLACEMENT CHARACTER} |NO|node0201 |N/A |partition |partition\n"
        "up|80|alloc|none ||node1537 |12.28 |partition |partition\n"
    )
    assert parse(text.splitlines()) == {"node0201": "", "node1537": ""}
    padded = [f"node1074{' ' * 248}|gpu:ampere:8{' ' * 244}|0/256/0/256", "node1221|gpu:ampere:8|256/0/0/256"]
    assert parse(padded) == {"node1074": "", "node1221": ""}


def test_racks_come_from_the_second_word_a_feature_or_the_name() -> None:
    assert parse(["gpu-[1-2] r07", "gpu-3", "# nobody"]) == {"gpu-1": "r07", "gpu-2": "r07", "gpu-3": ""}
    features = ["gpu-1 h100,rack=r1,ib", "gpu-1 h100,rack=r1,ib", "gpu-2 h100"]
    assert parse(features, re.compile(r"rack=(\w+)")) == {"gpu-1": "r1", "gpu-2": ""}
    assert parse(["r01-n[1-2]"], re.compile(r"^(r\d+)-")) == {"r01-n1": "r01", "r01-n2": "r01"}


def test_a_node_in_two_racks_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match="line 2: gpu-1 is in rack r1 and in rack r2"):
        parse(["gpu-1 r1", "gpu-1 r2"])


def load(path: Path) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *flags: str) -> int:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode("latin-1"))))
    return main(["--cluster=h100", f"--output={tmp_path}", *flags])


def test_prometheus_gets_nodes_hosts_and_the_cluster_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, "gpu-001 r01\nlogin1", "--exclude=login.*", "--suffix=.dc") == 0
    labels = {"cluster": "h100", "node": "gpu-001", "rack": "r01"}
    assert load(tmp_path / "nodes.yaml") == [{"targets": ["gpu-001.dc:9935"], "labels": labels}]
    assert load(tmp_path / "hosts.yaml") == [{"targets": ["gpu-001.dc:9100"], "labels": labels}]
    assert load(tmp_path / "cluster.yaml") == [{"targets": ["cluster:9936"], "labels": {"cluster": "h100"}}]
    assert (tmp_path / "nodes.yaml").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.yaml", "hosts.yaml", "nodes.yaml"]


def test_what_is_not_there_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, "gpu-1", "--host-port=0", "--cluster-exporter=") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["nodes.yaml"]


def test_an_empty_list_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scheduler that is down must not take all targets away."""
    run(tmp_path, monkeypatch, "gpu-[1-4]")
    before = (tmp_path / "nodes.yaml").read_text()
    assert run(tmp_path, monkeypatch, "") == 2
    assert capsys.readouterr().err == "pyrometer-targets: no node in the list: nothing was written\n"
    assert (tmp_path / "nodes.yaml").read_text() == before


def test_losing_most_nodes_at_once_needs_to_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, monkeypatch, "gpu-[1-10]")
    assert run(tmp_path, monkeypatch, "gpu-[1-4]") == 2
    assert "6 of 10 nodes" in capsys.readouterr().err
    assert run(tmp_path, monkeypatch, "gpu-[1-5]") == 0
    assert run(tmp_path, monkeypatch, "gpu-[1-2]", "--force") == 0
    assert len(load(tmp_path / "nodes.yaml")) == 2


@pytest.mark.parametrize(
    "flags", [["--rack=("], ["--rack=r.."], ["/does/not/exist"], ["--output=/proc/nothing"], ["--port=x"]]
)
def test_wrong_flags_end_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"gpu-1")))
    try:
        status: Any = main(["--cluster=c", f"--output={tmp_path}", *flags])
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    assert capsys.readouterr().err.count("\n") == 1
