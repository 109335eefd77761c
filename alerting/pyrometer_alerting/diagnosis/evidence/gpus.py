"""Facts about GPUs: clock-event reasons, clocks, temperatures and power limits, each against its peers and its past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyrometer_alerting.diagnosis.look import (
    MOST_SUSPECTS,
    Crossing,
    Kind,
    Look,
    Points,
    Query,
    Questions,
    Subject,
    crossing,
    increments,
    middle,
    percent_of,
    since,
    slopes,
)
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import clock_utc
from pyrometer_kit.prometheus import Series
from pyrometer_kit.promql import matching, quoted

# A faulty GPU spends time under these and a healthy one under load none.
SLOWDOWNS = ("hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown")
# A healthy GPU spends time under these too: they say something against its peers and its own past only.
LIMITS = ("clocks_setting", "power_cap", "board_limit", "reliability")
NAME = "pyrometer_gpu_clock_event_seconds_total"
CLOCK_SECONDS = 60  # over which clocks and shares are judged: four scrapes of 15 s
QUIET_SECONDS = 45.0  # three scrapes of 15 s without an increment: it is over
MUCH_MORE = 0.25  # of the time, as the rule GpuPowerCapOutlier has it
LOW_CLOCK = 0.93  # of its peers' or of its own before: GPUs of one model differ by a few per cent
LOWER_LIMIT = 0.98
HOT_CELSIUS = 80.0
CLEARLY = 0.98  # of the peers' clock: of a part that is half of the run the median is nearly its own

Gpu = tuple[str, ...]


def slowdowns(questions: Questions) -> Look:
    """Return the GPUs that spent time under a slowing reason, and since when."""
    window = questions.since("slowdowns")
    where = questions.of_nodes(matching("reason", SLOWDOWNS))
    risen = questions.instant(f"increase({NAME}{where}[{window:.0f}s]) > 0.5")
    if not risen:
        return Look(kinds=frozenset(SLOWDOWNS))
    worst = sorted(risen, key=lambda series: -series.points[-1][1])[:MOST_SUSPECTS]
    asked = {(series.labels.get("node", ""), series.labels.get("gpu", "")) for series in worst}
    nodes = sorted({node for node, _gpu in asked})
    query = f"{NAME}{questions.of_nodes(matching('reason', SLOWDOWNS), nodes=nodes)}[{window:.0f}s]"
    facts = [fact for series in questions.instant(query) if (fact := _stretch(series)) is not None]
    mine = [fact for fact in facts if _is_mine(fact.labels, questions)]
    return Look(tuple(_compared(fact, mine, questions) for fact in mine), frozenset(SLOWDOWNS))


def _stretch(series: Series) -> Fact | None:
    """Return the last stretch of a counter of seconds: the first increment is more precise than its sample."""
    rises = increments(series.points)
    if not rises:
        return None
    start = len(rises) - 1
    while start > 0 and rises[start][1] - rises[start - 1][1] <= CLOCK_SECONDS:
        start -= 1
    before, first, rise = rises[start]
    last = rises[-1][1]
    began = max(before, first - rise)
    seconds = sum(amount for _before, _at, amount in rises[start:])
    labels = {name: series.labels.get(name, "") for name in ("node", "gpu")}
    reason = series.labels.get("reason", "")
    return Fact(
        reason,
        labels,
        began=began,
        precision=began - before,
        chronic=before == series.points[0][0] and rise >= 0.5 * (first - before),
        ended=last if series.points[-1][0] - last > QUIET_SECONDS else None,
        strength=min(seconds / max(last - began, 1.0), 1.0),
        value=seconds,
        base=series.points[-1][1] - seconds,
        read_at=series.points[-1][0],
        peers=0.0,
        source=f"{NAME}{{node={quoted(labels['node'])},gpu={quoted(labels['gpu'])},reason={quoted(reason)}}}",
    )


def _compared(fact: Fact, facts: list[Fact], questions: Questions) -> Fact:
    """Add the share of the run's other GPUs that are slowed down for the same reason."""
    others = sum(one.kind == fact.kind and one.ended is None for one in facts) - 1
    return replace(fact, peers=max(others, 0) / max(questions.roster.reporting - 1, 1))


