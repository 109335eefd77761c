"""The series of a world, with the names and labels that the exporters and node_exporter serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyrometer_simulator import vocabulary
from pyrometer_simulator.incidents.cluster import GPUS, LEAF_NODES
from pyrometer_simulator.incidents.remote_write import Batch
from pyrometer_simulator.incidents.training import CHECKPOINT, EVAL, GC, PARTS, WAIT, Attempt, simulate
from pyrometer_simulator.incidents.world import REASONS, RESOURCES, World

Floats = npt.NDArray[np.float64]
Column = tuple[dict[str, str], Floats]
JOB = {"job_id": str(vocabulary.JOB)}  # of the run, on all of its series
CRITICAL_XIDS = ("48", "74", "79", "95")
EVENT_KINDS = ("oom_kill", "machine_check", "pcie_aer", "sxid", "nvme", "link", "soft_lockup", "other")


def series_of(world: World) -> tuple[Batch, list[Attempt]]:
    """Return all series of a world, and the attempts of its run."""
    layout = world.layout
    attempts = simulate(layout, world.script, world.begin - 300.0, world.end, world.random)
    world.attempts = attempts
    batch = Batch()
    for node in range(len(layout.names)):
        columns = [*_gpus(world, node), *_ports(world, node), *_kernel(world, node), *_own(world, node)]
        for attempt in attempts:
            if node in attempt.nodes:
                columns += _ranks(world, attempt, node)
        _target(batch, world, node, columns)
        if layout.hosts:
            _host(batch, world, node)
    _fabric(batch, world)
    for attempt in attempts:
        _batches(batch, world, attempt)
    return batch, attempts


def _target(batch: Batch, world: World, node: int, columns: list[Column]) -> None:
    at, answers = world.times[:, node], world.answers[:, node]
    target = world.layout.target(node)
    values = np.column_stack([column for _labels, column in columns])
    values[~answers] = np.nan
    batch.add_target([{**target, **labels} for labels, _column in columns], at, values)
    batch.add({**target, "__name__": "up"}, at, answers.astype(float))
    batch.add({**target, "__name__": "scrape_duration_seconds"}, at, np.full(len(at), 0.008))


def _own(world: World, node: int) -> Iterator[Column]:
    ones = np.ones(len(world.grid))
    for collector in ("gpu", "nic", "train", "kernel"):
        yield {"__name__": "pyrometer_collector_success", "collector": collector}, ones
    for source in ("pci", "nvml"):
        yield {"__name__": "pyrometer_gpus_present", "source": source}, GPUS * ones
    for lost, gpu, reason, begin, end in world.down_reasons:
        if lost == node:
            labels = {"collector": "gpu", "part": str(gpu), "reason": reason}
            yield {"__name__": "pyrometer_down_reason_info", **labels}, _where(world.between(node, begin, end), 1.0)


def _gpus(world: World, node: int) -> Iterator[Column]:
    for gpu in range(GPUS):
        up = world.gpu_up[:, node, gpu]
        for labels, values in _gpu(world, node, gpu):
            lost = labels["__name__"] not in ("pyrometer_gpu_up", "pyrometer_gpu_xid_errors_total") and (up < 1).any()
            yield labels, np.where(up < 1, np.nan, values) if lost else values


def _gpu(world: World, node: int, gpu: int) -> Iterator[Column]:
    ones = np.ones(len(world.grid))
    elapsed = world.times[:, node] - world.begin
    own, dcgm = vocabulary.gpu(node, gpu), vocabulary.dcgm(node, gpu, world.layout.names[node])
    here = np.s_[:, node, gpu]
    gauges = {
        "DCGM_FI_DEV_SM_CLOCK": world.clock[here], "DCGM_FI_DEV_GPU_TEMP": world.celsius[here],
        "DCGM_FI_DEV_POWER_USAGE": np.round(world.watts[here], 1), "DCGM_FI_DEV_GPU_UTIL": world.util[here],
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": world.limit[here], "DCGM_FI_DEV_MAX_SM_CLOCK": 1980 * ones,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": world.tensor[here], "DCGM_FI_DEV_PCIE_LINK_WIDTH": world.width[here],
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16 * ones, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": world.ecc[here],
    }  # fmt: skip
    yield from (({"__name__": name, **dcgm}, values) for name, values in gauges.items())
    yield {"__name__": "pyrometer_gpu_up", **own}, world.gpu_up[here]
    yield {"__name__": "pyrometer_gpu_info", **vocabulary.gpu_info(node, gpu)}, ones
    job = vocabulary.JOB if node in world.layout.members else 815
    yield {"__name__": "pyrometer_gpu_job_info", **vocabulary.gpu_job(node, gpu, job)}, ones
    clocks = {**own, "__name__": "pyrometer_gpu_clock_event_seconds_total"}
    yield from (({**clocks, "reason": reason}, np.round(world.held[reason][here], 3)) for reason in REASONS)
    yield {"__name__": "pyrometer_gpu_nvlinks_up", **own}, world.nvlinks[here]
    yield {"__name__": "pyrometer_gpu_recovery_action", **own}, world.recovery[here]
    yield {"__name__": "pyrometer_gpu_energy_joules_total", **own}, np.round(630 * elapsed)
    yield from _xids(world, node, gpu, own)


def _xids(world: World, node: int, gpu: int, own: dict[str, str]) -> Iterator[Column]:
    zeros = np.zeros(len(world.grid))
    mine = {key[2:]: values for key, values in world.xids.items() if key[:2] == (node, gpu)}
    critical = sum((values for (_xid, kind), values in mine.items() if kind == "critical"), zeros)
    yield {"__name__": "pyrometer_gpu_xid_critical_errors_total", **own}, critical
    for xid in CRITICAL_XIDS:
        mine.setdefault((xid, "critical"), zeros)
    for (xid, kind), values in mine.items():
        # Codes that are not known as critical appear with their first event.
        shown = values if kind == "critical" else np.where(values > 0, values, np.nan)
        yield {"__name__": "pyrometer_gpu_xid_errors_total", **own, "xid": xid, "class": kind}, shown


def _ports(world: World, node: int) -> Iterator[Column]:
    state, elapsed = world.ports, world.times[:, node] - world.begin
    busy = 14e9 if node in world.layout.members else 3e9
    for port in range(world.layout.ports):
        where = vocabulary.port(port)
        here = np.s_[:, node, port]
        up = state.up[here]
        values = {
            "pyrometer_nic_link_up": up,
            "pyrometer_nic_expected_up": np.ones(len(up)),
            "pyrometer_nic_link_rate_bits_per_second": np.where(up > 0, state.rate[here], np.nan),
            "pyrometer_nic_link_rate_max_bits_per_second": np.full(len(up), 4e11),
            "pyrometer_nic_link_down_events_total": state.downs[here],
            "pyrometer_nic_link_last_down_timestamp_seconds": state.last_down[here],
            "pyrometer_nic_symbol_error_total": state.symbols[here],
            "pyrometer_nic_port_transmit_wait_total": np.round(
                np.cumsum(state.wait_rate[here]) * world.layout.interval
            ),
            "pyrometer_nic_port_data_received_bytes_total": np.round(busy * elapsed),
            "pyrometer_nic_port_data_transmitted_bytes_total": np.round(busy * elapsed),
        }
        yield from (({"__name__": name, **where}, column) for name, column in values.items())
        yield {"__name__": "pyrometer_nic_info", **vocabulary.nic_info(node, port)}, np.ones(len(up))


def _kernel(world: World, node: int) -> Iterator[Column]:
    zeros = np.zeros(len(world.grid))
    for kind in EVENT_KINDS:
        yield {"__name__": "pyrometer_kernel_events_total", "kind": kind}, world.kernel.get((node, kind), zeros)
    for severity in ("fatal", "non_fatal"):
        errors = world.sxids.get(node, zeros) if severity == "fatal" else zeros
        yield {"__name__": "pyrometer_nvswitch_errors_total", "severity": severity}, errors


def _host(batch: Batch, world: World, node: int) -> None:
    target = world.layout.target(node, "host")
    columns = np.column_stack([world.pressure[name][:, node] for name in RESOURCES])
    names = [{**target, "__name__": f"node_pressure_{name}_waiting_seconds_total"} for name in RESOURCES]
    batch.add_target(names, world.times[:, node], columns)


def _fabric(batch: Batch, world: World) -> None:
    layout = world.layout
    target = {"cluster": layout.cluster, "instance": "monitoring:9936", "job": "cluster"}
    series = []
    for node, name in enumerate(layout.names):
        for port in range(layout.ports):
            switch = (layout.switch(node, port), str(node % LEAF_NODES + 1)) if layout.fabric else ()
            labels = vocabulary.fabric_port(name, port, *switch)
            series.append({"__name__": "pyrometer_fabric_port_info", **target, **labels})
    batch.add_target(series, world.grid, np.ones((len(world.grid), len(series))))


def _ranks(world: World, attempt: Attempt, node: int) -> list[Column]:
    layout, place = world.layout, attempt.nodes.index(node)
    at = world.times[:, node]
    done = np.searchsorted(attempt.ends, at, side="right")
    alive = (at >= attempt.begin) & (at < (np.inf if attempt.over is None else attempt.over))
    sums = np.zeros((len(attempt.ends) + 1, GPUS, len(PARTS)))
    np.cumsum(attempt.parts[:, place * GPUS : (place + 1) * GPUS], axis=0, dtype=float, out=sums[1:])
    scrapes = _Scrapes(attempt, at, done, alive)
    columns: list[Column] = []
    for gpu in range(GPUS):
        rank = place * GPUS + gpu
        labels = vocabulary.rank(layout.run, attempt.number, rank)
        columns += _rank(scrapes, labels, sums[:, gpu])
        place_of = vocabulary.rank_place(node, gpu, layout.stage(rank), layout.replica(rank))
        columns.append(({"__name__": "pyrometer_train_rank_info", **labels, **place_of}, _where(alive, 1.0)))
        columns += _current(scrapes, labels, rank)
    if place == 0:
        columns += _configurations(world, attempt, at, alive)
        if world.script.given:
            given = {"run": layout.run, "attempt": str(attempt.number), **JOB}
            columns.append(({"__name__": "pyrometer_train_expected_mfu_ratio", **given}, _where(alive, layout.mfu)))
    return columns


def _where(alive: npt.NDArray[np.bool_], value: float | Floats) -> Floats:
    return np.where(alive, value, np.nan)


@dataclass(frozen=True)
class _Scrapes:
    """A node's scrapes of an attempt: when, how many steps were done, and whether it was there."""

    attempt: Attempt
    at: Floats
    done: npt.NDArray[np.intp]
    alive: npt.NDArray[np.bool_]


