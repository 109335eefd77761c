"""Panels of the whole fleet: a table of runs, and the bands of all working GPUs."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import CLUSTER, FABRIC, GPU_MATRIX, RELIABILITY, RUN_OF_ROW, THROTTLING, link, recently
from pyrometer_dashboards.model import Panel, Query, Reading

_RUN = 'cluster="$cluster", run=~"$run"'


def runs() -> Panel:
    """Return a table with a row for each run."""

    def below(*steps: tuple[float | None, str], **more: object) -> dict[str, object]:
        coloured: dict[str, object] = {**panels.coloured(), **panels.thresholds(steps)}
        return coloured | more

    return panels.table(
        "Runs: what each is like now",
        Reading(
            "Each run: MFU of the moment and its share of the run's best of 3 hours, the share of the time that all "
            "wait for the slowest rank, what the MFU curve looks like (docs/signatures.md), time since the last step, "
            "and the training that a crash would lose.",
            "quiet cells; the curve 'steady'.",
            "Open the run: its board says where the time goes and who is slow.",
            "TrainMfuDropped",
        ),
        [
            Query(
                f"max by (run) ({recently('run:pyrometer_train_batch_mfu_ratio:recent', _RUN)})",
                instant=True,
                table=True,
            ),
            Query(
                f"min by (run) ({recently('run:pyrometer_train_batch_mfu_ratio:recent_per_best3h', _RUN)})",
                instant=True,
                table=True,
            ),
            Query(f"max by (run) (run:pyrometer_train_straggler:ratio{{{_RUN}}})", instant=True, table=True),
            Query(
                f"topk by (run) (1, max by (run, signature) (pyrometer_run_signature{{{_RUN}}}) > 0)",
                instant=True,
                table=True,
            ),
            Query(
                f"max by (run) (time() - run:pyrometer_train_last_step:timestamp_seconds{{{_RUN}}})",
                instant=True,
                table=True,
            ),
            Query(f"max by (run) (pyrometer_run_unsaved_seconds{{{_RUN}}})", instant=True, table=True),
        ],
        {
            "run": "run",
            "Value #A": "MFU",
            "Value #B": "of best",
            "Value #C": "for slowest",
            "signature": "curve",
            "Value #E": "last step",
            "Value #F": "unsaved",
        },
        unit="s",
        decimals=0,
        sort="of best",
        falling=False,
        link=RUN_OF_ROW,
        fields={
            "MFU": {"unit": "percentunit", "decimals": 1, "custom.width": 80},
            "of best": below(
                *panels.KEPT,
                unit="percentunit",
                **{"custom.width": 85},
            ),
            "for slowest": below(
                *panels.LOST_TIME,
                unit="percentunit",
                **{"custom.width": 100},
            ),
            "last step": below(
                (None, palette.QUIET), (60, palette.WATCH), (300, palette.WORST), **{"custom.width": 90}
            ),
            "unsaved": {"custom.width": 95},
        },
        no_value="no run",
        span=12,
    )


def worst_throttled(title: str, first: str, goes_to: tuple[str, str], *, span: int) -> Panel:
    """Return the GPU that loses most time to reasons other than the power cap; a click leads to ``goes_to``."""
    return panels.stat(
        title,
        Reading(
            "The GPU that heat, the power brake or the hardware slows for the largest share of the last minute. The "
            "normal power cap is not throttling.",
            "nobody. One GPU of 4,088 is enough to slow a synchronous run.",
            first,
            "GpuThrottledThermal",
        ),
        panels.worst(
            f'gpu:pyrometer_gpu_quantity:now{{{CLUSTER}, what="throttled"}}', 0.01, "$1 GPU $2", "node", "gpu"
        ),
        unit="percentunit",
        decimals=0,
        steps=panels.LOST_TIME,
        name="{{who}}",
        link=goes_to,
        span=span,
    )


def _band(what: str, scale: str = "") -> list[Query]:
    series = f'cluster:pyrometer_gpu_quantity:quantile{{{CLUSTER}, what="{what}", quantile="%s"}}{scale}'
    return [Query(series % at, name) for at, name in (("0.05", "p5"), ("0.95", "p95"), ("0.5", "median"))]


def temperature() -> Panel:
    """Return the temperature band of the working GPUs."""
    return panels.lines(
        "GPU temperature, working GPUs",
        Reading(
            "Median of all GPUs that work, and the band from the 5th to the 95th percentile.",
            "40 to 75 °C, in a band of 15.",
            "A band that widens: a rack's cooling. Open the GPU matrix.",
            "GpuThrottledThermal",
        ),
        _band("temperature"),
        unit="celsius",
        limits=(20, 95),
        overrides=panels.band("p5", "median", "p95"),
        links=[("Open the GPU matrix", link(GPU_MATRIX))],
        span=6,
    )


def clock() -> Panel:
    """Return the clock band of the working GPUs."""
    return panels.lines(
        "SM clock, working GPUs",
        Reading(
            "Median clock of all GPUs that work, and the band from the 5th to the 95th percentile.",
            "a thin band at the clock that the power cap allows.",
            "The whole band down: power. Its lower edge down: throttled GPUs.",
            "GpuThrottledHardware",
        ),
        _band("clock"),
        unit="rotmhz",
        limits=(0, 2200),
        overrides=panels.band("p5", "median", "p95"),
        links=[("Open throttling", link(THROTTLING))],
        span=6,
    )


def throttling() -> Panel:
    """Return the number of GPUs whose time is lost to each reason."""
    return panels.lines(
        "GPUs slowed down, by reason",
        Reading(
            "GPU-equivalents lost to each reason: 8 GPUs at 50 % of the time are 4. Without the normal power cap.",
            "flat at 0.",
            "Open Throttling for the names.",
            "GpuThrottledThermal",
        ),
        [
            Query(
                f'cluster:pyrometer_gpu_clock_event_seconds:gpus{{{CLUSTER}, reason!="power_cap"}}',
                "{{reason}}",
            )
        ],
        unit="none",
        limits=(0, None),
        custom={"axisSoftMax": 1},
        watched=proof.GPUS,
        overrides=panels.reasons(),
        links=[
            ("Open throttling", link(THROTTLING)),
            ("Open fabric", link(FABRIC)),
            ("Open reliability", link(RELIABILITY)),
        ],
        span=6,
    )
