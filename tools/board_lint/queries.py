"""Queries: valid PromQL of existing series, over windows without gaps, at a cost that a cluster can bear."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.board_lint import runs
from tools.board_lint.clusters import LABEL, mixing, unchosen
from tools.board_lint.finding import Finding, Json, LintContext, panels, targets, title, visible

from pyrometer_dashboards.promql import Expression, PromqlError, parse

_RATES = ("rate", "increase", "irate", "delta", "idelta", "deriv")
# A counter's bare value means nothing; these functions are meaningful on it.
_OF_COUNTERS = (*_RATES, "resets", "changes", "count_over_time", "last_over_time", "present_over_time", "absent")
_WINDOWS = ("$__rate_interval", "$__range")
_TOP = ("topk", "bottomk", "limitk")
_BATCHES = "pyrometer_train_batch_"
# Prefixes of the metrics of each node's exporters.
_FLEET = (
    "DCGM_FI_", "pyrometer_gpu", "pyrometer_nic", "pyrometer_train_", "pyrometer_collector", "pyrometer_kernel",
    "pyrometer_exporter", "pyrometer_down_reason", "pyrometer_check", "pyrometer_nvswitch", "node_",
)  # fmt: skip
# Metrics that depend on the work, and aggregations whose result idle GPUs would distort.
_OF_WORK = re.compile(r"DCGM_FI_DEV_(GPU_TEMP|MEMORY_TEMP|SM_CLOCK|POWER_USAGE)|DCGM_FI_PROF_\w+")
_MIDDLES = ("quantile", "avg", "stddev", "stdvar")
_CHOICE = re.compile(r"\s*(label_values|query_result)\((.*)\)\s*", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
# Metrics that docs/metrics.md doesn't list: those of Prometheus, Alertmanager and client libraries.
_OTHERS = re.compile(r"up|ALERTS|ALERTS_FOR_STATE|(prometheus|alertmanager|scrape|process|go|node|grafana)_\w+")
# Series of the monitoring itself, which looks after several clusters, and steps that are the same in each.
_OF_NO_CLUSTER = re.compile(
    r"(prometheus|alertmanager)_\w+|pyrometer_alerting_\w+|what:pyrometer_gpu_deviation:step|\$\w+"
)


def check(name: str, board: Json, context: LintContext) -> Iterator[Finding]:
    """Yield findings in the queries of a board's panels, annotations and variables."""
    variables = {variable["name"]: variable for variable in board.get("templating", {}).get("list", [])}
    shown = [panel.get("id") for panel in visible(board)]
    for panel in panels(board):
        for target in targets(panel):
            expr = str(target.get("expr", ""))
            try:
                tree = parse(expr)
            except PromqlError as error:
                yield Finding(name, title(panel), f"no PromQL: {error}: {expr}", "Try it in Prometheus.")
                continue
            for problem, remedy in _problems(tree, target, panel.get("id") in shown):
                yield Finding(name, title(panel), problem, remedy)
            yield from (Finding(name, title(panel), *each) for each in _names(tree, context))
            yield from (Finding(name, title(panel), *each) for each in _variables(tree, variables))
            yield from (Finding(name, title(panel), *each) for each in _clusters(tree, variables))
            yield from (Finding(name, title(panel), *each) for each in _runs(tree))
    for where, expr in (*_marks(board), *_choices(board)):
        yield from (Finding(name, where, *each) for each in _besides(expr, where, variables, context))


def _marks(board: Json) -> Iterator[tuple[str, str]]:
    """Yield the queries of annotations with their names, switched-off ones included, as anyone can switch them on."""
    for mark in board.get("annotations", {}).get("list", []):
        expr = mark.get("expr") or mark.get("target", {}).get("expr")
        if expr:
            yield f"mark {mark.get('name')}", str(expr)


def _choices(board: Json) -> Iterator[tuple[str, str]]:
    """Yield the queries of variables without the function around them, which is Grafana's own."""
    for variable in board.get("templating", {}).get("list", []):
        asked = variable.get("query")
        call = _CHOICE.fullmatch(str(asked.get("query", "") if isinstance(asked, dict) else asked))
        if variable.get("type") == "query" and call:
            inner = call[2] if call[1] == "query_result" else call[2].rpartition(",")[0]
            if inner:
                yield f"${variable['name']}", inner


def _besides(expr: str, where: str, variables: dict[str, Json], context: LintContext) -> Iterator[tuple[str, str]]:
    """Yield problems of queries outside of panels."""
    try:
        tree = parse(expr)
    except PromqlError as error:
        yield f"no PromQL: {error}: {expr}", "Try it in Prometheus."
        return
    for node, _ in tree.walk():
        # A variable's query reads the index once; an annotation's is evaluated over the whole range.
        if node.kind == "selector" and where.startswith("mark"):
            yield from _whole_fleet(node)
    yield from _names(tree, context)
    yield from _variables(tree, variables)
    if not where.startswith("$"):
        yield from _clusters(tree, variables)
        yield from _runs(tree)


