"""Compute what a drop costs: GPU-hours that were paid for but did not train.

    lost = GPUs x (elapsed - sum of MFU x step seconds / expected MFU)

over all batches since the drop began, each with its own MFU and duration. Time between two batches in which nothing ran
counts in full. Batches tagged checkpoint, eval, warmup, ramp or restart are left out on both sides: they would have
been needed anyway. A batch above the expected MFU counts against the loss, so that noise does not add up. The last ten
minutes are counted again each time: batches that come late take back what was counted while they were missing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from pyrometer_alerting.diagnosis.batches import Floats, batches
from pyrometer_alerting.diagnosis.run_matchers import selected
from pyrometer_alerting.model.incident import Cost
from pyrometer_kit.prometheus import Prometheus

LONGEST_SECONDS = 6 * 3600.0  # per query; an older incident continues from the last count
SETTLED_SECONDS = 600.0  # after which no batch is expected any more: an exporter that was away serves its ring again
EARLIER_SECONDS = 60.0  # a beginning that turns out to be this much earlier is counted from


def add_up(
    prometheus: Prometheus,
    cluster: str,
    run: str,
    *,
    known: Cost | None,
    begin: float,
    end: float,
    expected: float,
    gpus: int,
    stands: bool = False,
    job_id: str = "",
) -> Cost:
    """Return the cost from `begin` to `end`, continuing from `known` unless the trouble began earlier than known then.

    It is counted up to the newest batch, or up to the end if the run has stopped.

    Raises:
        PrometheusError: a query failed.
    """
    if known is None or (known.since is not None and begin < known.since - EARLIER_SECONDS):
        known = Cost(0.0, gpus, expected, begin, since=begin, settled_until=begin)
    known = settled_at(known, known.until) if known.settled_until is None else known
    start = max(known.settled_until or begin, end - LONGEST_SECONDS)
    # The batch before the first one is its start.
    frame = batches(prometheus, cluster, run, start - 60, end, job_id=job_id)
    frame = frame.merge(_seconds(prometheus, selected(cluster, run, job_id), start - 60, end), on="at", how="left")
    lost, until = lost_seconds(frame, expected, start, end, stands=stands)
    hours = max(known.settled + gpus * lost / 3600, 0.0)
    certain, settled_until = lost_seconds(frame, expected, start, end - SETTLED_SECONDS, stands=False)
    settled = known.settled + gpus * certain / 3600
    told = replace(known, gpu_hours=hours, gpus=gpus, expected=expected, until=until)
    return replace(told, settled=settled, settled_until=settled_until)


def settled_at(known: Cost, at: float) -> Cost:
    """Return the cost with all of it settled, to be counted on from a time."""
    return replace(known, settled=known.gpu_hours, settled_until=at, until=max(known.until, at))


def lost_seconds(
    frame: pd.DataFrame, expected: float, start: float, end: float, *, stands: bool
) -> tuple[float, float]:
    """Return (seconds lost by one GPU, time up to which they are counted) of batches with at, mfu, tagged, seconds."""
    counted = frame[(frame["at"] > start) & (frame["at"] <= end)]
    if counted.empty:
        return (end - start, end) if stands else (0.0, start)
    at = counted["at"].to_numpy(dtype=float)
    elapsed = np.diff(at, prepend=start)
    seconds = counted["seconds"].fillna(pd.Series(elapsed, index=counted.index)).to_numpy(dtype=float)
    took = np.minimum(seconds * _steps(counted), elapsed)
    worth = counted["mfu"].to_numpy(dtype=float) * took / expected
    clean = ~counted["tagged"].to_numpy(dtype=bool)
    lost = float((elapsed - worth)[clean].sum())
    newest = float(at[-1])
    return (lost + end - newest, end) if stands else (lost, newest)


def _steps(counted: pd.DataFrame) -> Floats:
    """Return how many steps each batch stands for: those before it whose points are late or lost ran as well."""
    if "step" not in counted.columns:
        return np.ones(len(counted))
    attempt = counted["attempt"] if "attempt" in counted.columns else pd.Series(0, index=counted.index)
    return counted.groupby(attempt)["step"].diff().fillna(1.0).clip(lower=1.0).to_numpy(dtype=float)


def _seconds(prometheus: Prometheus, run: str, start: float, end: float) -> pd.DataFrame:
    """Return how long each batch took, by its end."""
    where = f"{run}[{max(round(1000 * (end - start)), 1)}ms]"
    series_list = prometheus.instant(f"pyrometer_train_batch_step_seconds{where}", end)
    points = [point for series in series_list for point in series.points]
    return pd.DataFrame(points, columns=["at", "seconds"]).drop_duplicates("at")
