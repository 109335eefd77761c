"""Facts about links: losses, links that are down, and rates below what the link had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyrometer_alerting.diagnosis.look import (
    MOST_SUSPECTS,
    Kind,
    Look,
    Query,
    Questions,
    Subject,
    crossing,
    dated,
    increments,
    since,
)
from pyrometer_alerting.model.fact import Fact
from pyrometer_alerting.model.text import clock_utc, percent
from pyrometer_kit.prometheus import Series
from pyrometer_kit.promql import quoted

LOSSES = frozenset({"link_down", "link_flap"})
DOWNS = "pyrometer_nic_link_down_events_total"
PORT = ("node", "device", "port")
FLAPPING_SECONDS = (
    300.0  # a link that was up for longer than this is quiet; flaps of one fault are minutes apart at most
)


def losses(questions: Questions) -> Look:
    """Return the ports that lost their link, with the time of each loss, and those whose link is down."""
    window = questions.since("losses")
    where = questions.of_nodes()
    risen = questions.instant(f"increase({DOWNS}{where}[{window:.0f}s]) > 0.5")
    down = questions.values(f"max by (node, device, port) (pyrometer_nic_link_up{where}) == 0", PORT)
    expected = questions.values(f"max by (node, device, port) (pyrometer_nic_expected_up{where}) == 1", PORT)
    nodes = sorted({series.labels.get("node", "") for series in risen})[:MOST_SUSPECTS]
    facts = []
    if nodes:
        query = f"{DOWNS}{questions.of_nodes(nodes=nodes)}[{window:.0f}s]"
        facts = [fact for series in questions.instant(query) if (fact := _flaps(series)) is not None]
    return Look((*facts, *_down(questions, [port for port in down if port in expected])), frozenset({"link_down"}))


def _flaps(series: Series) -> Fact | None:
    rises = increments(series.points)
    if not rises:
        return None
    labels = {name: series.labels[name] for name in PORT if series.labels.get(name)}
    before, first, _rise = rises[0]
    last = rises[-1][1]
    return Fact(
        "link_flap",
        labels,
        began=first,
        precision=first - before,
        ended=last if series.points[-1][0] - last > FLAPPING_SECONDS else None,
        moments=tuple((at, amount) for _before, at, amount in rises),
        peers=0.0,
        before=0.0,
        source=f"{DOWNS}{{{_named(labels)}}}",
    )


def _down(questions: Questions, ports: list[tuple[str, ...]]) -> list[Fact]:
    if not ports:
        return []
    nodes = sorted({port[0] for port in ports})
    window = questions.since("losses")
    query = f"pyrometer_nic_link_up{questions.of_nodes(nodes=nodes)}[{window:.0f}s]"
    points = {tuple(series.labels.get(name, "") for name in PORT): series.points for series in questions.instant(query)}
    facts = []
    for port in ports[:MOST_SUSPECTS]:
        labels = {name: value for name, value in zip(PORT, port, strict=True) if value}
        fell = crossing(points.get(port, ()), 0.5, above=False)
        fact = Fact("link_down", labels, peers=0.0, source=f"pyrometer_nic_link_up{{{_named(labels)}}}")
        if fell is not None:
            began = None if fell.chronic else fell.at
            fact = replace(fact, began=began, precision=fell.precision, chronic=fell.chronic)
        facts.append(fact)
    return facts


def rates(questions: Questions) -> Look:
    """Return the links that run below the largest rate that they were seen to have."""
    where, by = questions.of_nodes(), "max by (node, device, port)"
    rate, most = "pyrometer_nic_link_rate_bits_per_second", "pyrometer_nic_link_rate_max_bits_per_second"
    query = f"{by} ({rate}{where} > 0) / {by} ({most}{where})"
    now = {port: ratio for port, ratio in questions.values(f"{query} < 1", PORT).items() if ratio < 1}
    before = questions.values(query, PORT, questions.before) if now else {}
    facts = []
    for port, ratio in list(now.items())[:MOST_SUSPECTS]:
        labels = {name: value for name, value in zip(PORT, port, strict=True) if value}
        past = before.get(port)
        facts.append(
            Fact(
                "link_rate",
                labels,
                chronic=past is not None and past <= ratio,
                strength=1 - ratio,
                value=ratio,
                peers=1.0,
                before=past,
                source=f"{rate}{{{_named(labels)}}}",
            )
        )
    return Look(tuple(_since(facts, questions)), frozenset({"link_rate"}))


def _since(facts: list[Fact], questions: Questions) -> list[Fact]:
    fresh = [fact for fact in facts if not fact.chronic and fact.before is not None]
    if not fresh:
        return facts
    nodes = sorted({fact.labels["node"] for fact in fresh})
    window = questions.since("rates")
    query = f"pyrometer_nic_link_rate_bits_per_second{questions.of_nodes(nodes=nodes)}[{window:.0f}s]"
    stored = {tuple(series.labels.get(name, "") for name in PORT): series.points for series in questions.instant(query)}
    with_onset = []
    for fact in facts:
        points = stored.get(tuple(fact.labels.get(name, "") for name in PORT), ())
        top = max((value for _at, value in points), default=0.0)
        fell = crossing(points, 0.999 * top, above=False) if fact in fresh else None
        with_onset.append(dated(fact, fell))
    return with_onset


def _named(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={quoted(value)}" for name, value in labels.items())


def _link(fact: Fact) -> str:
    if fact.kind == "link_rate":
        return f"runs at {percent(fact.value or 0.0)} of its rate"
    if fact.kind == "link_down":
        return (
            f"its link is down {since(fact)}"
            if fact.ended is None
            else f"its link was down until {clock_utc(fact.ended)}"
        )
    last = fact.moments[-1][0] if fact.moments else fact.began or 0.0
    if fact.count < 2:
        return f"link went down once, at {clock_utc(last)}"
    first = fact.moments[0][0] if fact.moments else fact.began or 0.0
    return f"link went down {fact.count} times since {clock_utc(first)}, last at {clock_utc(last)}"


def _flap_title(facts: Sequence[Fact]) -> str:
    return "a single link flap" if sum(fact.count for fact in facts) < 2 else "link flapping"


SUBJECT = Subject(
    2,
    {
        "link_flap": Kind(
            "link", "link flapping", 0.91, 900.0, says=_link, title=_flap_title, runbook="NicLinkFlapping"
        ),
        "link_down": Kind("link", "link down", 1.24, 0.0, says=_link, runbook="NicLinkDown"),
        "link_rate": Kind("link", "link below its rate", 0.58, says=_link, runbook="NicLinkDegraded"),
    },
    (Query(losses, "links", first_look=2), Query(rates)),
)
