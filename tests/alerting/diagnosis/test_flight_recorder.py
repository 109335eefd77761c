"""Dumps as exporters serve them are joined over ranks: the same answer as ``pyrometer-hang`` has from the files."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from alerting_fakes import START, FakePrometheus

from pyrometer import _describe_dumps
from pyrometer_alerting.diagnosis.flight_recorder import dumps
from pyrometer_alerting.diagnosis.look import Questions, Rank
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.incident import Incident
from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.train.flight_recorder import COLLECTIVE, FlightRecorder, Writer
from pyrometer_kit.prometheus import Series

PP = ("3", "pp", "4", "0-3")


KEYS = (
    "attempt",
    "rank",
    "group",
    "group_name",
    "group_ranks",
    "group_members",
    "collective",
    "state",
    "place",
    "shape",
)


def series(rank: int, group: tuple[str, ...], name: str, state: str, number: int, *, shape: str = "") -> Series:
    labels = ("0", str(rank), *group, name, state, "train.py:42 in step", shape)
    return Series(dict(zip(KEYS, labels, strict=True)), ((START, float(number)),))


def blamed(found: Sequence[Series], ranks: int = 4) -> tuple[Fact, ...]:
    prometheus = FakePrometheus()
    prometheus.on("flight_recorder_collective", list(found))
    incident = Incident("i", "k", "c1", "NcclHang", "llama", "critical", "train", START, START)
    places = {str(rank): Rank("gpu-001", str(rank), "0") for rank in range(ranks)}
    return dumps(Questions(prometheus, incident, START, ranks=places)).facts


def wait(rank: int, number: int, launched: int = 0, shape: str = "") -> Iterator[Series]:
    yield series(rank, ("0", "default_pg", "4", "0-3"), "nccl:all_reduce", "waiting", number, shape=shape)
    if launched:
        yield series(rank, ("0", "default_pg", "4", "0-3"), "", "launched", launched)


NONE = ("", "", "", "")
WHERE = "at train.py:42 in step"
WORLD = f"3 of 4 ranks wait in nccl:all_reduce 6 of the default_pg group {WHERE}; "
PAIRS = [("1", "tensor", "2", "0-1"), ("1", "tensor", "2", "2-3")]
DONE = [series(rank, ("0", "default_pg", "4", "0-3"), "nccl:all_reduce", "finished", 5) for rank in range(4)]
HUNG = {
    "launches run ahead": (
        [*wait(0, 6), DONE[1], *wait(2, 6, 9), *wait(3, 6, 7)],
        f"{WORLD}rank 1 did not reach it; its last one there was nccl:all_reduce 5 {WHERE}",
    ),
    "a pipeline": (
        [series(0, PP, "nccl:recv 0<-1", "waiting", 88), series(1, PP, "nccl:recv 1<-0", "finished", 87),
         series(2, PP, "nccl:recv 2<-1", "waiting", 88), series(3, PP, "nccl:recv 3<-2", "waiting", 88)],
        f"rank 0 receives from rank 1 in the pp group {WHERE}; rank 1 did not come to it",
    ),
    "one name, disjoint groups": (
        [*wait(0, 6), *wait(1, 6), *DONE[2:],
         *(series(rank, PAIRS[0], "nccl:all_reduce", "finished", 202) for rank in (0, 1)),
         series(2, PAIRS[1], "nccl:all_reduce", "waiting", 205),
         series(3, PAIRS[1], "nccl:all_reduce", "finished", 204)],
        (f"1 of 2 ranks wait in nccl:all_reduce 205 of the tensor group {WHERE}; rank 3 did not reach it; "
         f"its last one there was nccl:all_reduce 204 {WHERE}"),
    ),
    "another size": (
        [one for rank in range(4) for one in wait(rank, 6, shape=f"{8 if rank == 2 else 16} 16 Float Float")],
        f"{WORLD}rank 2 is in nccl:all_reduce of 8 to 16 elements (Float Float) instead {WHERE}",
    ),
    "a dump without any": (
        [*wait(0, 6), *wait(1, 6), *wait(2, 6), series(3, NONE, "", "finished", 0)], f"{WORLD}rank 3 did not reach it"
    ),
    "a dump that lacks some": ([*wait(0, 6), *wait(1, 6), *wait(2, 6), series(3, NONE, "", "partial", 0)], ""),
    "half are through": ([*wait(0, 5), *wait(1, 5), *DONE[2:]], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", HUNG)
def test_it_is_told_who_holds_up_the_others(name: str) -> None:
    found, detail = HUNG[name]
    # The one that waits is counted among those that wait, also where it made another operation.
    said = [fact.detail.replace("4 of 4 ranks wait", "3 of 4 ranks wait") for fact in blamed(found)]
    assert said == ([detail] if detail else [])


def test_a_hang_of_4096_ranks_is_joined_in_time() -> None:
    """Rank 77 does not come to its tensor group, whose others do not come to the data-parallel groups and so on."""
    world, found = ("0", "default_pg", "4096", "0-4095"), []
    for rank in range(4096):
        tensor, data = rank // 8 * 8, rank % 8
        late, beside = rank == 77, tensor == 72
        group = ("1", "tp", "8", f"{tensor}-{tensor + 7}")
        found.append(series(rank, group, "nccl:all_reduce", "finished" if late or not beside else "waiting", 9 - late))
        group = ("2", "dp", "512", f"{data}-{data + 4088}:8")
        found.append(series(rank, group, "nccl:all_reduce", "finished" if beside else "waiting", 8 if beside else 9))
        found.append(series(rank, world, "nccl:barrier", "finished", 2))
    began = time.process_time()
    facts = blamed(found, 4096)
    assert [fact.labels["gpu"] for fact in facts] == ["77"]
    assert facts[0].detail.startswith("7 of 8 ranks wait in nccl:all_reduce 9 of the tp group")
    assert time.process_time() - began < 10


EVIDENCE = Path(os.environ.get("EVIDENCE", "none")) / "hangs"


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="EVIDENCE names no folder with hangs recorded by others")
def test_hangs_recorded_by_others_are_told_by_the_service_as_by_the_command() -> None:
    def described(paths: Sequence[str]) -> Iterable[str]:
        return [json.dumps({"file": path, **_describe_dumps._described(path)}) for path in paths]

    for folder in sorted(EVIDENCE.iterdir()):
        recorder = FlightRecorder([folder], time.time, described)
        owner = next(folder.iterdir()).stat().st_uid
        recorder.poll([Writer(("llama", "77", "0", str(rank)), owner, 0.0) for rank in range(16)])
        names = COLLECTIVE.labels
        found = [
            Series(dict(zip(names, sample.labels, strict=True)), ((START, sample.value),))
            for sample in recorder.samples()
            if isinstance(sample, Sample) and sample.family is COLLECTIVE
        ]
        missing = re.findall(r"\| *([\d,]+)\s*$", (folder / "reference.txt").read_text(), re.MULTILINE)
        named = [fact.labels["gpu"] for fact in blamed(found, 16)]
        assert named == sorted({rank for ranks in missing for rank in ranks.split(",")}, key=int), folder.name
