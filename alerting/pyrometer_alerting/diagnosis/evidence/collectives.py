"""Facts about collectives: the ranks that hold up one in which the run's others wait.

Three sources name them. NCCL RAS counts the collectives that each rank launched. The dumps of PyTorch's Flight Recorder
are joined in :mod:`pyrometer_alerting.diagnosis.flight_recorder`. And a rank that waits in NCCL runs a kernel that
polls, full utilisation at a fraction of the power limit: one that never launched the collective leaves its GPU idle,
and one that still computes takes power.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from pyrometer_alerting.diagnosis.evidence.ranks import MOST_NODES
from pyrometer_alerting.diagnosis.flight_recorder import dumps
from pyrometer_alerting.diagnosis.look import Kind, Look, Query, Questions, Subject, middle
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import duration
from pyrometer_kit.promql import quoted

_ANONYMOUS = ("", "undefined", "default_pg")
_ANSWERLESS = {
    "unresponsive": "does not answer", "dead": "is dead", "missing": "has not joined", "not_ready": "has not joined",
}  # fmt: skip
SPINS_UTIL = 99.0  # per cent of the time in which a kernel ran
SPINS_POWER = 0.45  # of the limit, as the rule gpu:DCGM_FI_DEV_GPU_UTIL:spinning has it
MOST_SPIN = 0.75  # of the run's GPUs, at least: then the others stand out
MOST_IDLE = 8
_HANGS = frozenset({"TrainStalled", "NcclHang", "NcclRankMissing"})
Gpu = tuple[str, ...]


class _Straggler(NamedTuple):
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
            position, seconds = _position(questions, _Straggler(node, gpu, rank, state, behind), expected)
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


def _position(questions: Questions, straggler: _Straggler, expected: float | None) -> tuple[str, float | None]:
    """Return `rank 21 (gpu-010 GPU 5) launched 6,649 and is in forward at dataloader.py:88`, and its seconds there."""
    at = straggler.node + (f" GPU {straggler.gpu}" if straggler.gpu else "")
    name = f"rank {straggler.rank} ({at})" if straggler.rank else at
    if straggler.state in _ANSWERLESS:
        return f"{name} {_ANSWERLESS[straggler.state]}", None
    fewer = f"{straggler.behind:,.0f} fewer" if expected is None else f"{expected - straggler.behind:,.0f}"
    parts_now: dict[tuple[str, ...], float] = {}
    mine = questions.of_run(f"rank={quoted(straggler.rank)}")
    if straggler.rank:
        parts_now = questions.values(f"max by (part) (pyrometer_train_current_part_seconds{mine})", ("part",))
    if len(parts_now) != 1:
        return f"{name} launched {fewer}", None
    ((part,), seconds), *_ = parts_now.items()
    places = [*questions.values(f"group by (place) (pyrometer_train_stack_info{mine})", ("place",))]
    return f"{name} launched {fewer} and is in {part}" + (f" at {places[0][0]}" if len(places) == 1 else ""), seconds


def idle_beside_spinning(questions: Questions) -> Look:
    """Return the GPUs of a hung run that don't spin while most of its others do."""
    kinds = frozenset({"not_spinning"})
    if not any(alert.name in _HANGS and alert.firing for alert in questions.incident.members):
        return Look(kinds=kinds)
    keys, where = ("node", "gpu"), questions.of_nodes()
    query = f"min by (node, gpu) (min_over_time(DCGM_FI_DEV_GPU_UTIL{where}[1m]))"
    utils = {gpu: value for gpu, value in questions.values(query, keys).items() if _is_of_run(gpu, questions)}
    powers = questions.values(
        f"max by (node, gpu) (max_over_time(DCGM_FI_DEV_POWER_USAGE{where}[1m]))"
        f" / on (node, gpu) min by (node, gpu) (DCGM_FI_DEV_ENFORCED_POWER_LIMIT{where})",
        keys,
    )
    measured = {gpu: (util, powers[gpu]) for gpu, util in utils.items() if gpu in powers}
    spinning = {gpu: power for gpu, (util, power) in measured.items() if util >= SPINS_UTIL and power < SPINS_POWER}
    others = measured.keys() - spinning.keys()
    if len(measured) < 4 or len(spinning) < MOST_SPIN * len(measured) or not 0 < len(others) <= MOST_IDLE:
        return Look(kinds=kinds)
    usual = middle(spinning.values()) or 0.0
    facts = [
        Fact(
            "not_spinning",
            {"node": node, "gpu": gpu},
            _detail(*measured[node, gpu], len(spinning), len(measured), usual),
            strength=1.0 / len(others),
            value=measured[node, gpu][0] / 100,
            peers=1.0,
            source=query,
        )
        for node, gpu in sorted(others)
    ]
    return Look(tuple(facts), kinds)


def _is_of_run(gpu: Gpu, questions: Questions) -> bool:
    """Return whether the run has this GPU; all of a node where it isn't known which."""
    node, number = gpu
    listed = questions.roster.gpus.get(node, ())
    return number in listed or (node in questions.roster.gpus and not any(listed))


def _detail(util: float, power: float, spinning: int, known: int, usual: float) -> str:
    """Return a text that stays the same while little changes: rounded to tens."""
    others = f"{spinning} of the run's {known} GPUs spin at full utilisation and {_tens(usual)} of their power limit"
    return f"{others}, as in a collective; this one is at {_tens(util / 100)} utilisation and {_tens(power)}"


def _tens(share: float) -> str:
    return f"{10 * round(10 * share)} %"


def _behind(fact: Fact) -> str:
    lasts = fact.began is not None and fact.ended is None and fact.seen_at > fact.began
    return fact.detail + (f" for {duration(fact.seen_at - (fact.began or 0.0))}" if lasts else "")


_rank = partial(Kind, "rank", says=_behind, awaited=True)
SUBJECT = Subject(
    6,
    {
        "behind": _rank("behind in a collective", 1.2, runbook="NcclHang"),
        "not_arrived": _rank("did not reach a collective", 1.2, runbook="NcclHang"),
        "not_spinning": _rank(
            "busy with something else while the others wait in a collective", 0.8, runbook="NcclHang"
        ),
    },
    (Query(collectives), Query(dumps), Query(idle_beside_spinning)),
)
