"""The digest as a page: the same numbers as in the channel, as tables and bars; no script, nothing external."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import tzinfo

from pyrometer_alerting.channel.digest.data import DigestReport, RunTime, goodput
from pyrometer_alerting.channel.digest.digest_message import facts, headline, offender_place, run_name
from pyrometer_alerting.channel.document import document
from pyrometer_alerting.model import text

STATES = ("useful", "rework", "checkpoint", "eval", "init", "down", "other")


def render(reports: Sequence[DigestReport], notice: str, zone: tzinfo) -> str:
    """Return the whole page, a section per digest."""
    banner = f'<p class="notice">{html.escape(notice)}</p>' if notice else ""
    body = "".join(_report(report, zone) for report in reports)
    header = '<header><h1>Pyrometer</h1><a href="/">incidents</a></header>'
    return document("Digest", f"{header}{banner}<main>{body}</main>")


def _report(report: DigestReport, zone: tzinfo) -> str:
    tiles = "".join(f"<p><b>{html.escape(name)}</b>\n{html.escape(value)}</p>" for name, value in facts(report))
    causes = [(cause.cause, cause.incidents, _cost(cause.gpu_hours)) for cause in report.causes]
    pieces = [
        _clusters(report),
        _goodput(report.runs, several=report.several),
        _bars("Incidents by cause", causes),
        _table(
            "Repeat offenders in 30 days",
            ("part", "serial number", "where", "times", "what"),
            [
                (
                    offender.kind,
                    offender.serial or "not known",
                    offender_place(offender, several=report.several),
                    f"{offender.times:,}",
                    offender.what,
                )
                for offender in report.offenders
            ],
        ),
        _table("Xids", ("Xid", "class", "times"), [(xid, kind, f"{times:,.0f}") for xid, kind, times in report.xids]),
        _months(report),
    ]
    missing = "".join(f'<p class="trouble">{html.escape(text.clean(line))}</p>' for line in report.missing)
    return (
        f'<article class="digest"><h2>{html.escape(headline(report, zone))}</h2><div class="fields">{tiles}</div>'
        + ("".join(pieces) + missing + "</article>")
    )


def _cost(gpu_hours: float) -> str:
    return f"{text.amount(gpu_hours)} GPU-hours" if gpu_hours >= 0.005 else ""


def _clusters(report: DigestReport) -> str:
    if not report.several:
        return ""
    rows = [
        (
            share.cluster or "\u2013",
            "not measured" if share.goodput is None else text.percent(share.goodput),
            f"{share.incidents:,}",
            f"{share.firing:,}",
            text.amount(share.gpu_hours),
        )
        for share in report.shares
    ]
    return _table("By cluster", ("cluster", "goodput", "incidents", "firing", "GPU-hours lost"), rows)


def _goodput(runs: Sequence[RunTime], *, several: bool) -> str:
    """Return a bar per run, split by what its time was spent on."""
    if not runs:
        return ""
    rows = "".join(
        f"<tr><th>{_cell(run_name(run, several=several))}</th>"
        f'<td class="wide"><div class="split">{_split(run)}</div></td>'
        f"<td>{text.percent(run.goodput)}</td></tr>"
        for run in runs[:20]
    )
    legend = "".join(f'<span class="{state}">{state}</span>' for state in STATES)
    whole = goodput(runs)
    total = "" if whole is None else f" ({text.percent(whole)} in all)"
    return f'<h3>Goodput by run{total}</h3><table>{rows}</table><p class="legend">{legend}</p>'


def _split(run: RunTime) -> str:
    total = sum(run.seconds.values())
    return "".join(
        f'<i class="{state}" style="width:{100 * run.seconds.get(state, 0.0) / total:.2f}%" '
        f'title="{state} {text.percent(run.seconds.get(state, 0.0) / total)}"></i>'
        for state in STATES
        if run.seconds.get(state, 0.0) > 0
    )


def _bars(title: str, rows: Sequence[tuple[str, int, str]]) -> str:
    if not rows:
        return ""
    most = max(count for _, count, _ in rows)
    lines = "".join(
        f'<tr><th>{_cell(name)}</th><td class="wide"><i class="bar" style="width:{100 * count / most:.1f}%"></i></td>'
        f"<td>{count}</td><td>{html.escape(note)}</td></tr>"
        for name, count, note in rows[:20]
    )
    return f"<h3>{title}</h3><table>{lines}</table>"


def _months(report: DigestReport) -> str:
    rows = []
    for name, field in (("Xids", "xids"), ("uncorrected memory errors", "ecc"), ("link flaps", "flaps")):
        values = [getattr(month, field) for month in report.months]
        if any(value is not None for value in values):
            rows.append((name, *("\u2013" if value is None else f"{value:,.0f}" for value in values)))
    return _table("By month", ("", *(month.name for month in report.months)), rows)


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<h3>{title}</h3><table><tr>{head}</tr>{body}</table>"


def _cell(value: str) -> str:
    return html.escape(text.plain(value, 120))