def _rank(scrapes: _Scrapes, labels: dict[str, str], sums: Floats) -> list[Column]:
    attempt, done, alive = scrapes.attempt, scrapes.done, scrapes.alive
    began = done > 0
    ends = np.concatenate([[np.nan], attempt.ends])[done]
    values: dict[str, npt.NDArray[Any]] = {
        "pyrometer_train_steps_total": done.astype(np.float64),
        "pyrometer_train_step_seconds_total": np.round(sums.sum(axis=1)[done], 4),
        "pyrometer_train_tokens_total": done * 65536.0,
        "pyrometer_train_last_step_timestamp_seconds": np.where(began, np.round(ends, 3), np.nan),
        "pyrometer_train_last_step": np.where(began, attempt.first_step + done - 1.0, np.nan),
    }
    columns: list[Column] = [({"__name__": name, **labels}, _where(alive, each)) for name, each in values.items()]
    for part, name in enumerate(PARTS):
        total = sums[:, part]
        if part in (CHECKPOINT, EVAL, GC) and total[-1] == 0:
            continue
        shown = np.where(total[done] > 0, np.round(total[done], 4), np.nan)  # parts never named are absent
        columns.append(
            ({"__name__": "pyrometer_train_step_part_seconds_total", **labels, "part": name}, _where(alive, shown))
        )
    return columns + _collections(scrapes, labels, sums[:, GC])


