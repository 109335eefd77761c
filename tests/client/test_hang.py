"""Dumps of the Flight Recorder, as a real Gloo run of PyTorch 2.15 writes them, joined over ranks; and hostile ones."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pyrometer.hang import BadDumpError, culprits, join, main, read_dump

WORLD, PAIR = ("0", "default_pg"), ("2", "tensor")


def entry(group: tuple[str, str], number: int, name: str = "all_reduce", line: int = 21) -> dict[str, Any]:
    frames = [
        {"name": "all_reduce", "filename": "/env/lib/torch/distributed/distributed_c10d.py", "line": 4174},
        {"name": "train", "filename": "/job/train.py", "line": line},
    ]
    return {
        "pg_id": 0 if group is WORLD else 1, "process_group": group, "collective_seq_id": number, "p2p_seq_id": 0,
        "profiling_name": f"gloo:{name}", "state": "scheduled", "retired": False, "is_p2p": False, "frames": frames,
    }  # fmt: skip


def write(folder: Path, rank: int, entries: list[dict[str, Any]], world: int, pair: int = -1) -> None:
    """Write a rank's dump; ``world`` and ``pair`` are the last collectives that it completed in these groups."""
    status = {"0": {"last_completed_collective": world}, "1": {"last_completed_collective": pair}}
    whole = {
        "version": "2.10", "entries": entries, "pg_status": status,
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}},
    }  # fmt: skip
    (folder / f"trace_{rank}").write_bytes(pickle.dumps(whole, protocol=2))


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """Rank 2 never comes to the tensor group's sixth collective, so rank 3 doesn't come to the world's sixteenth."""
    for rank in (0, 1):
        write(tmp_path, rank, [entry(WORLD, 15, "barrier"), entry(WORLD, 16)], 15)
    write(tmp_path, 2, [entry(PAIR, 5), entry(WORLD, 15, "barrier", 22)], 15, 5)
    write(tmp_path, 3, [entry(PAIR, 5), entry(WORLD, 15, "barrier"), entry(PAIR, 6, line=19)], 15, 5)
    return tmp_path


def test_a_rank_without_a_dump_is_missing_where_all_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0, [entry(WORLD, 15, "barrier"), entry(WORLD, 16)], 15)  # its group of all ranks has two
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "=> the others wait for rank 1: it wrote no dump"


def test_whoever_waits_for_nobody_is_named(stuck: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(stuck)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 of the ranks wait in gloo:all_reduce 16 of group 0 (default_pg), train.py:21 in train: ranks 0, 1",
        "did not reach it: ranks 2, 3",
        "1 of the ranks wait in gloo:all_reduce 6 of group 2 (tensor), train.py:19 in train: ranks 3",
        "did not reach it: ranks 2",
        (
            "=> the others wait for rank 2; its last collectives: gloo:all_reduce 5 of group 2, train.py:21 in train; "
            "gloo:barrier 15 of group 0, train.py:22 in train"
        ),
    ]


def test_a_rank_in_another_collective_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(4):
        write(tmp_path, rank, [entry(WORLD, 16, "broadcast" if rank == 3 else "all_reduce")], 15)
    assert main([str(tmp_path)]) == 0
    assert "rank 3 is in gloo:broadcast instead" in capsys.readouterr().out


def test_nobody_is_named_where_nobody_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        write(tmp_path, rank, [entry(WORLD, 16)], 16)
    assert main([str(tmp_path)]) == 1
    assert "No single rank differs" in capsys.readouterr().out


def test_a_rank_without_a_dump_is_known_by_its_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, [entry(WORLD, 16)], 15)
    path = tmp_path / "trace_0"
    whole = pickle.loads(path.read_bytes())  # noqa: S301  our own
    whole["pg_config"] = {"0": {"ranks": "[0, 1]"}}
    path.write_text(json.dumps(whole))
    assert main([str(tmp_path)]) == 0
    assert "the others wait for rank 1: it wrote no dump" in capsys.readouterr().out


CAME = 1_800_000_000.0


def seen(folder: Path, rank: int, number: int, after: float, timeout: float = 600.0) -> None:
    """Write a rank's dump, this long after the others came to collective 16."""
    made = {"time_created_ns": int(CAME * 1e9), "timeout_ms": int(timeout * 1000)}
    write(folder, rank, [entry(WORLD, number) | made], 15)
    os.utime(folder / f"trace_{rank}", (CAME + after, CAME + after))


@pytest.mark.parametrize(
    ("after", "said"), [(0.04, "0.0 s after"), (9.0, "9.0 s after"), (-0.25, "0.2 s before"), (-8.0, "8.0 s before")]
)
def test_nobody_is_named_from_dumps_that_a_run_that_goes_on_would_write(
    tmp_path: Path, after: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen(tmp_path, 0, 16, max(after, 0.0) + 0.5)
    seen(tmp_path, 1, 15, after)
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "did not reach it: ranks 1",
        f"may come, or have come since: ranks 1, seen {said} the last of the others came",
        "Nobody is named: a run that goes on looks the same. Ask for dumps of all ranks again.",
    ]


