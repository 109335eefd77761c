"""Panels of one run: its MFU curve, what a crash would lose, where its time goes, and how many batches arrived."""

from __future__ import annotations

from dataclasses import replace

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.common import NODE_OF_SERIES, RUN_IS, recently
from pyrometer_dashboards.model import Override, Panel, Query, Reading


def waited_for(title: str, run: str, *, span: int) -> Panel:
    """Return the rank that all wait for: part of the time or, in a stopped run, permanently; or that died first."""
    silent = _at(f"0 * run:pyrometer_train_last_step:culprit{{{run}}} + 1")
    named = f'label_replace({silent}, "who", "$1 rank $2", "at", "(.*)/(.+)")'
    died = _at(f"0 * run:pyrometer_train_rank_end:first{{{run}}} + 1")
    dead = f'label_replace({died}, "who", "$1 rank $2 died first", "at", "(.*)/(.+)")'
    again = f"topk(1, 0 * run:pyrometer_train_rank_start:restarts{{{run}}} + 1)"
    again = f'label_replace({again}, "who", "run dies again and again", "", "")'
    late = f"rank:pyrometer_train_spare_gap:with_gpu{{{run}}}"
    # Over ten minutes; what a shorter run has is a gap over one. 0.08 is a host that is 9 % slower, less is noise then.
    soon = f"rank:pyrometer_train_step_part_seconds:spare_gap_1m{{{run}}}"
    slow = f'label_replace({_at(f"{soon} > 0.08")}, "who", "$1 rank $2", "at", "(.*)/(.+)") unless on () {late}'
    late = panels.worst(late, 0.02, "$1 GPU $2 rank $3", "node", "gpu", "rank")
    nobody = f'label_replace(0 * max({soon}), "who", "nobody", "", "")'
    stopped = f'{dead} or on () {again} or on () label_replace({named}, "who", "$1", "at", "(.*)/")'
    return panels.stat(
        title,
        Reading(
            "The rank that all others wait for, and the share of the time that it costs: how much less it waits than "
            "the median of its pipeline stage. Of a stopped run, the rank or the node that fell silent first: "
            "100 %. Of a run of which no rank lives, the one that died first (TrainRunDied).",
            "nobody, or below 5 % with names that change.",
            "Open its node. One name that stays is a slow GPU or a slow host; drain it.",
            "TrainStraggler",
        ),
        f"{stopped} or on () ({late}) or on () ({slow}) or on () ({nobody})",
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
        name="{{who}}",
        link=NODE_OF_SERIES,
        span=span,
    )


def pace(run: str) -> str:
    """Return the share of the pace that a run could have, held while batches are tagged."""
    return recently("run:pyrometer_train_pace:ratio", run)


def of_best(run: str) -> str:
    """Return MFU as a share of the run's best of 3 hours.

    A run that has waited for a rank since it began is at its best: there it is the share of its pace without that rank.
    """
    best = recently("run:pyrometer_train_batch_mfu_ratio:recent_per_best3h", run)
    waits = f"1 - max by (cluster, run, job_id) (run:pyrometer_train_straggler:ratio{{{run}}} > 0.1)"
    return f"({waits}) and on (cluster, run, job_id) {best} >= 0.85 or on (cluster, run, job_id) {best}"


def _at(expr: str) -> str:
    """Return the first of the answers with its node and rank joined in the label ``at``."""
    return f'label_join(topk(1, {expr}), "at", "/", "node", "rank")'


def against_expected() -> Panel:
    """Return the MFU relative to what the job declared or its configuration reached."""
    return panels.stat(
        "Of expected",
        Reading(
            "MFU of the moment divided by what the job said, or what runs of the same configuration reached.",
            "97 % and more. 'no data': nothing is known of this configuration yet.",
            "Low from the start: docs/signatures.md says what to look at first.",
            "TrainMfuLow",
        ),
        f"min(run:pyrometer_train_batch_mfu_ratio:recent_per_expected{{{RUN_IS}}})",
        unit="percentunit",
        decimals=0,
        steps=panels.KEPT,
        no_value="not known",
    )