def _collections(scrapes: _Scrapes, labels: dict[str, str], seconds: Floats) -> list[Column]:
    """Return the series on pauses of the garbage collector; absent from a rank that had none."""
    attempt, done, alive = scrapes.attempt, scrapes.done, scrapes.alive
    paused = np.diff(seconds) > 0.005
    if not paused.any():
        return []
    counts = np.concatenate([[0], np.cumsum(paused)])
    latest = np.concatenate([[-1], np.maximum.accumulate(np.where(paused, np.arange(len(paused)), -1))])
    steps = np.where(latest[done] >= 0, attempt.first_step + latest[done], np.nan)
    return [
        ({"__name__": "pyrometer_train_gc_pauses_total", **labels}, _where(alive, counts[done].astype(float))),
        ({"__name__": "pyrometer_train_gc_pause_seconds_total", **labels}, _where(alive, np.round(seconds[done], 4))),
        ({"__name__": "pyrometer_train_last_gc_step", **labels}, _where(alive, steps)),
    ]


def _current(scrapes: _Scrapes, labels: dict[str, str], rank: int) -> list[Column]:
    """Return in which part the rank is, for how long, and whether its process lives."""
    attempt, at, done, alive = scrapes.attempt, scrapes.at, scrapes.done, scrapes.alive
    starts = np.concatenate([[attempt.begin], attempt.ends])[done]
    stands = np.zeros(len(at), bool) if attempt.stopped is None else at >= attempt.stopped
    reached = np.cumsum(attempt.parts[np.minimum(done, len(attempt.parts) - 1), rank], axis=1, dtype=float)
    into = np.minimum(at - starts, reached[:, -1] - 1e-6)
    part = (reached <= into[:, None]).sum(axis=1).clip(0, WAIT)
    since = np.take_along_axis(np.pad(reached, ((0, 0), (1, 0))), part[:, None], axis=1)[:, 0]
    part = np.where(stands, attempt.held.get(rank, WAIT), part)
    seconds = np.where(stands, at - (attempt.stopped or 0.0), np.maximum(into - since, 0.0))
    dead = stands & (rank in attempt.gone)
    columns: list[Column] = [
        ({"__name__": "pyrometer_train_rank_up", **labels}, _where(alive, np.where(dead, 0.0, 1.0)))
    ]
    for number, name in enumerate(PARTS):
        mine = (part == number) & alive & ~dead
        if mine.any():
            column = np.where(mine, np.round(seconds, 3), np.nan)
            columns.append(({"__name__": "pyrometer_train_current_part_seconds", **labels, "part": name}, column))
    return columns


