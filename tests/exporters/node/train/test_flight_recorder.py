"""Dumps of this node's ranks become series; a hostile one is one line, and is read by another process."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.framework.exposition import Renderer
from pyrometer_exporters.framework.metrics import Down, Sample
from pyrometer_exporters.node.train.collector import COLLECTOR, TrainCollector
from pyrometer_exporters.node.train.flight_recorder import MOST_DOWNS, FlightRecorder, Writer, describe

NOW = 1_790_000_000.0
UID = os.getuid()


def writer(rank: int, began: float = NOW - 600, run: str = "llama") -> Writer:
    return Writer((run, "77", "0", str(rank)), UID, began)


def dump(folder: Path, rank: int, at: float = NOW - 10, **change: Any) -> Path:
    entry = {
        "pg_id": 0, "process_group": ("0", "dp"), "collective_seq_id": 16, "p2p_seq_id": 0, "is_p2p": False,
        "profiling_name": "nccl:all_reduce", "state": "started", "retired": False,
        "frames": [{"name": "train", "filename": "/job/train.py", "line": 21}],
    }  # fmt: skip
    whole = {"version": "2.10", "entries": [entry | change], "pg_status": {}, "pg_config": {"0": {"ranks": "[0, 1]"}}}
    return put(folder, rank, pickle.dumps(whole), at)


def put(folder: Path, rank: int, data: bytes, at: float = NOW - 10) -> Path:
    path = folder / f"rank_{rank}"
    path.write_bytes(data)
    os.utime(path, (at, at))
    return path


def collectives(recorder: FlightRecorder) -> dict[tuple[str, ...], float]:
    return {
        one.labels: one.value
        for one in recorder.samples()
        if isinstance(one, Sample) and one.family.name == "pyrometer_train_flight_recorder_collective"
    }


def downs(recorder: FlightRecorder) -> list[Down]:
    return [one for one in recorder.samples() if isinstance(one, Down)]


def test_a_rank_has_its_latest_collective_of_each_group(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    dump(tmp_path, 3)
    recorder = FlightRecorder([tmp_path], lambda: NOW)
    recorder.poll([writer(3)])
    labels = ("llama", "77", "0", "3", "0", "dp", "2", "", "nccl:all_reduce", "waiting", "train.py:21 in train", "")
    assert collectives(recorder) == {labels: 16}
    samples = [item for item in recorder.samples() if isinstance(item, Sample)]
    golden(Renderer().text(samples).decode(), "golden/flight_recorder.txt")


def test_dumps_of_others_of_before_and_of_this_second_are_left_out(tmp_path: Path) -> None:
    dump(tmp_path, 3, at=NOW - 700)
    dump(tmp_path, 4, at=NOW - 1)
    dump(tmp_path, 5)
    recorder = FlightRecorder([tmp_path], lambda: NOW)
    recorder.poll([writer(3), writer(4), Writer(("llama", "77", "0", "5"), UID + 1, NOW - 600)])
    assert list(recorder.samples()) == []


def test_a_dump_is_read_once_until_it_changes(tmp_path: Path) -> None:
    read: list[str] = []

    def reading(paths: Sequence[str]) -> Iterable[str]:
        read.extend(paths)
        return describe(paths)

    dump(tmp_path, 3)
    recorder = FlightRecorder([tmp_path], lambda: NOW, reading)
    recorder.poll([writer(3)])
    recorder.poll([writer(3)])
    assert len(read) == 1
    dump(tmp_path, 3, at=NOW - 5, collective_seq_id=17)
    recorder.poll([writer(3)])
    assert list(collectives(recorder).values()) == [17]
    recorder.poll([])
    assert list(recorder.samples()) == [], "the rank is gone"


class Call:
    """A pickle that runs a command in whoever loads it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def test_a_hostile_pickle_runs_nothing_and_hides_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    put(folder, 2, pickle.dumps({"entries": [Call(tmp_path / "owned")]}))
    put(folder, 4, b"\x80\x02]r\xff\xff\xff\x7f.")  # a memo of gigabytes
    put(folder, 5, b"")
    dump(folder, 3)
    recorder = FlightRecorder([folder], lambda: NOW)
    recorder.poll([writer(rank) for rank in (2, 3, 4, 5)])
    assert not (tmp_path / "owned").exists()
    assert [labels[3] for labels in collectives(recorder)] == ["3"]
    assert {Path(down.part).name for down in downs(recorder)} == {"rank_2", "rank_4", "rank_5"}
    assert all(down.reason == "malformed" and "\n" not in down.detail for down in downs(recorder))