def curve() -> Panel:
    """Return the present signature of the MFU curve."""
    shown = panels.stat(
        "Curve",
        Reading(
            "What the run's MFU curve looks like, and how sure that is.",
            "steady, or the wave of a day.",
            "docs/signatures.md says what each curve comes from and what to look at.",
        ),
        f"topk(1, max by (signature) (pyrometer_run_signature{{{RUN_IS}}}))",
        unit="percentunit",
        decimals=0,
        name="{{signature}}",
    )
    odd = Override(
        "/^(?!steady|daily_wave)/", panels.thresholds([(None, palette.QUIET), (0.5, palette.BAD)]), "byRegexp"
    )
    return replace(shown, overrides=[odd])


def unsaved() -> Panel:
    """Return the training time that a crash would lose."""
    return panels.stat(
        "Unsaved",
        Reading(
            "Training time since the last checkpoint was finished.",
            "below twice the run's own interval, where TrainCheckpointOverdue fires.",
            "Has the job stopped saving, or does a checkpoint hang? See where the ranks are now.",
            "TrainCheckpointOverdue",
        ),
        f"max(pyrometer_run_unsaved_seconds{{{RUN_IS}}})",
        unit="s",
        decimals=0,
        steps=[(None, palette.QUIET), (7200, palette.WATCH), (21600, palette.WORST)],
    )


def curves() -> Panel:
    """Return the signatures of the MFU curve over time."""
    healthy = {"color": {"mode": "fixed", "fixedColor": palette.HEALTHY}}
    return panels.lines(
        "What the curve looked like",
        Reading(
            "How much the MFU curve of the last hour looked like each known trouble, over time.",
            "steady near 100 %.",
            "The moment at which another line rises is when it began; docs/signatures.md says what to look at.",
        ),
        Query(f"max by (signature) (pyrometer_run_signature{{{RUN_IS}}}) > 0", "{{signature}}"),
        unit="percentunit",
        limits=(0, 1),
        no_value="not looked at yet",
        custom={"lineWidth": 2},
        colour={"mode": "shades", "fixedColor": palette.BAD},
        overrides=[Override("/^(steady|daily_wave)$/", healthy, "byRegexp")],
    )


def ledger() -> Panel:
    """Return where the run's time went."""
    return panels.stacked(
        "Where the run's time went",
        Reading(
            "Shares of the time in each state of the ledger, which adds up to the time that passed.",
            "useful above 90 %; a little checkpoint.",
            "rework: save more often. down and init: see what interrupted it. Reliability has all runs.",
        ),
        Query(
            f"sum by (state) (run:pyrometer_run_seconds:new5m{{{RUN_IS}}}) / on () group_left () "
            f"sum(run:pyrometer_run_seconds:new5m{{{RUN_IS}}})",
            "{{state}}",
            step="1m",
        ),
        unit="percentunit",
        limits=(0, 1),
        no_value="no ledger: is the cluster exporter running?",
        overrides=[panels.fixed(state, colour) for state, colour in palette.LEDGER.items()],
    )


def batch_coverage() -> Panel:
    """Return the share of the run's batches that reached Prometheus."""
    return panels.lines(
        "Batches seen, of those trained",
        Reading(
            "Of the batches of each 10 minutes, the share whose points reached Prometheus; batches are numbered, so "
            "this is exact.",
            "100 %, without a gap.",
            "Below: points were lost, and the curves above have holes. A gap: none arrived at all.",
            "TrainBatchPointsLost",
        ),
        Query(f"run:pyrometer_train_batch_points:seen_ratio10m{{{RUN_IS}}}", "seen", step="1m"),
        unit="percentunit",
        limits=(None, 1),
        custom={"axisSoftMin": 0.9},
        overrides=[panels.fixed("seen", palette.BAND, lineWidth=2)],
    )


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
