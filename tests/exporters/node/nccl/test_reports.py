"""Reports of NCCL RAS are read as NCCL 2.24 to 2.30 write them; anything else is one reason, and no exception."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.nccl import json_answer, text_answer
from pyrometer_exporters.node.nccl.snapshot import Snapshot
from pyrometer_kit.collectives import NOT_READY
from pyrometer_simulator.nccl import report
from pyrometer_simulator.nccl.job import Job, layouts
from pyrometer_simulator.nccl.ras_server import RasJob

# As in NCCL's user guide (docs/userguide/source/troubleshooting/ras.rst, 2.29).
DOCUMENTED = b"""{
  "nccl_version": "2.29.1",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2025-12-19 13:06:53",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0xae94423cfbb2ef4a",
      "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
      "size": 2,
      "ranks_count": 1,
      "missing_ranks_count": 1,
      "ranks": [
        {
          "rank": 0,
          "host": "172.16.64.245",
          "pid": 1524344,
          "cuda_dev": 0,
          "nvml_dev": 0,
          "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },
          "collective_counts": {
            "Broadcast": 0,
            "Reduce": 0,
            "AllGather": 3,
            "ReduceScatter": 0,
            "AllReduce": 7
          }
        }
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "172.16.64.245",
          "pid": 1524345,
          "cuda_dev": 1,
          "nvml_dev": 1,
          "status": {
            "unresponsive": true,
            "considered_dead": false
          }
        }
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 0.000,
    "timeouts_count": 0
  }
}
"""
# The same guide's example of a text, with the counts by kind that 2.26 and newer print.
DOCUMENTED_TEXT = b"""NCCL version 2.27.7+cuda12.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
      0         1         4         8        32        32   RUNNING  MISMATCH
      1         7         4         1         4        28   RUNNING        OK

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 (NVML 6) managed by process 483074 on node 172.16.64.210
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
  Rank 7 -- GPU 7 managed by process 483079 on node 172.16.64.210