def test_a_reader_that_dies_or_lies_costs_its_files_alone(tmp_path: Path) -> None:
    for rank in range(12):
        dump(tmp_path, rank)
    lies = ["not JSON", "[]", '{"file": "/etc/passwd", "rank": 1}', '{"rank": 1}']
    recorder = FlightRecorder([tmp_path], lambda: NOW, lambda _: lies)
    recorder.poll([writer(rank) for rank in range(12)])
    assert collectives(recorder) == {}
    assert len(downs(recorder)) == MOST_DOWNS

    def late(_: Sequence[str]) -> Iterable[str]:
        raise TimeoutError("too long")

    recorder = FlightRecorder([tmp_path, tmp_path / "none"], lambda: NOW, late)
    recorder.poll([writer(1)])
    assert sorted(down.reason for down in downs(recorder)) == ["enoent", "malformed"]


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    target = dump(tmp_path, 1).rename(tmp_path / "elsewhere")
    (tmp_path / "rank_1").symlink_to(target)
    os.mkfifo(tmp_path / "rank_2")
    recorder = FlightRecorder([tmp_path], lambda: NOW)
    recorder.poll([writer(1), writer(2)])
    assert list(recorder.samples()) == []


def test_a_receive_has_its_peer_and_its_number(tmp_path: Path) -> None:
    dump(tmp_path, 1, is_p2p=True, profiling_name="nccl:recv 1<-0", p2p_seq_id=8)
    recorder = FlightRecorder([tmp_path], lambda: NOW)
    recorder.poll([writer(1)])
    place = "train.py:21 in train"
    assert collectives(recorder) == {
        ("llama", "77", "0", "1", "0", "dp", "2", "0-1", "nccl:recv 1<-0", "waiting", place, ""): 16 + 8
    }


def test_launches_beyond_the_one_that_a_rank_waits_in_and_a_dump_without_any_are_served(tmp_path: Path) -> None:
    path = dump(
        tmp_path, 1, input_sizes=[[4, 4]], output_sizes=[[4, 4]], input_dtypes=["Float"], output_dtypes=["Float"]
    )
    whole = pickle.loads(path.read_bytes())  # noqa: S301  our own
    whole["entries"].append(whole["entries"][0] | {"collective_seq_id": 19})
    put(tmp_path, 1, pickle.dumps(whole))
    dump(tmp_path, 0)
    put(tmp_path, 0, pickle.dumps(whole | {"entries": []}))
    recorder = FlightRecorder([tmp_path], lambda: NOW)
    recorder.poll([writer(0), writer(1)])
    group = ("0", "dp", "2", "0-1")
    assert collectives(recorder) == {
        (
            "llama",
            "77",
            "0",
            "1",
            *group,
            "nccl:all_reduce",
            "waiting",
            "train.py:21 in train",
            "16 16 Float Float",
        ): 16,
        ("llama", "77", "0", "1", *group, "", "launched", "", ""): 19,
        ("llama", "77", "0", "0", "", "", "", "", "", "finished", "", ""): 0,
    }


def test_the_collector_joins_them_to_rings(rings: Any, clock: Any, context: Any, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    rings("one", rank=3).step(1000, 1001)
    clock.advance(60)
    dump(folder, 3, at=clock.wall() - 10)
    parser = argparse.ArgumentParser()
    COLLECTOR.add_flags(parser)
    flags = parser.parse_args(["--collector.train.flight-recorder-directory", str(folder)])
    collector = TrainCollector(replace(context, flags=flags))
    list(collector.collect(time.monotonic() + 5))
    collector.read_dumps()
    found = [one for one in collector.collect(time.monotonic() + 5) if isinstance(one, Sample)]
    collector.close()
    (labels,) = [one.labels for one in found if one.family.name == "pyrometer_train_flight_recorder_collective"]
    assert labels[:4] == ("llama", "77", "0", "3")


@pytest.mark.parametrize("groups", [40])
def test_groups_in_which_a_rank_waits_come_first(tmp_path: Path, groups: int) -> None:
    entries = [
        {
            "pg_id": number, "process_group": (str(number), ""), "collective_seq_id": 1, "profiling_name": "all_reduce",
            "state": "started" if number == 7 else "completed", "frames": [],
        }
        for number in range(groups)
    ]  # fmt: skip
    path = put(tmp_path, 0, pickle.dumps({"entries": entries}))
    (line,) = describe([str(path)])
    latest = json.loads(line)["latest"]
    assert len(latest) == 16
    assert latest[0]["group"] == "7"