def _clusters(tree: Expression, variables: dict[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield queries in which two clusters with the same names of nodes or runs would be one."""
    if LABEL in variables:
        for node in unchosen(tree):
            heartbeat = ("alertname", "=", "Watchdog") in node.matchers
            if not _OF_NO_CLUSTER.fullmatch(node.name) and not heartbeat:
                yield f"{node.name} of all clusters, on a board of one", 'Choose it: cluster="$cluster".'
    else:
        apart = {
            node.name for node, _ in tree.walk() if node.kind == "selector" and _OF_NO_CLUSTER.fullmatch(node.name)
        }
        for mixed in mixing(tree, apart):
            yield f"{mixed} makes one of several clusters", "Keep the label: by (cluster, ...), on (cluster, ...)."


def _runs(tree: Expression) -> Iterator[tuple[str, str]]:
    """Yield what takes runs of one name for one."""
    for mixed in runs.confusing(tree):
        yield f"{mixed} makes one of several runs of a name", "Keep the job: by (run, job_id, ...)."
    for name in runs.unchosen(tree):
        yield f"{name} of all runs of a name, on a board of one", 'Choose its job, too: job_id=~"$jobs|".'


def _problems(tree: Expression, target: Json, seen: bool) -> Iterator[tuple[str, str]]:
    for node, under in tree.walk():
        if node.kind == "call" and node.name in _RATES:
            yield from _windows(node)
        if node.kind == "selector":
            yield from _counters(node, under)
            yield from _batches(node, target)
            if seen:
                yield from _whole_fleet(node)
        if node.kind == "aggregation" and node.name in _TOP and not target.get("instant") and not _at_end(node):
            remedy = "Ask instantly, or choose with `and topk(..., max_over_time(...[$__range] @ end()))`."
            yield f"{node.name} over a range draws every series that was ever among them", remedy
    yield from _calm_zero(tree)
    yield from _idle(tree)


def _windows(call: Expression) -> Iterator[tuple[str, str]]:
    for node, _ in call.walk():
        if node.kind == "selector" and node.window not in _WINDOWS:
            yield (
                f"{call.name}() over [{node.window}]: at a long range it looks at a part of the time axis only",
                "Use [$__rate_interval], or a recording rule.",
            )


def _is_growth(node: Expression) -> bool:
    """Return whether the expression is a series minus itself some time before."""
    if node.name != "-" or [each.kind for each in node.parts] != ["selector", "selector"]:
        return False
    now, before = node.parts
    return now.name == before.name and now.matchers == before.matchers and bool(before.offset) and not now.offset


def _counters(node: Expression, under: tuple[Expression, ...]) -> Iterator[tuple[str, str]]:
    functions = {outer.name for outer in under if outer.kind in ("call", "aggregation")}
    known = functions & {*_OF_COUNTERS, "count", "group"} or any(map(_is_growth, under))
    if node.name.endswith("_total") and ":" not in node.name and not known:
        yield f"the counter {node.name} is shown bare", "Use rate() or increase()."


def _batches(node: Expression, target: Json) -> Iterator[tuple[str, str]]:
    if node.name.startswith(_BATCHES) and not node.window:
        yield (
            f"{node.name} has a sample per batch: a plain query shows one per step of the panel",
            "Ask instantly for a range ([${points}s]), or use *_over_time.",
        )
    elif node.name.startswith(_BATCHES) and target.get("range") and target.get("instant"):
        yield "instant and range at once is an error for a range selector", "Set range to false."


def _whole_fleet(node: Expression) -> Iterator[tuple[str, str]]:
    """Yield raw series of all nodes in a panel that is queried whenever the board opens.

    A variable of several nodes is a choice of the board's own, which is not all of them.
    """
    pinned = any(
        label == "node" and (operator == "=" or (operator == "=~" and value.startswith("$")))
        for label, operator, value in node.matchers
    )
    batches = node.name.startswith(_BATCHES)
    if ":" not in node.name and node.name.startswith(_FLEET) and not pinned and not batches:
        remedy = 'Record it in alert_rules/, pin node="$node", or move the panel into a folded row.'
        yield f"{node.name} of the whole cluster is worked out for each viewer", remedy


def _idle(tree: Expression) -> Iterator[tuple[str, str]]:
    """Yield medians and bands of metrics that depend on work but include idle GPUs."""
    if any(node.kind == "selector" and "idle" in node.name for node, _ in tree.walk()):
        return
    for node, under in tree.walk():
        middle = any(outer.kind == "aggregation" and outer.name in _MIDDLES for outer in under)
        if node.kind == "selector" and middle and _OF_WORK.fullmatch(node.name):
            remedy = (
                "Ask gpu:pyrometer_gpu_quantity:now, or add `unless on (cluster, node, gpu) gpu:pyrometer_gpu:idle`."
            )
            yield f"idle GPUs are in the middle of {node.name}", remedy


def _calm_zero(tree: Expression) -> Iterator[tuple[str, str]]:
    for node, _ in tree.walk():
        if (
            node.kind == "binary"
            and node.name == "or"
            and node.parts[1].kind == "call"
            and node.parts[1].name == "vector"
        ):
            remedy = "Make the zero of something that exists: `or on () 0 * count(up{...})`."
            yield "`or vector(0)` shows a calm 0 where there is no data at all", remedy


def _at_end(node: Expression) -> bool:
    return any(inner.at == "end" for inner, _ in node.walk())


def _names(tree: Expression, context: LintContext) -> Iterator[tuple[str, str]]:
    for node, _ in tree.walk():
        known = not context.metrics or node.name in context.metrics or _OTHERS.fullmatch(node.name)
        if node.kind == "selector" and not node.name.startswith("$") and not known:
            yield f"no exporter and no rule has {node.name}", "See docs/metrics.md and alert_rules/."


def _variables(tree: Expression, variables: dict[str, Json]) -> Iterator[tuple[str, str]]:
    for node, _ in tree.walk():
        for label, operator, value in node.matchers:
            for used in _VARIABLE.findall(value):
                variable = variables.get(used)
                several = bool(variable and (variable.get("multi") or variable.get("includeAll")))
                if several and operator not in ("=~", "!~"):
                    yield f"{label}{operator}${used}: a choice of several", "Match it with =~."
                if variable and not several and operator in ("=~", "!~"):
                    yield f"{label}{operator}${used}: a choice of one", "Match it with =, so that its dots mean dots."
