"""Panels of every batch: exact points over honest bands, from five minutes to thirty days."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels
from pyrometer_dashboards.common import RUN_IS
from pyrometer_dashboards.model import Override, Panel, Query, Reading, Variable

# The newest steps of the range that are drawn as points: nobody can tell more of them apart.
_MOST_POINTS = 20000
# From a day on, bands come from recorded minutes: a month of batches is 10 million samples.
_RAW_SECONDS = 90000

# Hidden variables that follow the zoom: the seconds that hold that many steps; the series that bands are drawn from;
# and the series whose numbers are searched for gaps (a name without series where reading it would cost too much).
POINTS = Variable(
    "points",
    query="query_result(ceil(min(vector($__range_s) or label_replace("
    f"{_MOST_POINTS} * max(avg_over_time(run:pyrometer_train_batch_step_seconds:window1m{{{RUN_IS}}}[$__range]))"
    ', "k", "1", "", ""))))',
    regex="/ ([0-9]+) [0-9]+$/",
    hidden=True,
)
SOURCE = Variable(
    "mfu",
    query="query_result("
    f'label_replace(vector($__range_s) <= {_RAW_SECONDS}, "source", "pyrometer_train_batch_mfu_ratio", "", "") or '
    f'label_replace(vector($__range_s) > {_RAW_SECONDS}, "source", '
    '"run:pyrometer_train_batch_mfu_ratio:window1m", "", "")'
    ")",
    regex='/source="([^"]+)"/',
    hidden=True,
)
STEPS = Variable(
    "steps",
    query="query_result("
    f'label_replace(vector($__range_s) <= {_RAW_SECONDS}, "source", "pyrometer_train_batch_step", "", "") or '
    f'label_replace(vector($__range_s) > {_RAW_SECONDS}, "source", "none", "", "")'
    ")",
    regex='/source="([^"]+)"/',
    hidden=True,
)


def _lost() -> Query:
    """Return the number of batches that never arrived, at the time of the batch after them: numbers are missing there.

    The comparison includes the last number before the interval, so that no gap at its end is missed. From a day on it
    uses what was recorded each minute.
    """
    step = f"${{steps}}{{{RUN_IS}}}"
    newest, before = f"max_over_time({step}[$__interval])", f"last_over_time({step}[10m] offset $__interval)"
    counted = f"run:pyrometer_train_batch_points:lost10m{{{RUN_IS}}}"
    recorded = f"sum_over_time(run:pyrometer_train_batch_points:lost1m{{{RUN_IS}}}[$__interval])"
    return Query(
        # Runs that skip step numbers on their own are excluded, and those whose points are means of steps.
        f"max(({newest} - {before} - count_over_time({step}[$__interval]) > 0) and on (run, job_id, attempt) {counted} "
        f"unless on (run, job_id, attempt) last_over_time(pyrometer_train_batch_steps{{{RUN_IS}}}[10m])) "
        f"or sum({recorded}) and on () vector($__range_s) > {_RAW_SECONDS}",
        "batches lost",
        step="1s",
    )


def _mean_of() -> Query:
    """Return the number of steps in a point's mean, as words in the legend: a followed log may have a line for ten."""
    steps = f"max(last_over_time(pyrometer_train_batch_steps{{{RUN_IS}}}[10m]) > 1)"
    return Query(f'count_values("steps", {steps})', "each point is the mean of {{steps}} steps", instant=True)


def _unknown() -> Query:
    """Return what the run's MFU lacks, as words in the legend."""
    reasons = f"group by (reason) (last_over_time(run:pyrometer_train_mfu_unknown:reasons{{{RUN_IS}}}[10m]))"
    return Query(reasons, "no MFU: {{reason}}", instant=True)


