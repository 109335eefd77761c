"""Check what diagnoses and messages say against the world that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone

import numpy as np

from pyrometer_alerting.model.incident import Cause
from pyrometer_simulator.incidents.cluster import GPUS
from pyrometer_simulator.incidents.watch import Look, Watched
from pyrometer_simulator.incidents.world import Truth, World

PRECISION = 65.0  # two scrapes of 15 s, an evaluation and the smoothing of the onset's curve
LEAST_HOURS = 0.3  # of a GPU: less is told as nothing
WELL, WELL_SECONDS = (
    0.97,
    120.0,
)  # of the usual MFU, so long: an earlier spell that no rule reported has a cost of its own
_LOWER = re.compile(r"clock down to (\d+) MHz against (\d+) MHz(?: before the drop and (\d+) MHz)?")
_OF_RUN = re.compile(r"(\d+) of the run's (?:other )?(\d+) (GPUs|nodes)(?! there)")
_OTHERS = re.compile(r"(?:run's other|the other) (\d+) GPUs")
_OF_NODE = re.compile(r"(\d+) of its (\d+) GPUs")
_ROSTER = re.compile(r"(?:(\d+) of )?(\d+) GPUs (?:on|of) (\d+) nodes")
_SPENT = re.compile(r"throttled (\d+) s of (\d+) s")
_SHARE = re.compile(r"(\d+) % of (?:the time|the last minute|its last minute)")
_LATE = re.compile(r"began (\d+) (s|min|h) after the drop")
_ENDED = re.compile(r"stopped .+? ago|ended .+? before the drop|ended at|still slow after that")
_FLAPS = re.compile(r"link went down (\d+) times since (\d\d:\d\d:\d\d) UTC")
_SINCE = re.compile(r"(?:throttled|of the time) .*?since (\d\d:\d\d:\d\d) UTC")
_SILENT = re.compile(r"no data from (\S+) since")


def untrue(world: World, truth: Truth, watched: Watched) -> list[str]:
    """Return what is contradicted, each sentence once."""
    found: set[str] = set()
    for look in watched.looks:
        for cause in (*look.diagnosis.causes, *getattr(look.diagnosis, "seen", ())):
            found.update(_of_cause(world, truth, cause, look))
        texts = [text for cause in look.diagnosis.causes for text in (*cause.evidence, *cause.against)]
        for text in (*texts, *look.diagnosis.missing):
            found.update(_of_text(world, text))
    found.update(wrong for call in watched.calls for wrong in _of_text(world, call.text))
    found.update(_of_cost(world, watched))
    return sorted(found)


def _of_text(world: World, text: str) -> Iterator[str]:
    layout = world.layout
    whole = {"GPUs": layout.ranks, "nodes": layout.run_nodes}
    for match in _LOWER.finditer(text):
        if any(int(other) <= int(match[1]) for other in match.groups()[1:] if other):
            yield match[0]
    for match in _OF_RUN.finditer(text):
        if int(match[2]) != whole[match[3]] or int(match[1]) > int(match[2]):
            yield match[0]
    yield from (match[0] for match in _OTHERS.finditer(text) if int(match[1]) >= layout.ranks)
    yield from (match[0] for match in _OF_NODE.finditer(text) if not int(match[1]) <= int(match[2]) == GPUS)
    for match in _ROSTER.finditer(text):
        if (int(match[2]), int(match[3])) != (layout.ranks, layout.run_nodes) or int(match[1] or 0) > layout.ranks:
            yield match[0]
    yield from (match[0] for match in _SPENT.finditer(text) if int(match[1]) > int(match[2]))
    yield from (match[0] for match in _SHARE.finditer(text) if int(match[1]) > 100)
    for match in _SILENT.finditer(text):
        if match[1] in layout.names and not _was_silent(world, layout.names.index(match[1])):
            yield f"{match[0]}: it missed a scrape"
    if "the job does not name them" in text:
        yield "the job does not name them (run.part)"


def _was_silent(world: World, node: int) -> bool:
    """Return whether a node's exporter missed three scrapes in a row at some time: one or two are no news."""
    missed = ~world.answers[:, node]
    return bool((missed[2:] & missed[1:-1] & missed[:-2]).any())


