"""Who holds up a hung job: the join of all ranks' operations, as PyTorch 2.5 to 2.10 record them."""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyrometer.hang import examine, explain, main, read_dump

WORLD = "0"
CAME = 1_800_000_000.0
Entry = dict[str, Any]


def made(number: int, group: str = WORLD, name: str = "all_reduce", **changes: Any) -> Entry:
    """Return a collective that its rank has launched, and not finished."""
    return {
        "record_id": number, "pg_id": 0, "process_group": (group, "default_pg" if group == WORLD else "mesh"),
        "collective_seq_id": number, "p2p_seq_id": 0, "profiling_name": f"nccl:{name}", "state": "scheduled",
        "retired": False, "is_p2p": False, "input_sizes": [[4, 4]], "output_sizes": [[4, 4]],
        "input_dtypes": ["Float"], "output_dtypes": ["Float"], "timeout_ms": 600_000,
        "time_created_ns": int((CAME + number / 100) * 1e9),
        "frames": [{"name": "step", "filename": "/job/train.py", "line": number}],
    } | changes  # fmt: skip


def done(number: int, group: str = WORLD, name: str = "all_reduce") -> Entry:
    return made(number, group, name, state="completed", retired=True)


def moved(text: str, number: int, group: str = "3", at: float = CAME, **changes: Any) -> Entry:
    """Return a send or receive, ``recv 1<-0``."""
    own = {"collective_seq_id": 0, "p2p_seq_id": number, "is_p2p": True, "time_created_ns": int(at * 1e9)}
    return made(number, group, text, **own) | changes


def batch(number: int, texts: list[str], **changes: Any) -> list[Entry]:
    """Return sends and receives made together: only the entry of the batch says how far they are."""
    of = {"collective_seq_id": number}
    return [moved(text, 0, **of) for text in texts] + [moved("coalesced", 0, **of | changes)]


@dataclass
class Hung:
    """Hold a hang as dumps show it (each rank's entries, each group's members) and the report that is expected."""

    ranks: dict[int, list[Entry]]
    named: list[int]
    says: str = ""
    groups: dict[str, list[list[int]]] = field(default_factory=dict)
    says_not: str = "nobody waits"
    world: int = 4