def test_of_two_that_did_not_come_only_the_one_whose_dump_is_late_enough_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a real run wrote them: rank 1 waits in the same collective by the time of its next dump."""
    for rank in (2, 3):
        seen(tmp_path, rank, 16, 12.0)
    seen(tmp_path, 0, 15, 12.0)
    seen(tmp_path, 1, 14, 9.0)
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "may come, or have come since: ranks 1, seen 9.0 s after the last of the others came" in lines
    assert [line[:31] for line in lines if "=>" in line] == ["=> the others wait for rank 0; "]


@pytest.mark.parametrize("waited", [0.3, 11.0])
def test_a_rank_that_wrote_no_dump_with_the_others_is_named_once_they_have_waited(
    tmp_path: Path, waited: float, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        seen(tmp_path, rank, 16, waited)
    seen(tmp_path, 2, 12, -60.0)  # stopped: its dump is of an earlier request
    assert main([str(tmp_path)]) == (0 if waited > 10 else 1)
    assert ("the others wait for rank 2" in capsys.readouterr().out) == (waited > 10)
    (tmp_path / "trace_0").unlink()
    (tmp_path / "trace_2").unlink()  # rank 0 is known by the group of all ranks
    assert main([str(tmp_path)]) == (0 if waited > 10 else 1)
    assert ("rank 0: it wrote no dump" in capsys.readouterr().out) == (waited > 10)


def test_a_rank_is_named_when_a_shorter_timeout_has_run_out(tmp_path: Path) -> None:
    seen(tmp_path, 0, 16, 5.1, timeout=5.0)
    seen(tmp_path, 1, 15, 5.1, timeout=5.0)
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize("made", [-1, 0, 1 << 90, 1e300, "now", None])
def test_a_time_that_is_none_is_not_known(tmp_path: Path, made: object) -> None:
    write(tmp_path, 0, [entry(WORLD, 16) | {"time_created_ns": made, "timeout_ms": made}], 15)
    write(tmp_path, 1, [entry(WORLD, 15)], 15)
    assert main([str(tmp_path)]) == 0


def test_a_rank_in_a_receive_is_not_blamed(tmp_path: Path) -> None:
    receive = entry(WORLD, 15, "recv 1<-0") | {"is_p2p": True}
    write(tmp_path, 0, [entry(WORLD, 16)], 15)
    write(tmp_path, 1, [entry(WORLD, 15), receive], 15)
    dumps = [read_dump(str(tmp_path / f"trace_{rank}")) for rank in range(2)]
    assert culprits(dumps, join(dumps)) == []


class Call:
    """A pickle that runs a command in whoever loads it."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.what = function, arguments

    def __reduce__(self) -> Any:
        return self.what


HOSTILE = {
    "a command": pickle.dumps({"entries": [Call(os.system, "touch owned")]}),
    "eval": pickle.dumps({"entries": Call(eval, "open('owned', 'w')")}, protocol=0),
    "a class": pickle.dumps({"entries": [Path("/")]}),
    "a global by name": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0btouch owned\x85R.",
    "an old instance": b"(S'touch owned'\nios\nsystem\n.",
    "a persistent id": b"Pfile\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a memo of gigabytes": b"\x80\x02]r\xff\xff\xff\x7f.",
    "a string of gigabytes": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "an array of gigabytes": b"\x80\x05\x96\x00\x00\x00\x10\x00\x00\x00\x00.",
    "a frame of exabytes": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "no end": b"\x80\x02](]",
    "nothing": b"",
    "text": b"Traceback (most recent call last):",
    "a list": pickle.dumps([1, 2]),
    "half a JSON": b'{"entries": [',
    "deep JSON": b'{"entries":' + b"[" * 200_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_and_broken_dumps_are_refused_in_one_line(
    stuck: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stuck)
    (stuck / "trace_9").write_bytes(HOSTILE[name])
    with pytest.raises(BadDumpError):
        read_dump(str(stuck / "trace_9"))
    assert main([str(stuck)]) == 0, "the other ranks' dumps are still explained"
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (stuck / "owned").exists()


@pytest.mark.parametrize("name", [name for name in HOSTILE if "bytes" in name])
def test_a_dump_takes_as_much_memory_as_it_has_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "trace_9").write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(BadDumpError):
            read_dump(str(tmp_path / "trace_9"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"entries": [None, 1, {}]},
        {"entries": [entry(WORLD, 1, "coalesced") | {"p2p_seq_id": [1], "is_p2p": True}]},
        {"pg_status": [1]},
        {"pg_status": {"0": 1}},
        {"pg_config": {"0": 1, 2: {}}},
    ],
)
def test_parts_of_another_shape_are_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": [entry(WORLD, 1)], "pg_status": {}} | change))
    assert read_dump(str(tmp_path / "trace_0")).rank == 0


def test_a_directory_without_dumps_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert main([str(tmp_path / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_what_a_dump_says_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, [entry(WORLD, 16, "\x1b[2Jall_reduce")], 15)
    write(tmp_path, 1, [entry(WORLD, 15)], 15)
    main([str(tmp_path)])
    assert "\x1b" not in capsys.readouterr().out