def _of_cause(world: World, truth: Truth, cause: Cause, look: Look) -> Iterator[str]:
    """Yield what is said about the time of a cause and contradicted by when it was planted."""
    said = [*cause.evidence, *cause.against]
    first = cause is look.diagnosis.causes[0]  # further down may be what else there is on the part
    if first and cause.part in truth.exact and cause.labels and world.lasting and look.firing:
        yield from (f"{cause.part}: {text}" for text in cause.against if _LATE.search(text) or _ENDED.search(text))
    node = (cause.labels or {}).get("node", "")
    if node in world.layout.names and "device" in (cause.labels or {}):
        yield from _of_flaps(world, world.layout.names.index(node), (cause.labels or {})["device"], said, look)
    if node in world.layout.names:
        planted = [at for at, where in world.moments if where == world.layout.names.index(node)]
        for text in said:
            if (match := _SINCE.search(text)) and not _is_near(match[1], planted, look.at):
                yield f"{cause.part}: {match[0]}"


def _of_flaps(world: World, node: int, device: str, said: list[str], look: Look) -> Iterator[str]:
    for text in said:
        if match := _FLAPS.search(text):
            port = int(device.removeprefix("mlx5_"))
            before = world.times[:, node] <= look.at
            if int(match[1]) > world.ports.downs[before, node, port].max(initial=0.0):
                yield match[0]


def _is_near(clock: str, planted: list[float], now: float) -> bool:
    """Return whether a time of day is close to something that was planted on the node."""
    times = (datetime.fromtimestamp(at, tz=timezone.utc) for at in planted)
    hours, minutes, seconds = (int(each) for each in clock.split(":"))
    said = 3600 * hours + 60 * minutes + seconds
    apart = [abs(said - (each.hour * 3600 + each.minute * 60 + each.second)) for each in times]
    return not planted or now <= 0 or min(min(each, 86400 - each) for each in apart) <= PRECISION


def lost_gpu_hours(world: World, begin: float, end: float) -> float:
    """Return the GPU-hours that the run lost between two times against its healthy speed.

    Tagged batches, such as checkpoints, count as no loss, as docs/diagnosis.md has it.
    """
    layout = world.layout
    useful = 0.0
    for attempt in world.attempts:
        inside = (attempt.ends > begin) & (attempt.ends <= end)
        starts = np.concatenate([[attempt.begin], attempt.ends[:-1]])
        tagged = np.array([bool(tag) for tag in attempt.tags], dtype=bool)
        worth = np.where(tagged, 1.0, attempt.mfu / layout.mfu)
        useful += float(((attempt.ends - starts) * worth)[inside].sum())
    return max(end - begin - useful, 0.0) * layout.ranks / 3600.0


def loss_began(world: World, fired: float) -> float:
    """Return when the loss that was alerted on began: the fault, or its first spell after the run was well for long."""
    began = well_since = world.at
    for attempt in world.attempts:
        inside = (attempt.ends > world.at) & (attempt.ends <= fired)
        slow = attempt.ends[inside & (attempt.mfu < WELL * world.layout.mfu)]
        for at in slow:
            began = float(at) if at - well_since >= WELL_SECONDS else began
            well_since = float(at)
    return began


def _of_cost(world: World, watched: Watched) -> Iterator[str]:
    """Yield the last cost that was told if it is not within 25 % of what was lost since the loss began."""
    told = [look for look in watched.looks if look.diagnosis.cost]
    if not told or watched.webhook is None or world.truth_benign or world.script.restart is not None:
        return
    cost, begin = told[-1].diagnosis.cost, loss_began(world, watched.webhook)
    if cost is None or cost.until <= begin + 60.0:
        return
    lost = lost_gpu_hours(world, begin, cost.until)
    if abs(cost.gpu_hours - lost) > max(0.25 * lost, LEAST_HOURS):
        yield f"{cost.gpu_hours:.2f} GPU-hours lost, in truth {lost:.2f}"
