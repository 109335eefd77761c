"""Facts from NCCL RAS: the ranks that are behind in a collective, or gone, while the run's others wait for them."""

from __future__ import annotations

from typing import NamedTuple

from pyrometer_alerting.diagnosis.look import Look, Questions
from pyrometer_alerting.diagnosis.rank_facts import MOST_NODES
from pyrometer_alerting.model.fact import Fact
from pyrometer_kit.promql import quoted

_ANONYMOUS = ("", "undefined", "default_pg")
_ANSWERLESS = {
    "unresponsive": "does not answer", "dead": "is dead", "missing": "has not joined", "not_ready": "has not joined",
}  # fmt: skip


class _Suspect(NamedTuple):
    node: str
    gpu: str
    rank: str
    state: str
    behind: float


def collectives(questions: Questions) -> Look:
    """Return the ranks that NCCL RAS shows to be behind, or that don't answer, while the others wait for them."""
    labels = ("node", "gpu", "rank", "state", "certain", "comm")
    query = f"max by ({', '.join(labels)}) (rank:pyrometer_nccl_rank_behind:named{questions.of_run()})"
    found = questions.values(query, labels)
    certain = {key: behind for key, behind in found.items() if key[4] == "yes"}
    chosen = certain or found  # where several may be meant, each is, but none weighs as much
    facts = []
    for (node, gpu, rank, state, _certain, comm), behind in list(chosen.items())[: 4 * MOST_NODES]:
        if node:
            waits, expected = _wait_in(questions, comm, behind)
            position, seconds = _position(questions, _Suspect(node, gpu, rank, state, behind), expected)
            facts.append(
                Fact(
                    "behind",
                    {"node": node, "gpu": gpu} if gpu else {"node": node},
                    waits + position,
                    began=None if seconds is None else questions.now - seconds,
                    precision=30.0,
                    strength=1.0 if certain else 1.0 / len(chosen),
                    value=behind,
                    peers=0.0,
                    source=query,
                )
            )
    return Look(tuple(facts), frozenset({"behind"}))


def _wait_in(questions: Questions, comm: str, behind: float) -> tuple[str, float | None]:
    """Return `31 of 32 ranks wait in AllReduce 6,650 of the DP group; ` and 6650; nothing where that isn't known."""
    mine = questions.of_run(f"comm={quoted(comm)}")
    waiting = questions.values(f"max(pyrometer_nccl_waiting_ranks{mine})", ()).get(())
    size = questions.values(f"sum(max by (state) (pyrometer_nccl_communicator_ranks{mine}))", ()).get(())
    if waiting is None or size is None:
        return "", None
    counted = f"max by (collective, bound) (pyrometer_nccl_communicator_collectives_total{mine})"
    counts = questions.values(counted, ("collective", "bound"))
    apart = [
        kind for kind, bound in counts if bound == "max" and counts[kind, bound] - counts.get((kind, "min"), 0) > 0
    ]
    kind = max(apart, key=lambda one: counts[one, "max"] - counts.get((one, "min"), 0) == behind, default=None)
    number = "a collective" if kind is None else f"{kind} {counts[kind, 'max']:,.0f}"
    group = _group_name(questions, f"{size:.0f}")
    text = f"{waiting:.0f} of {size:.0f} ranks wait in {number}{group}; "
    return text, None if kind is None else counts[kind, "max"]


def _group_name(questions: Questions, size: str) -> str:
    """Return ` of the DP group` where the job gave all its groups of this size one name."""
    inspected = f"group by (name) (pyrometer_nccl_group_info{questions.of_run(f'comm_ranks={quoted(size)}')})"
    recorded = (
        "group by (group_name) "
        f"(pyrometer_train_flight_recorder_collective{questions.of_run(f'group_ranks={quoted(size)}')})"
    )
    for query, label in ((inspected, "name"), (recorded, "group_name")):
        names = {name for (name,) in questions.values(query, (label,)) if name not in _ANONYMOUS}
        if len(names) == 1:
            name = names.pop()
            return f" of the {name}" if name.lower().endswith("group") else f" of the {name} group"
    return ""


def _position(questions: Questions, suspect: _Suspect, expected: float | None) -> tuple[str, float | None]:
    """Return `rank 21 (gpu-010 GPU 5) launched 6,649 and is in forward at dataloader.py:88`, and its seconds there."""
    at = suspect.node + (f" GPU {suspect.gpu}" if suspect.gpu else "")
    name = f"rank {suspect.rank} ({at})" if suspect.rank else at
    if suspect.state in _ANSWERLESS:
        return f"{name} {_ANSWERLESS[suspect.state]}", None
    fewer = f"{suspect.behind:,.0f} fewer" if expected is None else f"{expected - suspect.behind:,.0f}"
    parts_now: dict[tuple[str, ...], float] = {}
    mine = questions.of_run(f"rank={quoted(suspect.rank)}")
    if suspect.rank:
        parts_now = questions.values(f"max by (part) (pyrometer_train_current_part_seconds{mine})", ("part",))
    if len(parts_now) != 1:
        return f"{name} launched {fewer}", None
    ((part,), seconds), *_ = parts_now.items()
    places = [*questions.values(f"group by (place) (pyrometer_train_stack_info{mine})", ("place",))]
    return f"{name} launched {fewer} and is in {part}" + (f" at {places[0][0]}" if len(places) == 1 else ""), seconds
