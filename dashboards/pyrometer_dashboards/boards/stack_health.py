"""Stack health: can the other boards be trusted? Targets, scrapes, rules, delivery, and Pyrometer's own cost."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof, stack_panels
from pyrometer_dashboards.common import CLUSTER, CLUSTERS, DEPLOYS, NODE, NODE_OF_ROW, STACK_HEALTH, link
from pyrometer_dashboards.grafana_defaults import NO_DATA_MAPPING
from pyrometer_dashboards.model import Board, Override, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

# Besides the collectors (gpu, nic...): whether each of their parts answers.
_CHECKS = {
    "answers": "up",
    "every health check": "fit",
    "every GPU": "GPUs",
    "every NIC": "NICs",
    "every rank": "ranks",
}


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=STACK_HEALTH,
        title="Pyrometer / Stack health",
        question="Can I believe what I see: targets, scrapes, rules, delivery, and what does Pyrometer itself cost?",
        needs="Prometheus to scrape itself and each part of Pyrometer",
        tags=["pyrometer-itself"],
        time_from="now-3h",
        variables=[CLUSTERS],
        annotations=[DEPLOYS],
        rows=[
            Row(panels.tiles(_nodes(), _heartbeat(), _unsent()), height=3),
            Row(panels.tiles(stack_panels.slow_rules(), _collectors(), _lost()), height=3),
            Row(panels.tiles(_silent(), _failing()), height=9),
            Row(panels.tiles(_checks()), height=10),
            Row([_scrapes(), stack_panels.rules()]),
            Row(panels.tiles(_head(), _versions(), stack_panels.missed())),
            Row([_delivery(), _slack(), _notifications()]),
            Row(panels.tiles(stack_panels.memory(), stack_panels.cpu(), stack_panels.ingestion())),
        ],
    )


def _nodes() -> Panel:
    return panels.stat(
        "Nodes that answer",
        Reading(
            "Share of the node exporters that answered the last scrape.",
            "100 %.",
            "The table below names the silent ones.",
            "NodeExporterDown",
        ),
        f"cluster:up:nodes{{{CLUSTER}}} / on (cluster) cluster:up:nodes_expected{{{CLUSTER}}}",
        unit="percentunit",
        decimals=1,
        steps=[(None, palette.WORST), (0.98, palette.BAD), (0.9999, palette.QUIET)],
    )


def _heartbeat() -> Panel:
    return panels.stat(
        "Since the last heartbeat",
        Reading(
            "Time since the always-firing alert last came through Prometheus and Alertmanager to the alerting service.",
            "below 2 minutes: it comes each minute.",
            "No alert arrives either: look at Alertmanager and the way to it.",
            "Watchdog",
        ),
        "time() - max(pyrometer_alerting_watchdog_last_seen_timestamp_seconds)",
        unit="s",
        decimals=0,
        steps=[(None, palette.QUIET), (120, palette.BAD), (300, palette.WORST)],
    )


def _unsent() -> Panel:
    return panels.stat(
        "Oldest unsent message",
        Reading(
            "Age of the oldest message that Slack has not taken yet: the objective of the alerting service.",
            "below 30 s.",
            "Slack is away, blocks us, or the token is wrong: the service's log and page say which.",
        ),
        "max(pyrometer_alerting_outbox_oldest_age_seconds)",
        unit="s",
        decimals=0,
        steps=[(None, palette.QUIET), (30, palette.WATCH), (300, palette.WORST)],
    )


def _collectors() -> Panel:
    return panels.stat(
        "Collectors that fail",
        Reading(
            "Collectors (GPU, NIC, training, kernel) that did not run to their end on some node.",
            "0.",
            "The table below has the reason.",
            "CollectorFailing",
        ),
        f"count(node:pyrometer_collector_success:failed{{{CLUSTER}}}) or on () 0 * max({proof.COLLECTORS})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD)],
    )


def _lost() -> Panel:
    return panels.stat(
        "Batches lost in 10 minutes",
        Reading(
            "Batches of all runs that were trained and never reached Prometheus.",
            "0.",
            "Is a scrape of /batches failing, or does an exporter restart?",
            "TrainBatchPointsLost",
        ),
        f"sum(run:pyrometer_train_batch_points:lost10m{{{CLUSTER}}})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (3, palette.BAD)],
    )


def _silent() -> Panel:
    return panels.table(
        "Targets that don't answer",
        Reading(
            "Everything that Prometheus scrapes and that did not answer the last time.",
            "'all answer'.",
            "node: the exporter or the node. Others: a service of the monitoring host.",
            "NodeExporterDown",
        ),
        f"up{{{CLUSTER}}} == 0",
        {"job": "job", "node": "node", "instance": "instance", "Value": "answers"},
        fields={name: {"custom.width": width} for name, width in (("job", 60), ("node", 80))}
        | {"answers": {"mappings": [panels.state("0", "no", palette.WORST, 2)], "custom.width": 80}},
        link=NODE_OF_ROW,
        healthy=Healthy("all answer", proof.TARGETS),
    )


def _checks() -> Panel:
    there = [{"title": "Open ${__value.text}", "url": link(NODE, node="${__value.text}")}]
    states = [
        NO_DATA_MAPPING,
        proof.mapping("all checks pass"),
        panels.state("0", "failed", palette.WORST, 1),
        panels.state("1", "ok", palette.QUIET, 2),
    ]
    return Panel(
        "Checks, of nodes where one fails",
        "table",
        Reading(
            "Each node of which a check fails: whether its exporter answers and each collector ran to its end, "
            "whether every GPU, NIC and rank of it answered, and whether it is fit, with each health check that fails.",
            "'all checks pass'.",
            "A column of red: one kind of fault on many nodes, such as a driver. A row: the node.",
            "CollectorFailing",
        ),
        [
            Query(
                f"max by (node, check) (node:pyrometer_check:ok{{{CLUSTER}}} "
                f"and on (node) node:pyrometer_check:ok{{{CLUSTER}}} == 0) or on () "
                # A row without a name: the matrix needs both labels.
                f'label_replace(label_replace(0 * max({proof.CHECKS}) + {proof.NOTHING}, "node", " ", "", ""), '
                '"check", "answers", "", "")',
                instant=True,
                table=True,
            )
        ],
        steps=[(None, palette.QUIET)],
        mappings=states,
        options={"frozenColumns": {"left": 1}},
        custom={**panels.CELLS, "minWidth": 66},
        transformations=panels.matrix("node", "check", renamed={"node\\check": "node", **_CHECKS}, first=["answers"]),
        overrides=[
            Override("node", {**panels.ROW_NAME, "custom.width": 90, "links": there}),
            # Health checks that fail have columns of their own, under names that are long.
            Override("/_/", {"custom.width": 180}, "byRegexp"),
        ],
    )


def _failing() -> Panel:
    return panels.table(
        "What can't be read, and why",
        Reading(
            "Collectors that did not run to their end, and parts of them (a GPU, a port) that can't be read.",
            "'none'.",
            "The reason is the exporter's own word; pyrometer-doctor on the node says more.",
            "CollectorFailing",
        ),
        f"node:pyrometer_down_reason:info{{{CLUSTER}}}",
        {"node": "node", "collector": "collector", "part": "part", "reason": "reason", "Value": "unread"},
        fields={"unread": {"mappings": [panels.state("1", "yes", palette.BAD, 2)], "custom.width": 80}},
        link=NODE_OF_ROW,
        healthy=Healthy("none", proof.COLLECTORS),
    )


def _versions() -> Panel:
    return panels.table(
        "Versions that run",
        Reading(
            "How many exporters run which version.",
            "one row for each kind.",
            "Two rows for one kind: a roll-out that has stopped.",
        ),
        f"max by (exporter, version) (cluster:pyrometer_exporter_build_info:count{{{CLUSTER}}})",
        {"exporter": "exporter", "version": "version", "Value": "running"},
        unit="locale",
        sort="running",
    )


def _scrapes() -> Panel:
    return panels.lines(
        "Time of a scrape",
        Reading(
            "How long a node exporter takes to answer: the slowest, and the 95th percentile.",
            "a few hundredths of a second; the limit is the scrape's timeout.",
            "One node far above: a GPU or a port that hangs; it costs that node alone.",
        ),
        [
            Query(f'cluster:scrape_duration_seconds:quantile{{{CLUSTER}, quantile="1"}}', "slowest"),
            Query(f'cluster:scrape_duration_seconds:quantile{{{CLUSTER}, quantile="0.95"}}', "p95"),
        ],
        unit="s",
        limits=(0, None),
        overrides=[panels.fixed("slowest", palette.BAD), panels.fixed("p95", palette.BAND, lineWidth=2)],
        span=10,
    )


def _head() -> Panel:
    return panels.lines(
        "Series in memory",
        Reading(
            "Series that Prometheus holds in memory.",
            "constant; about 900 for each node.",
            "A steep rise: labels that change with each job or restart.",
        ),
        Query("max(prometheus_tsdb_head_series)", "series"),
        unit="locale",
        limits=(0, None),
        overrides=[panels.fixed("series", palette.BAND, lineWidth=2)],
    )


def _delivery() -> Panel:
    return panels.lines(
        "Messages waiting for Slack",
        Reading(
            "Messages on disk that Slack has not taken yet, and those that were given up.",
            "0 after each incident.",
            "Given up ones: `pyrometer-alerting replay` sends them again.",
        ),
        [
            Query("max(pyrometer_alerting_outbox_depth)", "waiting"),
            Query("max(pyrometer_alerting_outbox_dead)", "given up"),
        ],
        unit="locale",
        decimals=0,
        limits=(0, None),
        custom={"axisSoftMax": 10},
        overrides=[panels.fixed("waiting", palette.BAND, lineWidth=2), panels.fixed("given up", palette.WORST)],
    )


def _slack() -> Panel:
    return panels.bars(
        "Calls of Slack, by outcome",
        Reading(
            "Calls per interval and what Slack answered.",
            "few, all ok.",
            "rate_limited: a storm, messages follow. Others: the token or the channel.",
        ),
        panels.counted("pyrometer_alerting_slack_calls_total", "{{outcome}}", by="outcome"),
        unit="locale",
        decimals=0,
        no_value="no call yet",
        overrides=[panels.fixed("ok", palette.HEALTHY), panels.fixed("rate_limited", palette.WATCH)],
    )


def _notifications() -> Panel:
    return panels.lines(
        "From alert to message",
        Reading(
            "Time from Alertmanager's webhook to Slack's answer: the mean, over the range of each point.",
            "below 5 s.",
            "Above: Slack is slow, or a diagnosis waits for Prometheus.",
        ),
        Query(
            "sum(rate(pyrometer_alerting_webhook_to_slack_seconds_sum[$__rate_interval])) / "
            "sum(rate(pyrometer_alerting_webhook_to_slack_seconds_count[$__rate_interval]))",
            "mean",
        ),
        unit="s",
        limits=(0, None),
        no_value="no message yet",
        overrides=[panels.fixed("mean", palette.BAND, lineWidth=2)],
    )
