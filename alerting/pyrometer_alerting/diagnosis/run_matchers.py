"""The label matchers of one run: its name and its job."""

from __future__ import annotations

from pyrometer_kit.promql import any_of, quoted


def matchers(cluster: str, run: str, job_id: str = "") -> list[str]:
    """Return the matchers of a run; without a job, of all of its name.

    Series without a job count for each: exporters until 0.2.0 have none, nor has what was recorded of them.
    """
    named = [f"cluster={quoted(cluster)}", f"run={quoted(run)}"]
    return [*named, f"job_id=~{quoted(any_of([job_id]) + '|')}"] if job_id else named


def selected(cluster: str, run: str, job_id: str = "") -> str:
    """Return the matchers of a run, in braces."""
    return "{" + ",".join(matchers(cluster, run, job_id)) + "}"
