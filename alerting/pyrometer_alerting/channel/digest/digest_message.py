"""Build a digest's message: goodput, incidents by cause, MTBF, repeat offenders, Xids, trends by month.

Limits by construction as in channel/messages.py: at most 12 blocks, lists of at most 10 lines, two charts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.chart_block import bar_block
from pyrometer_alerting.channel.digest.data import (
    CauseCount,
    ClusterShare,
    DigestReport,
    Month,
    Offender,
    RunTime,
    goodput,
)
from pyrometer_alerting.channel.digest.mtbf import CONFIDENCE
from pyrometer_alerting.model import text
from pyrometer_alerting.model.message import Block, Message

MAX_LINES = 10
ROOM = 2600
_BADPUT = ("rework", "checkpoint", "eval", "init", "down", "other")


def build_digest(report: DigestReport, style: Style, zone: tzinfo) -> Message:
    """Build the message, which the terminal shows, too."""
    title = headline(report, zone)
    sections = [section for section in _sections(report) if section]
    blocks: list[Block] = [{"type": "header", "text": {"type": "plain_text", "text": text.plain(title, 140)}}]
    blocks.append(_fields(report))
    blocks += [{"type": "section", "text": _mrkdwn(section)} for section in sections]
    if style.charts != "off":
        blocks += charts(report)
    blocks.append({"type": "context", "elements": [_mrkdwn(piece) for piece in _footer(report, style)]})
    return Message(text.join_lines([text.escape(title), *_facts_lines(report), *sections], 3900), blocks)


def headline(report: DigestReport, zone: tzinfo) -> str:
    """Return `Daily digest, Sat 21 Nov 2026: goodput 93.2 %, 4 incidents`."""
    day = datetime.fromtimestamp(report.end - 1, tz=zone)
    when = day.strftime("%a %d %b %Y") if report.kind == "daily" else f"week to {day.strftime('%a %d %b %Y')}"
    useful = goodput(report.runs)
    details = [] if useful is None else [f"goodput {text.percent(useful)}"]
    details.append(f"{report.incidents} incident{'' if report.incidents == 1 else 's'}")
    whose = f" of {', '.join(report.clusters)}" if report.clusters else ""
    return f"{report.kind.capitalize()} digest{whose}, {when}: {', '.join(details)}"


def facts(report: DigestReport) -> list[tuple[str, str]]:
    """Return the numbers at the top as (name, value)."""
    useful = goodput(report.runs)
    firing = f", {report.firing} still firing" if report.firing else ""
    rows = [
        ("Goodput", "not measured" if useful is None else text.percent(useful)),
        ("Incidents", f"{report.incidents}{firing}"),
        ("MTBF", mtbf_line(report)),
    ]
    if report.median_seconds is not None:
        rows.append(("Median time to resolve", text.duration(report.median_seconds)))
    if report.gpu_hours >= 0.005:
        rows.append(("Cost", f"{text.amount(report.gpu_hours)} GPU-hours lost"))
    if judged := report.judged_right + report.judged_wrong:
        rows.append(("Diagnoses judged", f"{report.judged_right} of {judged} right"))
    if report.dead:
        rows.append(("Dead letters", f"{report.dead} (pyrometer-alerting replay)"))
    return rows


def mtbf_line(report: DigestReport) -> str:
    """Return `3.1 h (90 %: 2.9 to 3.4 h), 419 restarts in 1,296 h`; only a lower bound without a failure."""
    failures = report.failures
    if failures is None:
        return "not measured"
    restarts = f"{failures.failures} restart{'' if failures.failures == 1 else 's'}"
    of = f"{restarts} in {text.amount(failures.observed)} h of runs"
    sure = f"{100 * CONFIDENCE:.0f} %"
    if failures.hours is None or math.isinf(failures.high):
        return f"more than {text.amount(failures.low)} h ({sure}), {of}"
    return (
        f"{text.amount(failures.hours)} h ({sure}: {text.amount(failures.low)} to {text.amount(failures.high)} h), {of}"
    )


def run_name(run: RunTime, *, several: bool) -> str:
    """Return `llama-70b (ada, 4711)`, or `prod-a llama-70b (ada, 4711)` in a digest of several clusters."""
    name = f"{run.run} ({run.whose})" if run.whose and run.run else run.run
    return f"{run.cluster} {name}" if several and name else name or run.cluster


def cluster_line(share: ClusterShare) -> str:
    """Return `prod-a: goodput 93.2 %, 4 incidents (1 firing), 12 GPU-hours lost`."""
    useful = "goodput not measured" if share.goodput is None else f"goodput {text.percent(share.goodput)}"
    firing = f" ({share.firing} firing)" if share.firing else ""
    lost = f", {text.amount(share.gpu_hours)} GPU-hours lost" if share.gpu_hours >= 0.005 else ""
    incidents = f"{share.incidents} incident{'' if share.incidents == 1 else 's'}"
    return f"{share.cluster or 'no cluster'}: {useful}, {incidents}{firing}{lost}"


def goodput_line(run: RunTime, *, several: bool = False) -> str:
    """Return `llama-70b: 93.2 % of 168 h; down 3.1 %, rework 2.0 %`."""
    total = sum(run.seconds.values())
    lost = sorted(((run.seconds.get(state, 0.0) / total, state) for state in _BADPUT), reverse=True)
    losses = [f"{state} {text.percent(share)}" for share, state in lost[:4] if share >= 0.001]
    return f"{run_name(run, several=several)}: {text.percent(run.goodput)} of {text.amount(total / 3600)} h" + (
        f"; {', '.join(losses)}" if losses else ""
    )


def cause_line(cause: CauseCount) -> str:
    """Return `4 x hardware thermal throttling, 12 GPU-hours lost`."""
    cost = f", {text.amount(cause.gpu_hours)} GPU-hours lost" if cause.gpu_hours >= 0.005 else ""
    return f"{cause.incidents} x {cause.cause}{cost}"


def offender_place(offender: Offender, *, several: bool = False) -> str:
    """Return `gpu-042 GPU 3`, or `prod-a gpu-042 GPU 3` in a digest of several clusters; empty where none is known."""
    return " ".join(filter(None, (offender.cluster if several else "", offender.place)))


def offender_line(offender: Offender, *, several: bool = False) -> str:
    """Return `GPU 1652922000123 (gpu-042 GPU 3): 7 Xids in 30 days`."""
    serial = offender.serial or "serial number not known"
    kind = "cable" if offender.kind == "port" else offender.kind
    where = offender_place(offender, several=several)
    place = f" ({where})" if where else ""
    return f"{kind} {serial}{place}: {offender.times} {offender.what} in 30 days"


def month_line(month: Month) -> str:
    """Return `2026-11: 12 Xids, 0 uncorrected memory errors, 431 link flaps`, naming what was not measured."""
    values = ((month.xids, "Xids"), (month.ecc, "uncorrected memory errors"), (month.flaps, "link flaps"))
    return f"{month.name}: " + ", ".join(
        f"{value:,.0f} {name}" if value is not None else f"{name} not measured" for value, name in values
    )


def charts(report: DigestReport) -> list[Block]:
    """Return at most two charts: incidents by cause, and the trends by month."""
    causes = [(cause.cause, float(cause.incidents)) for cause in report.causes[:8]]
    blocks = [bar_block("Incidents by cause", {"incidents": causes}, "incidents")]
    trends = {
        name: [(month.name, value) for month in report.months if (value := getattr(month, field)) is not None]
        for name, field in (("Xids", "xids"), ("memory errors", "ecc"), ("link flaps", "flaps"))
    }
    months = [month.name for month in report.months]
    whole = {name: points for name, points in trends.items() if [label for label, _ in points] == months}
    blocks.append(bar_block("By month", whole, "events") if len(months) > 1 else None)
    return [block for block in blocks if block is not None]


def _sections(report: DigestReport) -> list[str]:
    xids = [f"Xid {xid} ({kind}): {times:,.0f} times" for xid, kind, times in report.xids]
    several = report.several
    return [
        _list("By cluster", [cluster_line(share) for share in report.shares] if several else []),
        _list("Goodput by run", [goodput_line(run, several=several) for run in report.runs]),
        _list("Incidents by cause", [cause_line(cause) for cause in report.causes]),
        _list("Repeat offenders", [offender_line(offender, several=several) for offender in report.offenders]),
        _list("Xids", xids),
        _list("By month", [month_line(month) for month in report.months]),
        _list("Missing", list(report.missing)),
    ]


def _list(title: str, lines: Sequence[str]) -> str:
    """Return title and lines as mrkdwn; empty without lines."""
    if not lines:
        return ""
    items = [f"\u2022 {text.mrkdwn(line, 240)}" for line in lines[:MAX_LINES]]
    hidden = len(lines) - len(items)
    return text.join_lines(
        [f"*{title}*", *items, *([f"{text.ELLIPSIS} and {hidden} more"] if hidden > 0 else [])], ROOM
    )


def _fields(report: DigestReport) -> Block:
    return {
        "type": "section",
        "fields": [_mrkdwn(f"*{name}*\n{text.mrkdwn(value, 200)}") for name, value in facts(report)],
    }


def _facts_lines(report: DigestReport) -> list[str]:
    return [text.mrkdwn(f"{name}: {value}", 240) for name, value in facts(report)]


def _footer(report: DigestReport, style: Style) -> list[str]:
    notice = f"*{text.mrkdwn(style.notice, 75)}*" if style.notice else ""
    begin, end = (text.slack_time(time, "{date_short} {time}") for time in (report.start, report.end))
    span = f"{begin} to {end}"
    return [piece for piece in (notice, span, "MTBF: restarts of runs, exact Poisson interval") if piece]


def _mrkdwn(content: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": content, "verbatim": True}