"""


def chunks(data: bytes, size: int = 1000) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def by_process(found: Snapshot, communicator: int = 0) -> dict[tuple[str, int, int], int]:
    one = found.communicators[communicator]
    pairs = zip(one.peers, one.launched, strict=True)
    return {tuple(found.peers[peer]): launched for peer, launched in pairs if found.peers[peer].pid >= 0}


@pytest.mark.parametrize("size", [1, 7, 600, 65536])
def test_the_documented_json_is_read_whatever_its_chunks(size: int) -> None:
    found = json_answer.read(chunks(DOCUMENTED, size))
    (one,) = found.communicators
    assert (found.version, found.nodes, one.name, one.size) == ("2.29.1", 1, "0xae94423cfbb2ef4a", 2)
    assert by_process(found) == {("172.16.64.245", 1524344, 0): 10}
    assert one.bounds["AllReduce"] == (7, 7)
    assert dict(one.states) == {"ready": 1, "unresponsive": 1}
    assert found.peers[one.absent[0].peer].pid == 1524345


def test_the_documented_text_names_those_that_are_behind() -> None:
    found = text_answer.read(chunks(DOCUMENTED_TEXT, 50))
    assert (found.version, found.nodes) == ("2.27.7+cuda12.9", 4)
    behind = {process for process, count in by_process(found).items() if count == 6649}
    assert behind == {("172.16.64.210", 483072 + gpu, 6 if gpu == 2 else gpu) for gpu in (0, 2, 3, 4, 5, 7)}
    assert sorted(found.communicators[0].launched)[5:7] == [6649, 6650]
    assert found.communicators[1].states["ready"] == 28


@pytest.mark.parametrize("version", [(2, 24, 3), (2, 27, 7), (2, 28, 7), (2, 30, 7)])
def test_every_version_shows_the_rank_that_has_launched_less(version: tuple[int, int, int]) -> None:
    job = Job(layouts(32)[0])
    job.stop(21, 4)
    job.run()
    ras = RasJob(job, version=version)
    text = "".join(report.as_text(ras.answer(0), verbose=True)).encode()
    for found in [text_answer.read(chunks(text))] + [
        json_answer.read(chunks("".join(report.as_json(ras.answer(0))).encode())) for _ in range(version[1] >= 28)
    ]:
        troubled = next(number for number, one in enumerate(found.communicators) if len(set(one.launched)) > 1)
        counts = by_process(found, troubled)
        assert min(counts, key=lambda process: counts[process]) == ("10.0.0.3", 4021, 5)


def test_a_process_that_is_gone_is_unresponsive_and_then_dead() -> None:
    now = 0.0
    job = Job(layouts(32)[0])
    job.run()
    waited: list[float] = []
    ras = RasJob(job, clock=lambda: now, wait=waited.append)
    ras.stop(21)
    for expected in ("unresponsive", "unresponsive", "dead"):
        answer = ras.answer(5)
        json_form = json_answer.read(chunks("".join(report.as_json(answer)).encode()))
        text_form = text_answer.read(chunks("".join(report.as_text(answer, verbose=True)).encode()))
        for found in (json_form, text_form):
            assert found.communicators[0].states[expected] == 1
            assert [found.peers[one.peer].pid for one in found.communicators[0].absent] == [4021]
        now += 31
    assert waited == [5]


def test_a_rank_that_is_being_initialised_is_no_rank_with_a_count() -> None:
    job = Job(layouts(32)[0])
    ras = RasJob(job)
    ras.initialising["world"] = {21}
    answer = ras.answer(0)
    for found in (
        json_answer.read(chunks("".join(report.as_json(answer)).encode())),
        text_answer.read(chunks("".join(report.as_text(answer, verbose=True)).encode())),
    ):
        assert by_process(found)["10.0.0.3", 4021, 5] == NOT_READY
        assert found.communicators[0].states["initialising"] == 1


def test_two_communicators_of_one_hash_are_told_apart() -> None:
    begin, end = DOCUMENTED.index(b"    {\n"), DOCUMENTED.index(b"\n  ],\n")
    twice = DOCUMENTED[:end] + b",\n" + DOCUMENTED[begin:end] + DOCUMENTED[end:]
    names = [one.name for one in json_answer.read(chunks(twice)).communicators]
    assert names == ["0xae94423cfbb2ef4a", "0xae94423cfbb2ef4a 0xb7e7187447156001:0xb8242ed28a71381e"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\x1f\x8b\x08\x00gzip",
        b'{"communicators": {}}',
        b'{"communicators": [{"ranks": [{}]}]}',
        b'{"communicators": [{"ranks": [1]}]}',
        b'{"communicators": [{"size": "many"}]}',
        b'{"communicators": [{"size": 1e999}]}',
        b'{"nccl_version": ' + b"[" * 200_000,
        b'{"nccl_version": "' + b"x" * 200_000,
        b'{"nccl_version": ' + b"9" * 100_000,
        DOCUMENTED.replace(b'"pid": 1524344', b'"pid": 99999999999999'),
        DOCUMENTED.replace(b'"AllReduce": 7', b'"AllReduce": NaN'),
        DOCUMENTED.replace(b'"AllReduce": 7', b'"AllReduce": ' + b"9" * 30),
    ],
)
def test_what_is_no_report_is_one_reason(text: bytes) -> None:
    with pytest.raises(PartError) as raised:
        json_answer.read(chunks(text))
    assert raised.value.reason == "malformed"
    assert "\n" not in raised.value.detail
    assert len(raised.value.detail) < 200


def test_an_answer_of_millions_of_ranks_is_refused() -> None:
    rank = DOCUMENTED[DOCUMENTED.index(b'        {\n          "rank": 0') : DOCUMENTED.index(b"\n      ],")]
    short = rank.replace(b" ", b"").replace(b"\n", b"")

    def endless() -> Iterator[bytes]:
        yield b'{"communicators": [{"ranks": ['
        while True:
            yield (short + b",") * 100

    with pytest.raises(PartError, match="more than 262144 ranks"):
        json_answer.read(endless())


@given(st.integers(0, len(DOCUMENTED) - 3), st.integers(1, 2000))
def test_half_a_report_is_one_reason(length: int, size: int) -> None:
    with pytest.raises(PartError):
        json_answer.read(chunks(DOCUMENTED[:length], size))


@given(st.integers(0, len(DOCUMENTED)), st.binary(max_size=20), st.integers(0, 50))
def test_a_damaged_json_is_a_snapshot_or_one_reason(at: int, insert: bytes, drop: int) -> None:
    with contextlib.suppress(PartError):
        json_answer.read(chunks(DOCUMENTED[:at] + insert + DOCUMENTED[at + drop :]))


@given(st.integers(0, len(DOCUMENTED_TEXT)), st.binary(max_size=20), st.integers(0, 200))
def test_a_damaged_text_is_a_snapshot_or_one_reason(at: int, insert: bytes, drop: int) -> None:
    with contextlib.suppress(PartError):
        found = text_answer.read(chunks(DOCUMENTED_TEXT[:at] + insert + DOCUMENTED_TEXT[at + drop :], 64))
        assert all(len(one.ranks) + len(one.absent) <= one.size for one in found.communicators)