def limits(questions: Questions) -> Look:
    """Return the GPUs that are held by a limit for much more of the time than before the drop, or than their peers."""
    where = questions.of_nodes(matching("reason", LIMITS))
    keys = ("node", "gpu", "reason")
    query = f"max by (node, gpu, reason) (rate({NAME}{where}[{CLOCK_SECONDS}s]))"
    now, before = questions.values(query, keys), questions.values(query, keys, questions.before)
    facts: list[Fact] = []
    for reason in LIMITS:
        shares = {
            key: share for key, share in now.items() if key[2] == reason and _place(key) and _listed(key, questions)
        }
        usual = middle(shares.values())
        odd = {key: share for key, share in shares.items() if _is_odd(share, before.get(key), usual)}
        facts += [_limit(key, share, before.get(key), usual) for key, share in odd.items()]
    return Look(_dated(facts, questions), frozenset(LIMITS))


def _is_odd(share: float, before: float | None, usual: float | None) -> bool:
    more_than_before = before is not None and share > before + MUCH_MORE
    more_than_peers = usual is not None and share > usual + MUCH_MORE
    return more_than_before or (more_than_peers and before is None) or (more_than_peers and share > 2 * MUCH_MORE)


def _limit(key: Gpu, share: float, before: float | None, usual: float | None) -> Fact:
    node, gpu, reason = key
    return Fact(
        reason,
        {"node": node, "gpu": gpu},
        chronic=before is not None and share <= before + MUCH_MORE,
        strength=min(share, 1.0),
        value=share,
        peers=usual,
        before=before,
        source=f"rate({NAME}{{node={quoted(node)},gpu={quoted(gpu)},reason={quoted(reason)}}}[{CLOCK_SECONDS}s])",
    )


def _dated(facts: list[Fact], questions: Questions) -> tuple[Fact, ...]:
    """Add the onsets: the stored samples of the counters, for the suspects only."""
    fresh = [fact for fact in facts if not fact.chronic]
    if not fresh:
        return tuple(facts)
    nodes = sorted({fact.labels["node"] for fact in fresh[:MOST_SUSPECTS]})
    reasons = sorted({fact.kind for fact in fresh})
    window = questions.since("limits")
    query = f"{NAME}{questions.of_nodes(matching('reason', reasons), nodes=nodes)}[{window:.0f}s]"
    points = {
        (series.labels.get("reason", ""), series.labels.get("node", ""), series.labels.get("gpu", "")): series.points
        for series in questions.instant(query)
    }
    return tuple(
        _with_onset(fact, points.get((fact.kind, fact.labels["node"], fact.labels["gpu"]), ())) for fact in facts
    )


def _with_onset(fact: Fact, counter: Points) -> Fact:
    """Return the fact with the time at which the counter's slope rose to its present one."""
    if fact.chronic or fact.value is None:
        return fact
    rose = crossing(slopes(counter), (fact.value + (fact.before or 0.0)) / 2)
    return fact if rose is None else _at(fact, rose)


def _at(fact: Fact, found: Crossing) -> Fact:
    if found.chronic:  # the stored samples do not reach back to the change, if there was one
        return replace(fact, chronic=fact.before is None)
    return replace(fact, began=found.at - found.precision / 2, precision=found.precision)


def clocks(questions: Questions) -> Look:
    """Return GPUs whose clock is lower than their peers' or than before the drop, and hot ones.

    Means of the last minute, of slowed GPUs the lowest value: present values would mislead, as a GPU that cools has its
    clock back before the batches show it.
    """
    where = questions.of_nodes()
    keys, by = ("node", "gpu"), "max by (node, gpu)"
    clock = f"DCGM_FI_DEV_SM_CLOCK{where}[{CLOCK_SECONDS}s]"
    mean = questions.values(f"{by} (avg_over_time({clock}))", keys)
    before = questions.values(f"{by} (avg_over_time(DCGM_FI_DEV_SM_CLOCK{where}[5m]))", keys, questions.before)
    celsius = questions.values(f"{by} (max_over_time(DCGM_FI_DEV_GPU_TEMP{where}[{CLOCK_SECONDS}s]))", keys)
    slowed = {(fact.labels.get("node"), fact.labels.get("gpu")) for fact in questions.found if fact.kind in SLOWDOWNS}
    lowest = questions.values(f"{by} (min_over_time({clock}))", keys) if slowed else {}
    mean |= {place: value for place, value in lowest.items() if place in slowed}
    listed = {place: value for place, value in mean.items() if _listed(place, questions)}
    low = [fact for place in listed if (fact := _slow_clock(place, listed, before)) is not None]
    hot = [_temperature(place, value, celsius) for place, value in celsius.items() if _listed(place, questions)]
    known = [fact for fact in hot if (fact.labels["node"], fact.labels["gpu"]) in slowed or fact.strength > 0]
    suspects = sorted(low, key=lambda fact: -fact.strength)[:MOST_SUSPECTS]
    fallen = _with_fall(suspects, questions, "DCGM_FI_DEV_SM_CLOCK", questions.since("clocks"))
    return Look((*fallen, *known[:MOST_SUSPECTS]), frozenset({"clock_low", "celsius"}))