def _configurations(world: World, attempt: Attempt, at: Floats, alive: npt.NDArray[np.bool_]) -> Iterator[Column]:
    info = vocabulary.run_info(world.layout.run, attempt.number, world.layout.ranks)
    labels = {"__name__": "pyrometer_train_run_info", **info}
    changed, news = world.configured or (np.inf, {})
    yield labels, _where(alive & (at < changed), 1.0)
    if news:
        yield {**labels, **news}, _where(alive & (at >= changed), 1.0)


def _batches(batch: Batch, world: World, attempt: Attempt) -> None:
    """Add each batch as a sample of its own time, of the node of rank 0."""
    layout, node = world.layout, attempt.nodes[0]
    target = {**layout.target(node, "batches"), "run": layout.run, "attempt": str(attempt.number), **JOB}
    kept = attempt.ends >= world.begin
    at = attempt.ends[kept]
    durations = np.diff(np.concatenate([[attempt.begin], attempt.ends]))[kept]
    steps = attempt.first_step + np.flatnonzero(kept).astype(float)
    random = world.random
    values: dict[str, npt.NDArray[Any]] = {
        "mfu_ratio": np.round(attempt.mfu[kept] * (1 + 0.002 * random.standard_normal(len(at))), 5),
        "step_seconds": np.round(durations, 5),
        "step": steps,
        "loss": np.round(1.9 + 0.02 * random.standard_normal(len(at)), 5),
        "grad_norm": np.round(0.4 + 0.05 * random.standard_normal(len(at)), 5),
    }
    for name, column in values.items():
        batch.add({**target, "__name__": f"pyrometer_train_batch_{name}"}, at, column)
    tags = np.array(attempt.tags, dtype=object)[kept]
    for tag in sorted({each for each in attempt.tags if each}):
        mine = tags == tag
        batch.add({**target, "__name__": "pyrometer_train_batch_tag", "tag": tag}, at[mine], np.ones(int(mine.sum())))
