"""PromQL as the checks read it."""

from __future__ import annotations

import pytest

from pyrometer_dashboards.promql import Expression, PromqlError, parse

GOOD = [
    "up",
    'up{job="node", node=~"$node"} == 0',
    "-up + 2 ^ -1 ^ 2",
    "sum by (a, b) (rate(x_total[$__rate_interval])) / ignoring (c) group_left (d) y",
    "sum(rate(x_total[5m])) by (a)",
    "quantile_over_time(0.9, x[1h:30s] offset 5m)",
    "x[1h] @ end()",
    "topk(3, x offset -1m)",
    'label_replace(x, "a", "$1", "b", "(.*);\'x\'")',
    '${mfu}{run="$run"}[${points}s]',
    'count_values by (cluster) ("place", x)',
    "x > bool 3 and on () y unless z or NaN",
    "x # a comment\n + y",
    "histogram_quantile(0.9, sum by (le) (rate(b_bucket[1m])))",
    "1h30m",
    '{__name__="x"}',
    "x atan2 y",
]
BAD = ["", "sum(", "up{", 'up{a="b}', "up{a==3}", "rate(x[)", "x[no window!]", "a b", "1 +", "sum by a (x)", "x ?"]


@pytest.mark.parametrize("text", GOOD)
def test_promql_is_read(text: str) -> None:
    parse(text)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_promql_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PromqlError) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


def selectors(text: str) -> list[Expression]:
    return [node for node, _ in parse(text).walk() if node.kind == "selector"]


def test_offsets_are_kept_with_their_sign_beside_windows_and_without() -> None:
    assert [
        parse(text).offset for text in ("x offset 5m", "x[1h] offset 2d", "x offset -1m", "x[1h:5m] offset 3m", "x")
    ] == [
        "5m",
        "2d",
        "-1m",
        "3m",
        "",
    ]


def test_selectors_keep_their_matchers_and_windows() -> None:
    (found,) = selectors('sum(rate(x_total{a="b", c=~"$d"}[$__range] @ end()))')
    assert (found.name, found.window, found.at) == ("x_total", "$__range", "end")
    assert found.matchers == (("a", "=", "b"), ("c", "=~", "$d"))


def test_what_stands_around_a_selector_is_known() -> None:
    names = [
        [outer.name for outer in under if outer.name]
        for node, under in parse("sum(rate(x[1m]))").walk()
        if node.name == "x"
    ]
    assert names == [["sum", "rate"]]


def test_operators_bind_as_in_prometheus() -> None:
    tree = parse("a or b + c * d ^ e")
    assert (tree.name, tree.parts[1].name, tree.parts[1].parts[1].name) == ("or", "+", "*")
