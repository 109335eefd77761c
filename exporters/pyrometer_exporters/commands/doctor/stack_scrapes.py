"""How often our targets are really scraped, and whether every batch is kept: measured from the samples themselves."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from itertools import pairwise

from pyrometer_exporters.commands.doctor.stack_asking import seconds, series, some, values
from pyrometer_kit.errors import HttpError
from pyrometer_kit.finding import Finding
from pyrometer_kit.http_client import get
from pyrometer_kit.promql import matching

# So many targets are looked at: one whose scrapes fail has gaps.
LOOKED_AT = 3
# Beyond it a fault is no news any more when it is read: the rules' windows are made for 5 to 30 s.
SLOW_SECONDS = 30.0
_STEPS = "pyrometer_train_batch_step"
# Fewer are lost when a job restarts between two exporters, or at the ends of the window.
LOST, LOST_SHARE = 2, 0.02
_FLAG = re.compile(r'^-?([\w.]+)="?([^"\s]*)', re.MULTILINE)


def interval(url: str, job: str) -> float | None:
    """Return the seconds between two scrapes of a job, measured; None where there were not three yet."""
    names = [labels["instance"] for labels, _ in values(url, f'topk({LOOKED_AT}, up{{job="{job}"}})')]
    if not names:
        return None
    of_each = series(url, f'up{{job="{job}",{matching("instance", names)}}}[10m]')
    gaps = [
        later - earlier for item in of_each for (earlier, _), (later, _) in pairwise(item.points) if later > earlier
    ]
    return float(round(statistics.median(gaps))) or 1.0 if len(gaps) > 1 else None


def scrapes(job: str, measured: float | None) -> Iterator[Finding]:
    """Yield how often a job is scraped."""
    if measured is None:
        yield Finding(
            "note", f"job {job}: not scraped often enough yet to measure how often", "ask again in two minutes"
        )
    elif measured > SLOW_SECONDS:
        what = f"job {job} is scraped each {seconds(measured)}: what happens is read up to {seconds(measured)} later"
        yield Finding("note", what, f"give the job scrape_interval: 15s (at most {SLOW_SECONDS:g}s)")
    else:
        yield Finding("ok", f"job {job} is scraped each {seconds(measured)}")


def batches(url: str) -> Iterator[Finding]:
    """Yield whether the batches of the last five minutes are all there; nothing where no run trained."""
    spans = f"max_over_time({_STEPS}[5m]) - min_over_time({_STEPS}[5m]) + 1"
    trained = sum(value for _, value in values(url, f"sum({spans})"))
    kept = sum(value for _, value in values(url, f"sum(count_over_time({_STEPS}[5m]))"))
    merged = flags(url).get("dedup.minScrapeInterval", "")
    merged = "" if re.fullmatch(r"0s?|1ms", merged) else merged
    lost = trained - kept
    if lost > LOST and lost > LOST_SHARE * trained:
        what = f"{kept:.0f} of {trained:.0f} batches of the last 5 minutes are kept"
        if merged:
            yield Finding(
                "missing", f"{what}, as -dedup.minScrapeInterval={merged} keeps one sample of each {merged}",
                "set -dedup.minScrapeInterval=1ms, which still merges the equal samples of a pair",
            )  # fmt: skip
        else:
            do = "docs/alerts.md#trainbatchpointslost: honor_timestamps, one consumer for each scraper, deduplication"
            yield Finding("missing", what, do)
    elif merged:
        yield Finding(
            "missing", f"VictoriaMetrics keeps one sample of each {merged} (-dedup.minScrapeInterval), not each batch",
            "set -dedup.minScrapeInterval=1ms, which still merges the equal samples of a pair",
        )  # fmt: skip
    elif trained:
        yield Finding("ok", f"all batches of the last 5 minutes are kept ({kept:.0f})")


def flags(url: str) -> dict[str, str]:
    """Return the flags that somebody set on VictoriaMetrics, by name; none where it does not show them."""
    try:
        return dict(_FLAG.findall(get(url, "/flags").decode("utf-8", "replace")))
    except HttpError:
        return {}


def latency(url: str) -> Iterator[Finding]:
    """Yield by how much VictoriaMetrics hides what is new: 30 s by default (its app/vmselect)."""
    chosen = flags(url)
    hidden = chosen.get("search.latencyOffset", "30s")
    if chosen and not hidden.startswith("0"):
        what = (
            f"VictoriaMetrics hides the newest {hidden} from queries (-search.latencyOffset): alerts are so much later"
        )
        yield Finding("note", what, "set -search.latencyOffset=0s")


def down(url: str, job: str, count: int, labels: tuple[str, ...] = ("cluster", "node")) -> Iterator[Finding]:
    """Yield whether all targets of a job answer, and have the labels that rules and boards need."""
    silent = [target.get("instance", "?") for target, _ in values(url, f'up{{job="{job}"}} == 0')]
    if silent:
        what = f"job {job}: {len(silent)} of {count} targets are down ({some(silent)})"
        yield Finding("missing", what, "Prometheus' page Status > Targets has the error of each target")
    else:
        yield Finding("ok", f"job {job}: {count} targets answer")
    for label in labels:
        without = [target.get("instance", "?") for target, _ in values(url, f'up{{job="{job}", {label}=""}}')]
        if without:
            what = f"job {job}: {len(without)} of {count} targets have no label {label} ({some(without)})"
            yield Finding(
                "missing", what, "set it in the targets' file or by relabelling: docs/howto/existing-stack.md"
            )
