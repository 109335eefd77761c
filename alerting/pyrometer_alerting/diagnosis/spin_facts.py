"""Facts from GPUs that spin: whose rank is at something else while those of all others wait in a collective.

A rank that waits in NCCL runs a kernel that polls: full utilisation at a fraction of the power limit. A rank that never
launched the collective leaves its GPU idle, and one that still computes takes power.
"""

from __future__ import annotations

from pyrometer_alerting.diagnosis.look import Look, Questions, middle
from pyrometer_alerting.model.fact import Fact

SPINS_UTIL = 99.0  # per cent of the time in which a kernel ran
SPINS_POWER = 0.45  # of the limit, as the rule gpu:DCGM_FI_DEV_GPU_UTIL:spinning has it
MOST_SPIN = 0.75  # of the run's GPUs, at least: then the others stand out
MOST_FACTS = 8
_HANGS = frozenset({"TrainStalled", "NcclHang", "NcclRankMissing"})

Gpu = tuple[str, ...]


def idle_beside_spinning(questions: Questions) -> Look:
    """Return the GPUs of a hung run that don't spin while most of its others do."""
    kinds = frozenset({"not_spinning"})
    if not any(alert.name in _HANGS and alert.firing for alert in questions.incident.members):
        return Look(kinds=kinds)
    keys, where = ("node", "gpu"), questions.of_nodes()
    query = f"min by (node, gpu) (min_over_time(DCGM_FI_DEV_GPU_UTIL{where}[1m]))"
    utils = {gpu: value for gpu, value in questions.values(query, keys).items() if _is_mine(gpu, questions)}
    powers = questions.values(
        f"max by (node, gpu) (max_over_time(DCGM_FI_DEV_POWER_USAGE{where}[1m]))"
        f" / on (node, gpu) min by (node, gpu) (DCGM_FI_DEV_ENFORCED_POWER_LIMIT{where})",
        keys,
    )
    known = {gpu: (util, powers[gpu]) for gpu, util in utils.items() if gpu in powers}
    spinning = {gpu: power for gpu, (util, power) in known.items() if util >= SPINS_UTIL and power < SPINS_POWER}
    others = known.keys() - spinning.keys()
    if len(known) < 4 or len(spinning) < MOST_SPIN * len(known) or not 0 < len(others) <= MOST_FACTS:
        return Look(kinds=kinds)
    usual = middle(spinning.values()) or 0.0
    facts = [
        Fact(
            "not_spinning",
            {"node": node, "gpu": gpu},
            _detail(*known[node, gpu], len(spinning), len(known), usual),
            strength=1.0 / len(others),
            value=known[node, gpu][0] / 100,
            peers=1.0,
            source=query,
        )
        for node, gpu in sorted(others)
    ]
    return Look(tuple(facts), kinds)


def _is_mine(gpu: Gpu, questions: Questions) -> bool:
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