def every_batch() -> Panel:
    """Return the MFU of every batch of a range, and the distribution in each interval."""
    series = f"${{mfu}}{{{RUN_IS}, stat=~%s}}[$__interval]"

    def over(function: str, stat: str) -> str:
        return function % (series % f'"|{stat}"')

    return panels.lines(
        "MFU of every batch",
        Reading(
            f"One point per batch, at the batch's own time, for the newest {_MOST_POINTS:,} steps of the range; zoom "
            "in to move them. Behind them, for each interval of the range, exactly the batches that ended in it: the "
            "median, the "
            "band from the 5th to the 95th percentile, and lightly from the lowest to the highest. From a day on the "
            "bands "
            "are those of the recorded minutes. A line from top to bottom: a batch whose point never arrived. "
            "Of a log that has a line for several steps, a point is their mean, and the legend says so. Without MFU it "
            "says what is missing: FLOPs per token, tokens per step, the GPUs' number or peak.",
            "a thin dark band; checkpoints and evaluations dip and are tagged.",
            "One batch in a minute down: a rank that pauses (GC, data). All batches down: a GPU or a link, named "
            "below.",
            "TrainMfuDropped",
        ),
        [
            Query(over("min(min_over_time(%s))", "min"), "min", step="15s"),
            Query(over("max(max_over_time(%s))", "max"), "max", step="15s"),
            Query(over("min(quantile_over_time(0.05, %s))", "p05"), "p5", step="15s"),
            Query(over("max(quantile_over_time(0.95, %s))", "p95"), "p95", step="15s"),
            Query(over("max(quantile_over_time(0.5, %s))", "p50"), "median", step="15s"),
            Query(f"pyrometer_train_batch_mfu_ratio{{{RUN_IS}}}[${{points}}s]", "every batch", instant=True),
            _lost(),
            _mean_of(),
            _unknown(),
        ],
        unit="percentunit",
        limits=(0, None),
        custom={"lineInterpolation": "stepBefore", "lineWidth": 0, "spanNulls": False},
        options={"tooltip": {"mode": "single"}},
        overrides=[
            panels.fixed("min", palette.BAND, hideFrom=panels.UNNAMED),
            panels.fixed("max", palette.BAND, fillBelowTo="min", fillOpacity=12, hideFrom=panels.UNNAMED),
            panels.fixed("p5", palette.BAND, hideFrom=panels.UNNAMED),
            panels.fixed("p95", palette.BAND, fillBelowTo="p5", fillOpacity=40, hideFrom=panels.UNNAMED),
            panels.fixed("median", palette.HEALTHY, lineWidth=2),
            panels.fixed("every batch", palette.BAND, drawStyle="points", showPoints="always", pointSize=3),
            _mark("batches lost"),
            Override("/^(each point|no MFU)/", {"color": {"mode": "fixed", "fixedColor": palette.NO_DATA}}, "byRegexp"),
        ],
        span=24,
    )


def _mark(name: str) -> Override:
    """Return a line from the bottom to the top, on a hidden scale of its own."""
    bar = {"axisPlacement": "hidden", "drawStyle": "bars", "fillOpacity": 100, "lineWidth": 2}
    return Override(
        name,
        {
            # Missing data has the colour of text, as on the map: it is not a fault of the run.
            "color": {"mode": "fixed", "fixedColor": palette.TEXT},
            "unit": "none",
            "min": 0,
            "max": 1,
            **{f"custom.{key}": value for key, value in bar.items()},
        },
    )


def step_seconds() -> Panel:
    """Return the step time of every batch."""
    return panels.lines(
        "Step time of every batch",
        Reading(
            "One point per batch, the newest steps of the range.",
            "a line; outliers are checkpoints.",
            "Two lines: every n-th step does something more, such as logging or evaluation.",
        ),
        Query(f"pyrometer_train_batch_step_seconds{{{RUN_IS}}}[${{points}}s]", "step time", instant=True),
        unit="s",
        limits=(0, None),
        custom={"drawStyle": "points", "showPoints": "always", "pointSize": 3, "spanNulls": False},
        overrides=[panels.fixed("step time", palette.BAND)],
    )


def loss() -> Panel:
    """Return loss and gradient norm of every batch."""
    return panels.lines(
        "Loss and gradient norm of every batch",
        Reading(
            "What the job recorded, one point per batch, the newest steps of the range.",
            "loss falls slowly, the norm stays below its clip.",
            "A spike of both: a bad batch or a bad GPU; a GPU with memory errors is in Reliability.",
        ),
        [
            Query(f"pyrometer_train_batch_loss{{{RUN_IS}}}[${{points}}s]", "loss", instant=True),
            Query(f"pyrometer_train_batch_grad_norm{{{RUN_IS}}}[${{points}}s]", "gradient norm", instant=True),
        ],
        unit="none",
        custom={"drawStyle": "points", "showPoints": "always", "pointSize": 3, "spanNulls": False},
        overrides=[
            panels.fixed("loss", palette.BAND),
            panels.fixed("gradient norm", palette.BESIDE, axisPlacement="right"),
        ],
    )
