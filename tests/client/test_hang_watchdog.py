"""Lines of PyTorch's NCCL watchdog, as PyTorch 2.0 to 2.10 write them, are joined as the dumps are."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer.hang import main

Lines = list[str]


def caught(rank: int, number: int, kind: str = "ALLREDUCE", *, size: int = 8, at: str = "0709 17:05:38") -> str:
    """Return the first line of a rank whose collective timed out (PyTorch 2.5)."""
    day, clock = at.split()
    return (
        f"[rank{rank}]:[E{day.lstrip('0')} {clock}.162555850 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn={size}, NumelOut={size}, "
        "Timeout(ms)=600000) ran for 600017 milliseconds before timing out."
    )


def failed(rank: int, number: int, enqueued: int, group: str = "ID 0 PG GUID 0(default_pg)", place: int = -1) -> str:
    """Return its second line."""
    return (
        f"[rank{rank}]:[E709 17:05:38.162814866 ProcessGroupNCCL.cpp:2271] [PG {group} Rank "
        f"{rank if place < 0 else place}]  failure detected by watchdog at work sequence id: {number} PG status: "
        f"last enqueued work: {enqueued}, last completed work: {number - 1}"
    )


def asked(rank: int, enqueued: int, group: str = "ID 0 PG GUID 0(default_pg)") -> str:
    """Return the line of a rank that others ask for its dump."""
    return (
        f"[rank{rank}]:[E709 17:05:38.482119928 ProcessGroupNCCL.cpp:1746] [PG {group} Rank {rank}] Received a dump "
        "signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last "
        f"enqueued NCCL work: {enqueued}, last completed NCCL work: {enqueued}.This is most likely caused by"
    )


def waiting(rank: int, number: int, ahead: int = 0, **of: Any) -> Lines:
    return [caught(rank, number, **of), failed(rank, number, number + ahead)]


OLD = (
    "[E ProcessGroupNCCL.cpp:458] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, "
    "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800384 milliseconds before timing out."
)
OF_2_4 = (
    "[rank0]:[E709 17:05:38.46 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an error or timeout) "
    "detected by watchdog at work: 32, last enqueued NCCL work: 34, last completed NCCL work: 31."
)
OF_2_10 = (
    "[rank0]:[E709 17:05:38.46 ProcessGroupNCCL.cpp:2400] [PG ID 3 PG GUID 3(dp) Rank 0] failure detected by watchdog "
    "at work sequence id: 32 PG status: last enqueued work: 40, last started work: -1, last completed work: 31"
)
SUB = "ID 5 PG GUID 22(TENSOR_MODEL_PARALLEL_GROUP)"
FOUR = range(4)
HUNG: dict[str, tuple[Lines, list[int], str]] = {
    "one did not come": (
        [*waiting(0, 20585, 4), *waiting(2, 20585), asked(1, 20584)], [1],
        r"2 of the ranks wait in nccl:all_reduce 20,585 of group 0 \(default_pg\): ranks 0, 2, for 600 s",
    ),
    "behind a progress bar and srun's label": (
        ["12: 240it [05:55, loss=5.46]" + line for line in waiting(0, 9)] + [f"kubectl-1 | {asked(1, 8)}"], [1], "",
    ),
    "PyTorch 2.4": ([caught(0, 32), OF_2_4, asked(3, 31, "1")], [3], "all_reduce 32 of group 1"),
    "PyTorch 2.10": (
        [caught(0, 32, "_ALLGATHER_BASE"), OF_2_10, asked(1, 31, "ID 3 PG GUID 3(dp)")], [1],
        r"_allgather_base 32 of group 3 \(dp\)",
    ),
    "all came": ([line for rank in FOUR for line in waiting(rank, 7, rank)], [], "all 4 ranks of it .*or NCCL itself"),
    "another size": (
        [line for rank in FOUR for line in waiting(rank, 7, size=8 + (rank == 2))], [2], "rank 2 is in .* of 9 to 9",
    ),
    "one is silent": ([line for rank in (0, 1, 3) for line in waiting(rank, 7)], [2], "left no dump: ranks 2"),
    "half of the job's log is not here": (
        [line for rank in (4, 5, 6, 7) for line in waiting(rank, 7)], [], "all 4 ranks",
    ),
    "other groups are no evidence": (
        [caught(0, 809868, "ALLGATHER"), failed(0, 809868, 809948, SUB), asked(1, 58), asked(2, 58)], [], "",
    ),
    "a send's number is not compared": ([*waiting(0, 900), *waiting(1, 900), asked(2, 14)], [], "can't be told"),
    "a batch of sends": (
        [caught(0, 524, "COALESCED"), failed(0, 524, 524), *waiting(1, 20), asked(2, 19)], [], "No single rank",
    ),
    "two groups of one name": (
        [caught(0, 9), failed(0, 9, 9, SUB, 0), caught(2, 9), failed(2, 9, 9, SUB, 0), asked(1, 8, SUB)], [], "",
    ),
    "the hang before the restart is another": (
        [caught(1, 900, at="0708 11:00:00"), *waiting(0, 7), asked(1, 6)], [1], "all_reduce 7 .*ranks 0",
    ),
    "groups are not named before PyTorch 2.3": ([OLD.format(0, 96120), OLD.format(7, 64088)], [], "No single rank"),
}  # fmt: skip


@pytest.mark.parametrize("name", HUNG)
def test_it_is_told_who_holds_up_the_others(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, named, says = HUNG[name]
    log = tmp_path / "train.log"
    log.write_text("\n".join(["step 1 completed", *lines, "\x1b[2J\xff last words"]), encoding="latin-1")
    assert main([str(log)]) == (0 if named else 1)
    text = capsys.readouterr().out
    assert [int(rank) for rank in re.findall(r"wait for rank (\d+)", text)] == named, text
    assert re.search(says, text, re.DOTALL), text
    assert "nobody waits" not in text


def test_a_log_without_such_lines_and_one_that_is_not_there_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.log").write_text("step 1: completed in 2 s\n")
    assert main([str(tmp_path / "train.log")]) == 2
    assert main([str(tmp_path / "none.log")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


EVIDENCE = Path(os.environ.get("EVIDENCE", "none")) / "hangs"


def lines_of(rank: int, dump: dict[str, Any]) -> Iterator[str]:
    """Yield what the watchdog of a rank writes that has this dump."""
    open_in: dict[tuple[int, tuple[str, str]], list[dict[str, Any]]] = {}
    for entry in dump["entries"]:
        open_in.setdefault((entry["pg_id"], entry["process_group"]), []).append(entry)
    for (number, (name, text)), entries in open_in.items():
        first, group = entries[0], f"ID {number} PG GUID {name}({text})"
        kind = first["profiling_name"].split(":")[1].split(" ")[0].upper()
        sequence = first["p2p_seq_id" if first["is_p2p"] else "collective_seq_id"]
        yield caught(rank, sequence, kind)
        members = [int(member) for member in re.findall(r"\d+", dump["pg_config"][name]["ranks"])]
        yield failed(
            rank, sequence, dump["pg_status"][str(number)]["last_enqueued_collective"], group, members.index(rank)
        )


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="EVIDENCE names no folder with hangs recorded by others")
def test_the_lines_of_sixteen_ranks_name_whom_their_dumps_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = EVIDENCE / "gpu_error_1st"
    log = tmp_path / "train.log"
    dumps = {rank: pickle.loads((folder / f"_dump_{rank}").read_bytes()) for rank in range(16)}  # noqa: S301  given by the developer
    log.write_text("\n".join(line for rank, dump in dumps.items() for line in lines_of(rank, dump)))
    said = [main([str(path)]) for path in (folder, log)], re.findall(r"wait for rank (\d+)", capsys.readouterr().out)
    assert said == ([0, 0], ["12", "12"])