FOUR = range(4)
PIPELINE = {"3": [[0, 1, 2, 3]]}
RECEIVES = {0: [moved("recv 0<-1", 88)], 2: [moved("recv 2<-1", 88)], 3: [moved("recv 3<-2", 88)]}
RECEIVED = {"state": "completed", "retired": True}
HUNG = {
    "launches run ahead": Hung(
        {0: [made(6)], 1: [done(5)], 2: [made(6), made(7), made(8)], 3: [made(6), made(7)]}, [1],
        r"3 of the ranks wait in nccl:all_reduce 6 of group 0 .*train.py:6 in step: ranks 0, 2, 3, since",
    ),
    "one name, disjoint groups": Hung(
        {0: [done(202, "1"), made(51)], 1: [done(202, "1"), made(51)], 2: [done(50), made(205, "1")],
         3: [done(50), done(204, "1")]},
        [3], r"reach it: ranks 3\n", {"1": [[0, 1], [2, 3]]}, "ranks 0, 1, 3",
    ),
    "a pipeline": Hung(
        RECEIVES | {1: [moved("recv 1<-0", 87, **RECEIVED)]}, [1], "rank 2 receives from rank 1", PIPELINE
    ),
    "a pipeline with receives in flight": Hung(
        RECEIVES | {1: [moved("recv 1<-0", 89)]}, [1], "ranks 0, 1 wait for each other; .*probably", PIPELINE
    ),
    "two ends of a pipeline, and who stopped first": Hung(
        {0: [done(5), moved("recv 0<-1", 8, at=CAME + 4)], 1: [done(5), moved("recv 1<-0", 8, at=CAME + 1)]},
        [1], "probably", {"3": [[0, 1]]}, world=2,
    ),
    "a receive in flight clears nobody": Hung(
        {0: [made(6)], 1: [done(5), moved("recv 1<-0", 8)], 2: [made(6)], 3: [made(6)]}, [1], "probably", PIPELINE
    ),
    "transfers of a batch end with the batch": Hung(
        {0: [made(6)], 1: [done(5), moved("recv 1<-0", 8), moved("coalesced", 8, **RECEIVED)], 2: [made(6)],
         3: [made(6)]},
        [1], "=> the others wait for rank 1", PIPELINE, "probably",
    ),
    "batches in flight, numbered as collectives": Hung(
        {0: batch(7, ["send 0->1", "recv 0<-1"], **RECEIVED) + batch(8, ["send 0->1", "recv 0<-1"], state="started"),
         1: batch(7, ["recv 1<-0", "send 1->0", "send 1->2"], **RECEIVED),
         2: batch(7, ["recv 2<-1"], **RECEIVED) + batch(8, ["recv 2<-1"], state="started"), 3: [done(5)]},
        [1], "rank 0 sends to rank 1 in group 3", PIPELINE,
    ),
    "numbers that batches raise unevenly": Hung(
        {0: [made(6)], 1: [made(6)], 2: [done(5)], 3: [made(6), moved("coalesced", 0, WORLD, **RECEIVED)]}, [],
        "batches of sends have its numbers: ranks 2",
    ),
    "both ends came": Hung(
        {0: [done(5), moved("send 0->1", 8)], 1: [done(5), moved("recv 1<-0", 8)]}, [],
        "ranks 0 and 1 are both in it: the link between them", {"3": [[0, 1]]}, world=2,
    ),
    "half are through": Hung(
        {rank: [made(6) if rank > 1 else done(6)] for rank in FOUR}, [],
        "ranks 0, 1 are through with it, ranks 2, 3 are not. The link between",
    ),
    "all are in it": Hung(
        {rank: [done(5), made(6), made(7)] for rank in FOUR}, [],
        "all 4 ranks of it are in nccl:all_reduce 6 .*ranks 0, 1, 2, 3. A link between them, or NCCL itself",
    ),
    "a GPU that has not begun it": Hung(
        {rank: [made(6, state="scheduled" if rank == 2 else "started")] for rank in FOUR}, [2],
        "launched it, but the GPU has not begun it: ranks 2",
    ),
    "another size": Hung(
        {rank: [made(6, input_sizes=[[8 if rank == 3 else 16]])] for rank in FOUR}, [3],
        r"rank 3 is in nccl:all_reduce of 8 to 16 elements \(Float Float\) instead",
    ),
    "another type": Hung({rank: [made(6, input_dtypes=["Half" if rank else "Float"])] for rank in FOUR}, [0], "Float"),
    "another operation": Hung(
        {rank: [made(6, name="broadcast" if rank == 1 else "barrier")] for rank in FOUR}, [1], "is in nccl:broadcast"
    ),
    "two against two": Hung(
        {rank: [made(6, name="broadcast" if rank > 1 else "barrier")] for rank in FOUR}, [], "no side is the odd one"
    ),
    "a part of a batch has another size": Hung(
        {rank: [made(6, name="_broadcast_oop", input_sizes=[[4 + (rank == 2)]]), made(6, name="ALLGATHER_coalesced")]
         for rank in FOUR},
        [2], "rank 2 is in",
    ),
    "roots have other sizes": Hung(
        {rank: [made(6, name="gather", output_sizes=[[4, 4]] * (0 if rank else 4))] for rank in FOUR}, [],
        "all 4 ranks of it", says_not="instead",
    ),
    "experts have other sizes": Hung(
        {rank: [made(6, name="all_to_all", input_sizes=[[rank, 8]])] for rank in FOUR}, [], "all 4 ranks of it",
        says_not="instead",
    ),
    "each waits for the other": Hung(
        {0: [made(6, "1"), done(5, "2")], 1: [done(5, "1"), made(6, "2")]}, [], "ranks 0, 1 wait for each other",
        {"1": [[0, 1]], "2": [[0, 1]]}, world=2,
    ),
    "ranks without dumps": Hung({0: [made(6)], 1: [made(6)]}, [2, 3], "left no dump: ranks 2, 3\none of these"),
    "a late rank explains more than one without a dump": Hung(
        {0: [made(6)], 1: [done(5)], 2: [made(6)]}, [1], "left no"
    ),
    "it fell out of the buffer": Hung(
        {0: [made(6)], 1: [made(6)], 2: [made(6)], 3: [done(900, "1")]}, [], "fell out of the buffer or .*: ranks 3"
    ),
    "nothing is open": Hung({rank: [done(6)] for rank in FOUR}, [], "No single rank differs: nobody waits", {}, "=>"),
}  # fmt: skip


@pytest.mark.parametrize("name", HUNG)
def test_it_is_told_who_holds_up_the_others(name: str, tmp_path: Path) -> None:
    hung = HUNG[name]
    for rank, entries in hung.ranks.items():
        of = {group: next(ranks for ranks in all_ranks if rank in ranks) for group, all_ranks in hung.groups.items()}
        config = {group: {"ranks": str(ranks)} for group, ranks in (of | {WORLD: list(range(hung.world))}).items()}
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps({"entries": entries, "pg_config": config, "pg_status": {}}, protocol=2))
        os.utime(path, (CAME + 600, CAME + 600))
    dumps = [read_dump(str(path)) for path in tmp_path.iterdir()]
    text = "\n".join(explain(dumps)) + "\n"
    assert list(examine(dumps).named) == hung.named, text
    assert re.search(hung.says, text, re.DOTALL), text
    assert not re.search(hung.says_not, text), text


EVIDENCE = Path(os.environ.get("EVIDENCE", "none")) / "hangs"


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="EVIDENCE names no folder with hangs recorded by others")
def test_hangs_recorded_by_others_are_told_as_far_as_they_can_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """Dumps of NVIDIA/nvidia-resiliency-ext, tests/attribution/unit/fr_traces, with the table of its own analysis."""
    for folder in sorted(EVIDENCE.iterdir()):
        missing = re.findall(r"\| *([\d,]+)\s*$", (folder / "reference.txt").read_text(), re.MULTILINE)
        assert main([str(folder)]) == 0
        named = re.findall(r"wait for rank (\d+)", capsys.readouterr().out)
        assert named == sorted({rank for ranks in missing for rank in ranks.split(",")}, key=int), folder.name