def _slow_clock(place: Gpu, mean: Mapping[Gpu, float], before: Mapping[Gpu, float]) -> Fact | None:
    others = middle(value for other, value in mean.items() if other != place)
    past, now = before.get(place), mean[place]
    below_peers = others is not None and len(mean) >= 4 and now < LOW_CLOCK * others
    below_past = past is not None and now < LOW_CLOCK * past
    if not below_peers and not below_past:
        return None
    usual = max(value for value in (others if below_peers else None, past if below_past else None) if value is not None)
    return Fact(
        "clock_low",
        {"node": place[0], "gpu": place[1]},
        chronic=past is not None and not below_past,
        strength=min((1 - now / usual) / 0.3, 1.0),  # a third less: what hardware slowdown takes
        value=now,
        peers=others,
        before=past,
        source=f"avg_over_time(DCGM_FI_DEV_SM_CLOCK{{node={quoted(place[0])},gpu={quoted(place[1])}}}[{CLOCK_SECONDS}s])",
    )


def _with_fall(facts: Sequence[Fact], questions: Questions, family: str, window: float) -> Iterator[Fact]:
    """Yield the facts with the onset of those that fell, from the stored samples of their nodes."""
    fell = [fact for fact in facts if fact.before is not None and fact.value is not None and not fact.chronic]
    nodes = sorted({fact.labels["node"] for fact in fell})
    stored = questions.instant(f"{family}{questions.of_nodes(nodes=nodes)}[{window:.0f}s]") if nodes else []
    points = {(series.labels.get("node", ""), series.labels.get("gpu", "")): series.points for series in stored}
    for fact in facts:
        found = None
        if fact.before is not None and fact.value is not None and not fact.chronic:
            place = (fact.labels["node"], fact.labels["gpu"])
            found = crossing(points.get(place, ()), (fact.value + fact.before) / 2, above=False)
        yield fact if found is None else _at(fact, found)


def _temperature(place: Gpu, value: float, all_of: Mapping[Gpu, float]) -> Fact:
    usual = middle(other for key, other in all_of.items() if key != place)
    hot = value >= HOT_CELSIUS and (usual is None or value > usual + 5)
    return Fact(
        "celsius",
        {"node": place[0], "gpu": place[1]},
        strength=1.0 if hot else 0.0,
        value=value,
        peers=usual,
        source=f"DCGM_FI_DEV_GPU_TEMP{{node={quoted(place[0])},gpu={quoted(place[1])}}}",
    )


