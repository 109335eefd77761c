"""The files of NCCL's Inspector become a bounded number of series in our units, however torn or large they are."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.nccl.collector import COLLECTOR
from pyrometer_exporters.node.nccl.inspector import MOST_FILES, MOST_KINDS, Inspector
from pyrometer_exporters.node.nccl.inspector_files import LogReader, Writer, read_prometheus

NOW = 1_790_000_000.0
BANDWIDTH, SECONDS = "pyrometer_nccl_bus_bandwidth_bytes_per_second", "pyrometer_nccl_collective_seconds"
RANK_SECONDS = "pyrometer_nccl_rank_collective_seconds"
RING = ("32", "4", "AllReduce", "16-256MiB")


class Nobody:
    """A node without rings or a scheduler."""

    def __init__(self, jobs: dict[int, set[str]] | None = None) -> None:
        self._jobs = jobs

    def run_of(self, pid: int, uid: int | None = None) -> tuple[str, str, str]:
        return "", "", ""

    def job_id(self, pids: Iterable[int], uid: int | None = None) -> str:
        return "77" if list(pids) == [4711] else ""

    def jobs_by_user(self) -> dict[int, set[str]] | None:
        return self._jobs


def lines(gpu: int, gigabytes: float, microseconds: float, size: str = "134-135MB", ranks: int = 32) -> str:
    labels = (
        f'version="v5.1",slurm_job_id="4711",node="gpu-001",gpu="GPU{gpu}",comm_name="DP Group {gpu}",n_nodes="4",'
        f'nranks="{ranks}",collective="AllReduce",message_size="{size}",algo_proto="RING_SIMPLE"'
    )
    return (
        f"nccl_bus_bandwidth_gbs{{{labels}}} {gigabytes}\n"
        f"nccl_collective_exec_time_microseconds{{{labels}}} {microseconds}\n"
    )


def write(folder: Path, gpu: int, text: str, at: float = NOW) -> Path:
    path = folder / f"nccl_inspector_metrics_GPU-{gpu:08x}.prom"
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def record(size: int = 1 << 28, microseconds: int = 1407, **header: Any) -> str:
    whole = {
        "header": {"id": "0x7f8c496ae9f661", "rank": 21, "n_ranks": 32, "nnodes": 4, **header},
        "metadata": {"inspector_output_format_version": "v4.0", "pid": 4711},
        "coll_perf": {
            "coll": "AllReduce", "coll_sn": 7, "coll_msg_size_bytes": size, "coll_exec_time_us": microseconds,
            "coll_algobw_gbs": 190.8, "coll_busbw_gbs": 350.2,
        },
    }  # fmt: skip
    return json.dumps(whole) + "\n"


def values(found: list[Sample | Down], name: str) -> dict[tuple[str, ...], float]:
    return {one.labels: one.value for one in found if isinstance(one, Sample) and one.family.name == name}


def states(found: list[Sample | Down]) -> dict[str, float]:
    return {labels[1]: value for labels, value in values(found, "pyrometer_nccl_inspector_files").items() if value}


def test_worst_median_and_best_are_in_bytes_and_seconds(tmp_path: Path) -> None:
    for gpu in range(8):
        write(tmp_path, gpu, lines(gpu, 340 + gpu, 700 + gpu))
    found = Inspector([tmp_path], Nobody()).read(NOW)
    job = ("", "4711", *RING)
    assert values(found, BANDWIDTH) == {
        (*job, "worst"): pytest.approx(340e9), (*job, "median"): pytest.approx(343.5e9),
        (*job, "best"): pytest.approx(347e9),
    }  # fmt: skip
    assert values(found, SECONDS)[(*job, "worst")] == pytest.approx(707e-6)
    assert values(found, SECONDS)[(*job, "best")] == pytest.approx(700e-6)
    assert values(found, RANK_SECONDS) == {}, "alike ranks have no series of their own"
    assert values(found, "pyrometer_nccl_group_info") == {("", "4711", "32", "DP Group"): 1}
    assert states(found) == {"read": 8}


def test_a_rank_that_departs_has_series_of_its_own(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    for gpu in range(8):
        write(tmp_path, gpu, lines(gpu, 90, 9000) if gpu != 5 else lines(gpu, 340, 700))
    found = Inspector([tmp_path], Nobody()).read(NOW)
    assert values(found, RANK_SECONDS) == {("", "4711", *RING, "5", ""): pytest.approx(700e-6)}
    text = Renderer().text(item for item in found if isinstance(item, Sample)).decode()
    golden(text.replace(str(tmp_path), "FOLDER"), "golden/inspector.txt")


def test_a_growing_log_is_read_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "gpu-001-pid4711.log"
    path.write_text(record(microseconds=1000))
    os.utime(path, (NOW, NOW))
    inspector = Inspector([tmp_path], Nobody())
    assert set(values(inspector.read(NOW), SECONDS).values()) == {0.001}
    with path.open("a") as file:
        file.write(record(microseconds=3000) + record(microseconds=5000) + record()[:90])
    os.utime(path, (NOW + 30, NOW + 30))
    found = inspector.read(NOW + 30)
    assert set(values(found, SECONDS).values()) == {0.004}, "the mean of the two new ones; half a line is none"
    assert {labels[1] for labels in values(found, SECONDS)} == {"77"}
    with path.open("a") as file:
        file.write(record(microseconds=7000)[90:])
    os.utime(path, (NOW + 60, NOW + 60))
    assert len(values(inspector.read(NOW + 60), SECONDS)) == 3


def test_since_version_4_3_a_header_is_of_the_lines_after_it(tmp_path: Path) -> None:
    whole = json.loads(record())
    marker = {"header": whole["header"], "metadata": whole["metadata"], "dump_stats": {"coll_records": 1}}
    send = {"p2p_perf": {"p2p": "Send", "p2p_msg_size_bytes": 524288, "p2p_exec_time_us": 50, "p2p_busbw_gbs": 30.0}}
    path = tmp_path / "gpu-001-pid1.log"
    own = json.dumps({"coll_perf": whole["coll_perf"]})
    path.write_text(f"{own}\n{json.dumps(marker)}\n{own}\n{json.dumps(send)}\n")
    os.utime(path, (NOW, NOW))
    found = values(Inspector([tmp_path], Nobody()).read(NOW), BANDWIDTH)
    assert {labels[2:6] for labels in found} == {
        ("32", "4", "AllReduce", "256MiB-4GiB"), ("32", "4", "Send", "64KiB-1MiB"),
    }  # fmt: skip


@pytest.mark.parametrize("torn", ["", "nccl_bus_bandwidth_gbs{version=", lines(0, 1, 1)[:-40]])
def test_a_torn_file_keeps_what_was_read_before(tmp_path: Path, torn: str) -> None:
    write(tmp_path, 0, lines(0, 340, 700) + lines(0, 20, 90, "1-2KB"))
    inspector = Inspector([tmp_path], Nobody())
    before = values(inspector.read(NOW), BANDWIDTH)
    assert len(before) == 6
    write(tmp_path, 0, torn, NOW + 10)
    assert values(inspector.read(NOW + 10), BANDWIDTH) == before


def test_stale_files_are_dropped_and_counted(tmp_path: Path) -> None:
    write(tmp_path, 0, lines(0, 340, 700))
    write(tmp_path, 1, lines(1, 340, 700), NOW + 160)
    write(tmp_path, 2, "", NOW + 160)
    found = Inspector([tmp_path], Nobody()).read(NOW + 160)
    assert states(found) == {"read": 1, "stale": 1, "torn": 1}


def test_series_are_bounded_whatever_the_files(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 20):
        many = "".join(lines(number, 1 + number, 700, ranks=2 + ranks) for ranks in range(100))
        write(tmp_path, number, many)
    found = Inspector([tmp_path], Nobody()).read(NOW)
    assert states(found) == {"read": MOST_FILES, "left_out": 20}
    assert len(values(found, BANDWIDTH)) == 3 * MOST_KINDS
    assert len(values(found, RANK_SECONDS)) <= 16 * MOST_KINDS


def test_a_directory_that_is_missing_is_a_reason_beside_a_healthy_one(tmp_path: Path) -> None:
    write(tmp_path, 0, lines(0, 340, 700))
    found = Inspector([tmp_path / "none", tmp_path], Nobody()).read(NOW)
    (down,) = [one for one in found if isinstance(one, Down)]
    assert (down.part, down.reason) == (str(tmp_path / "none"), "enoent")
    assert values(found, BANDWIDTH)


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    target = write(tmp_path, 0, lines(0, 340, 700)).rename(tmp_path / "elsewhere")
    (tmp_path / "nccl_inspector_metrics_a.prom").symlink_to(target)
    os.mkfifo(tmp_path / "host-pid1.log")
    found = Inspector([tmp_path], Nobody()).read(NOW)
    assert values(found, BANDWIDTH) == {}
    assert not [one for one in found if isinstance(one, Down)]


def test_the_collector_serves_them_beside_ras(host: Any, tmp_path: Path) -> None:
    folder = tmp_path / "inspector"
    folder.mkdir()
    write(folder, 0, lines(0, 340, 700), host.clock.wall())
    host.report_rank(4711, 5, run="llama")
    parser = argparse.ArgumentParser()
    COLLECTOR.add_flags(parser)
    arguments = ["--collector.nccl.inspector-directory", str(folder), "--collector.nccl.address", "127.0.0.1:1"]
    collector = COLLECTOR.build(replace(host.context, flags=parser.parse_args(arguments)))
    collector.inspect()
    found = list(collector.collect(0))
    collector.close()
    assert {labels[:2] for labels in values(found, BANDWIDTH)} == {("llama", "4711")}


WHOLE = lines(0, 340, 700) + lines(1, 20, 90, "1-2KB")


@given(st.integers(0, len(WHOLE)), st.text(max_size=20), st.integers(0, 60))
def test_a_damaged_text_never_raises(at: int, insert: str, drop: int) -> None:
    timings, _ = read_prometheus(WHOLE[:at] + insert + WHOLE[at + drop :], Writer())
    assert all(seconds > 0 and bandwidth > 0 for _, seconds, bandwidth in timings.means())


@given(st.integers(0, 300), st.binary(max_size=20), st.integers(0, 60))
def test_a_damaged_log_never_raises(at: int, insert: bytes, drop: int) -> None:
    data = record().encode()
    LogReader(1).read(data[:at] + insert + data[at + drop :] + data)


@pytest.mark.parametrize(
    "hostile",
    ["[" * 100_000, '{"header": 1}', '{"coll_perf": {"coll": "A"}}', "1" * 5000, '{"header": {"rank": 1e999}}'],
)
def test_a_hostile_line_hides_no_other(hostile: str) -> None:
    timings = LogReader(1).read(f"{hostile}\n{record()}".encode())
    assert len(list(timings.means())) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="files of several users need root")
def test_nobodys_files_crowd_out_another_users_and_tomorrow_is_not_the_newest(tmp_path: Path) -> None:
    for gpu in range(2 * MOST_FILES):
        at = NOW + 86_400 if gpu % 2 else NOW + 30
        os.chown(write(tmp_path, gpu, lines(gpu, 1, 700_000), at), 65534, -1)
    for gpu in range(1000, 1008):
        write(tmp_path, gpu, lines(gpu - 1000, 350, 700), NOW - 60)
    found = Inspector([tmp_path], Nobody({0: {"4711"}, 65534: {"99"}})).read(NOW)
    assert {labels[1] for labels in values(found, BANDWIDTH)} == {"4711"}
    assert list(values(found, BANDWIDTH).values()) == pytest.approx([350e9] * 3)
    assert states(found) == {"read": 8, "left_out": 256}


@pytest.mark.skipif(os.geteuid() != 0, reason="files of several users need root")
@pytest.mark.parametrize(
    ("jobs", "is_refused"), [({0: {"4711"}}, True), ({65534: {"4711"}}, False), (None, False)], ids=str
)
def test_a_file_speaks_for_jobs_of_its_owner_only_where_that_can_be_seen(
    tmp_path: Path, jobs: dict[int, set[str]] | None, *, is_refused: bool
) -> None:
    os.chown(write(tmp_path, 0, lines(0, 1, 700_000)), 65534, -1)
    found = Inspector([tmp_path], Nobody(jobs)).read(NOW)
    assert states(found) == ({"left_out": 1} if is_refused else {"read": 1})
    assert bool(values(found, BANDWIDTH)) != is_refused


def test_a_time_of_tomorrow_is_no_fresh_file(tmp_path: Path) -> None:
    write(tmp_path, 0, lines(0, 350, 700), NOW + 86_400)
    assert states(Inspector([tmp_path], Nobody()).read(NOW)) == {"stale": 1}
