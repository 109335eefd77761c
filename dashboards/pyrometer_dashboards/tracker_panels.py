"""Panels that lead from a run to its pages in trackers, and say whose time its steps have."""

from __future__ import annotations

from pyrometer_dashboards import panels
from pyrometer_dashboards.model import Panel, Reading

# The exporter lets only web addresses through.
PAGE_OF_ROW = ("Open ${__data.fields.page}", "${__data.fields.address:raw}")


def pages(run_is: str) -> Panel:
    """Return the run's pages in W&B, MLflow and others."""
    return panels.table(
        "The run in other tools",
        Reading(
            "Pages of the run that the job gave (links=), or that W&B and MLflow have open in it.",
            "one row per attempt and tracker.",
            "Without a row: pass links={...} to the client, or open the tracker before the first steps.",
        ),
        f"max by (attempt, name, url) (last_over_time(pyrometer_train_run_link_info{{{run_is}}}[$__range]))",
        {"attempt": "attempt", "name": "page", "url": "address"},
        link=PAGE_OF_ROW,
        no_value="no page given",
        span=16,
    )


def timing(run_is: str) -> Panel:
    """Return whose time the run's batches have."""
    return panels.table(
        "Whose time steps have",
        Reading(
            "device: the GPU's, by CUDA events. host: no GPU runs behind it. launch: a batch is the mean from one wait "
            "for the GPU to the next.",
            "device on a GPU.",
            "launch hides a slow step in a mean: see the manual, Whose time a step has.",
        ),
        f"max by (attempt, timing) (last_over_time(pyrometer_train_timing_info{{{run_is}}}[$__range]))",
        {"attempt": "attempt", "timing": "timing"},
    )