def power_limits(questions: Questions) -> Look:
    """Return the GPUs whose power limit in force is lower than before the drop, or than their peers'."""
    keys = ("node", "gpu")
    query = f"max by (node, gpu) (DCGM_FI_DEV_ENFORCED_POWER_LIMIT{questions.of_nodes()})"
    now, before = questions.values(query, keys), questions.values(query, keys, questions.before)
    listed = {place: value for place, value in now.items() if _listed(place, questions)}
    usual = middle(listed.values())
    facts = []
    for place, value in listed.items():
        past = before.get(place)
        lowered = past is not None and value < LOWER_LIMIT * past
        if not lowered and not (usual is not None and value < LOWER_LIMIT * usual):
            continue
        reference = past if lowered and past is not None else usual or value
        name = f"DCGM_FI_DEV_ENFORCED_POWER_LIMIT{{node={quoted(place[0])},gpu={quoted(place[1])}}}"
        strength = min((1 - value / reference) / 0.3, 1.0)
        facts.append(
            Fact(
                "power_limit",
                {"node": place[0], "gpu": place[1]},
                chronic=past is not None and not lowered,
                strength=max(strength, 0.3),
                value=value,
                peers=usual,
                before=past,
                source=name,
            )
        )
    fallen = _with_fall(facts, questions, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", questions.since("power_limits"))
    return Look(tuple(fallen), frozenset({"power_limit"}))


def _place(key: Gpu) -> bool:
    return bool(key[0] and key[1])


def _listed(key: Gpu, questions: Questions) -> bool:
    """Return whether the GPU is one of the run's."""
    return key[1] in questions.roster.gpus.get(key[0], ())


def _is_mine(labels: Mapping[str, str], questions: Questions) -> bool:
    return labels.get("gpu", "") in questions.roster.gpus.get(labels.get("node", ""), ())


def _slowdown(fact: Fact) -> str:
    return _slowed(fact, KINDS[fact.kind].name if fact.kind == "hw_slowdown" else "throttled")


def _slowdowns(fact: Fact) -> str:
    return _slowed(fact, KINDS[fact.kind].name)


def _slowed(fact: Fact, reason: str) -> str:
    until = fact.ended if fact.ended is not None else fact.read_at if fact.read_at is not None else fact.seen_at
    share = min((fact.value or 0.0) / max(until - (fact.began or until), 1.0), 1.0)
    began = f"since before {clock_utc(fact.began)}" if fact.chronic and fact.began is not None else since(fact)
    if fact.ended is not None and fact.began is not None:
        return f"{reason} {percent_of(share)} of the time from {clock_utc(fact.began)} to {clock_utc(fact.ended)}"
    return f"{reason} {percent_of(share)} of the time {began}"


def _share(fact: Fact) -> str:
    compared = [f"{percent_of(fact.before)} before the drop" if fact.before is not None else ""]
    compared.append(f"{percent_of(fact.peers)} the median of the run" if fact.peers is not None else "")
    against = ", ".join(piece for piece in compared if piece)
    began = f", more {since(fact)}" if fact.began is not None and not fact.chronic else ""
    tense = "" if fact.ended is None else f", until {clock_utc(fact.ended)}"
    minute = "the last minute" if fact.ended is None else "its last minute"
    held = f"{KINDS[fact.kind].name} {percent_of(fact.value or 0.0)} of {minute}{began}{tense}"
    return f"{held} ({against})" if against else held


def _low_clock(fact: Fact) -> str:
    if fact.value is None:
        return ""
    lower = [f"{fact.before:.0f} MHz before the drop" if fact.before is not None and fact.value < fact.before else ""]
    lower.append(
        f"{fact.peers:.0f} MHz, the median of the run's other GPUs"
        if fact.peers is not None and fact.value < CLEARLY * fact.peers
        else ""
    )
    against = " and ".join(piece for piece in lower if piece)
    return f"SM clock down to {fact.value:.0f} MHz against {against}" if against else ""


def _power_limit(fact: Fact) -> str:
    if fact.value is None:
        return ""
    if fact.before is not None and fact.value < fact.before:
        began = f", more {since(fact)}" if fact.began is not None and not fact.chronic else ""
        return f"power limit {fact.value:.0f} W{began} instead of {fact.before:.0f} W before the drop"
    usual = f", {fact.peers:.0f} W the median of the run" if fact.peers is not None else ""
    return f"power limit {fact.value:.0f} W{usual}"


def _celsius(fact: Fact) -> str:
    if fact.strength <= 0 or fact.value is None:
        return ""
    usual = f", {fact.peers:.0f} \u00b0C the median of the run" if fact.peers is not None else ""
    return f"{fact.value:.0f} \u00b0C{usual}"


def _power_title(facts: Sequence[Fact]) -> str:
    return "power limit below its peers'" if facts[0].chronic else KINDS["power_limit"].name


_slow = partial(Kind, "throttle", says=_slowdown, says_of_several=_slowdowns, of_place=True)
_held = partial(Kind, "throttle", says=_share)
KINDS: Mapping[str, Kind] = {
    "hw_thermal": _slow("hardware thermal throttling", 0.47, runbook="GpuThrottledThermal"),
    "hw_power_brake": _slow("power brake", 0.85, runbook="GpuThrottledPowerBrake"),
    "hw_slowdown": _slow("hardware slowdown", 0.44, runbook="GpuThrottledHardware"),
    "sw_thermal": _slow("software thermal throttling", 0.54, runbook="GpuThrottledThermal"),
    "power_limit": Kind(
        "throttle",
        "power limit lowered",
        0.94,
        says=_power_limit,
        title=_power_title,
        of_place=True,
        runbook="GpuLimitLowered",
    ),
    "clocks_setting": _held("clocks held down by a setting", 0.53, of_node=True, runbook="GpuLimitLowered"),
    "power_cap": _held("held by the power cap", -0.2, of_node=True, runbook="GpuPowerCapOutlier"),
    "board_limit": _held("held by the board's limit", 0.2, runbook="GpuPowerCapOutlier"),
    "reliability": _held("held by the voltage limit", -0.5, runbook="A voltage limit"),
    "clock_low": Kind(
        "clock", "low SM clock", 0.3, says=_low_clock, extreme=min, of_place=True, runbook="GpuClockOutlier"
    ),
    "celsius": Kind("context", "", -9.0, says=_celsius, extreme=max),
}
SUBJECT = Subject(
    1,
    KINDS,
    (
        Query(slowdowns, "throttling", first_look=1),
        Query(clocks, "clocks", first_look=4),
        Query(limits, "power caps"),
        Query(power_limits, "power limits", first_look=3),
    ),
)
