"""Fabric: which rail, which switch, which cable? Flaps, errors, congestion and rates of all ports."""

from __future__ import annotations

from pyrometer_dashboards import fabric_panels, palette, panels, proof
from pyrometer_dashboards.common import CLUSTER, CLUSTERS, FABRIC, FIRING, MARKS, NODE_OF_ROW, NODE_OF_SERIES
from pyrometer_dashboards.model import Board, Panel, Query, Reading, Row
from pyrometer_dashboards.proof import Healthy

_PORT = "{{node}} {{device}}/{{port}}"
_FLAPS = f"port:pyrometer_nic_link_down_events:new5m{{{CLUSTER}}}"
# Losses of the range are recorded each 5 minutes; those of the last minutes are in the live count of 10.
_LOST = (
    f"max by (node, device, port) (label_replace(sum by (node, device, port) (sum_over_time({_FLAPS}[$__range])), "
    '"of", "range", "", "") or label_replace(max by (node, device, port) '
    f'(port:pyrometer_nic_link_down_events:increase10m{{{CLUSTER}}} > 0), "of", "now", "", ""))'
)
_WORSE = [(None, palette.WATCH), (3, palette.BAD), (10, palette.WORST)]


def board() -> Board:
    """Return the board as data."""
    return Board(
        uid=FABRIC,
        title="Pyrometer / Fabric",
        question="Which rail, which switch, which cable: flaps, errors, congestion and rates of all ports?",
        needs="the node exporter on nodes with InfiniBand or RoCE ports",
        tags=["hardware"],
        time_from="now-6h",
        variables=[CLUSTERS],
        annotations=[*MARKS, FIRING],
        rows=[
            # The first screen of a laptop: every kind of bad port, by its name.
            Row([_down(), _lost_now(), _flapping_now(), _errors_now()], height=3),
            Row([_flaps(), _errors()], height=7),
            Row([_slow_links(), _pinned()], height=14),
            Row([_by_switch(), _over_time()]),
            Row([_received(), _sent(), _waits()]),
            Row([_congested(), _states()], height=9),
            Row([fabric_panels.events(), fabric_panels.hot_modules()]),
            Row([fabric_panels.hot_switches(), fabric_panels.roce()]),
        ],
    )


def _down() -> Panel:
    return panels.stat(
        "Ports down",
        Reading(
            "Ports that should be up (they were, and nobody switched them off) and are not.",
            "0.",
            "The table of states below says since when; all of one switch: the switch.",
            "NicLinkDown",
        ),
        f"sum(rail:pyrometer_nic_ports:down{{{CLUSTER}}})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.BAD), (8, palette.WORST)],
        span=6,
    )


def _lost_now() -> Panel:
    return panels.stat(
        "Links lost, 10 min",
        Reading(
            "Losses of a link in the last 10 minutes, all ports together, from counters: none hides between two "
            "scrapes.",
            "0.",
            "See which ports below.",
            "NicLinkFlapping",
        ),
        f"sum(port:pyrometer_nic_link_down_events:increase10m{{{CLUSTER}}})",
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (3, palette.BAD), (100, palette.WORST)],
        span=6,
    )


def _flapping_now() -> Panel:
    return panels.stat(
        "Worst port, 10 min",
        Reading(
            "The port that lost its link most often in the last 10 minutes, and its number of losses.",
            "nobody.",
            "Three and more is a flapping link: reseat or replace the cable.",
            "NicLinkFlapping",
        ),
        panels.worst(
            f"port:pyrometer_nic_link_down_events:increase10m{{{CLUSTER}}}", 0, "$1 $2/$3", "node", "device", "port"
        ),
        unit="locale",
        steps=[(None, palette.QUIET), (1, palette.WATCH), (3, palette.BAD), (10, palette.WORST)],
        name="{{who}}",
        link=NODE_OF_SERIES,
        span=6,
    )


def _errors_now() -> Panel:
    return panels.stat(
        "Ports with errors",
        Reading(
            "Ports that counted any error in the last 5 minutes: symbols, recoveries, bad packets, timeouts, retries.",
            "a few; a bit error now and then is normal at 400 Gb/s.",
            "Sort the table below: one port with many is a cable.",
        ),
        f"count(count by (node, device, port) (port:pyrometer_nic_errors:increase5m{{{CLUSTER}}})) "
        f"or on () 0 * max({proof.PORTS})",
        unit="locale",
        span=6,
    )


def _flaps() -> Panel:
    return panels.table(
        "Ports that lost their link in the range",
        Reading(
            "The 20 ports that lost their link most often in the time range, with their rail and switch.",
            "'none'.",
            "One port: its cable or transceiver. Several of one switch: the switch. One node: the node.",
            "NicLinkFlappingChronic",
        ),
        f"topk(20, {_LOST}) * on (node, device, port) group_left (rail, switch) port:pyrometer_nic:rail{{{CLUSTER}}}",
        {
            "node": "node",
            "device": "device",
            "port": "port",
            "rail": "rail",
            "switch": "switch",
            "Value": "losses",
        },
        unit="locale",
        steps=_WORSE,
        sort="losses",
        link=NODE_OF_ROW,
        fields={
            "losses": panels.coloured() | {"custom.width": 85},
            "port": {"custom.width": 50},
            "rail": {"custom.width": 50},
        },
        healthy=Healthy("none", proof.past(proof.PORTS)),
        span=14,
    )


def _by_switch() -> Panel:
    return panels.table(
        "Losses by rail and switch",
        Reading(
            "Losses in the time range added up by rail and, where the fabric manager told it, by switch, and over "
            "how many ports.",
            "'none'.",
            "Many ports of one row: it is not the cables.",
            "FabricMassEvent",
        ),
        [
            _joined("sum", _LOST),
            _joined("count", _LOST),
        ],
        {"rail": "rail", "switch": "switch", "Value #A": "losses", "Value #B": "ports"},
        unit="locale",
        sort="losses",
        healthy=Healthy("none", proof.past(proof.PORTS)),
        span=10,
    )


def _joined(how: str, expr: str) -> str:
    """Return a table of ports, summed up by their location."""
    return (
        f"{how} by (rail, switch) (sum by (node, device, port) ({expr}) "
        f"* on (node, device, port) group_left (rail, switch) port:pyrometer_nic:rail{{{CLUSTER}}})"
    )


def _errors() -> Panel:
    return panels.table(
        "Errors of the last 5 minutes",
        Reading(
            "The 20 largest counts of errors by port and kind.",
            "'none', or small numbers of symbol errors.",
            "Symbol errors and recoveries: the cable. Sequence errors and timeouts: loss on the way. Retries "
            "exhausted: a connection died, NCCL says error 12.",
            "NicSymbolErrors",
        ),
        f"topk(20, port:pyrometer_nic_errors:increase5m{{{CLUSTER}}})",
        {"node": "node", "device": "device", "kind": "kind", "Value": "errors"},
        unit="locale",
        decimals=0,
        sort="errors",
        fields={name: {"custom.width": width} for name, width in (("node", 90), ("device", 75), ("errors", 80))},
        link=NODE_OF_ROW,
        healthy=Healthy("none", proof.PORTS),
        span=10,
    )


def _received() -> Panel:
    return panels.lines(
        "Received, by rail",
        Reading(
            "Bits per second received by all ports of a rail, RDMA included.",
            "all rails alike: collectives use them evenly.",
            "One rail below the others: its switches, or a job that leaves it out.",
        ),
        Query(f"rail:pyrometer_nic_port_data_received:bits_rate1m{{{CLUSTER}}}", "rail {{rail}}"),
        unit="bps",
        limits=(0, None),
        overrides=panels.numbered("^rail %s$"),
    )


def _sent() -> Panel:
    return panels.lines(
        "Sent, by rail",
        Reading(
            "Bits per second sent by all ports of a rail, RDMA included.",
            "all rails alike.",
            "As on the left; sent without received is loss.",
        ),
        Query(f"rail:pyrometer_nic_port_data_transmitted:bits_rate1m{{{CLUSTER}}}", "rail {{rail}}"),
        unit="bps",
        limits=(0, None),
        overrides=panels.numbered("^rail %s$"),
    )


def _waits() -> Panel:
    return panels.lines(
        "Congestion, by rail",
        Reading(
            "Ticks per second in which a port had data to send and no credit for it, mean over the ports of the rail. "
            "The length of a tick is the device's own: compare rails, not numbers.",
            "all rails alike.",
            "One rail above the others: a slow receiver or a slow switch on it; the table below names ports.",
        ),
        Query(f"rail:pyrometer_nic_port_transmit_wait:rate1m{{{CLUSTER}}}", "rail {{rail}}"),
        unit="si:ticks/s",
        limits=(0, None),
        overrides=panels.numbered("^rail %s$"),
    )


def _over_time() -> Panel:
    return panels.bars(
        "Losses over time, worst ports",
        Reading(
            "Losses of the link per interval, of the ten ports that lost it most often in the range.",
            "empty.",
            "Regular losses: a bad cable. All at the same moment: a switch.",
            "NicLinkFlappingChronic",
        ),
        Query(
            f"sum by (node, device, port) (sum_over_time({_FLAPS}[$__interval])) and on (node, device, port) "
            f"topk(10, sum by (node, device, port) (sum_over_time({_FLAPS}[$__range] @ end())))",
            _PORT,
            step="5m",
        ),
        unit="locale",
        decimals=0,
        watched=proof.PORTS,
        links=[NODE_OF_SERIES],
        span=14,
    )


def _congested() -> Panel:
    return panels.table(
        "Ports that wait most for credit",
        Reading(
            "The twelve ports with most ticks without credit over the last minute.",
            "names that change, numbers close together.",
            "One port far above: its receiver is slow; look at that node's GPUs.",
        ),
        f"topk(12, port:pyrometer_nic_port_transmit_wait:rate1m{{{CLUSTER}}})",
        {"node": "node", "device": "device", "rail": "rail", "Value": "ticks per second"},
        unit="locale",
        decimals=0,
        sort="ticks per second",
        link=NODE_OF_ROW,
        span=10,
    )


def _states() -> Panel:
    return panels.timeline(
        "State of ports that were down",
        Reading(
            "Ports that were seen down at some scrape of the range. Decoration: a flap shorter than a scrape is "
            "counted above and not drawn here.",
            "empty.",
            "Long red: a dead link. Stripes: a flapping one.",
            "NicLinkDown",
        ),
        [
            Query(
                'label_join(max by (node, device, port) (port:pyrometer_nic_link_up:unsteady{cluster="$cluster"}), '
                '"part", " ", "node", "device") or on () '
                f'label_replace(0 * max({proof.PORTS}) + 1, "part", "every port", "", "")',
                "{{part}}",
            )
        ],
        [panels.state("0", "down", palette.WORST, 1), panels.state("1", "up", palette.HEALTHY, 2)],
        options={"showValue": "never"},
        links=[NODE_OF_SERIES],
        span=14,
    )


def _slow_links() -> Panel:
    return panels.table(
        "Links slower than they were",
        Reading(
            "Ports whose rate is below the largest that they were seen to have.",
            "'none'.",
            "A lane or two of the cable died; reseat it.",
            "NicLinkDegraded",
        ),
        f"port:pyrometer_nic_link_rate:slow{{{CLUSTER}}}",
        {"node": "node", "device": "device", "port": "port", "Value": "rate"},
        unit="bps",
        link=NODE_OF_ROW,
        healthy=Healthy("none", proof.PORTS),
        span=12,
    )


def _pinned() -> Panel:
    return panels.table(
        "Counters that stand at their maximum",
        Reading(
            "Counters of few bits that reached their end: further errors can't be seen in them.",
            "'none'.",
            "Clear them on the device (perfquery -R); until then the rate of those errors is unknown, not zero.",
            "NicCounterSaturated",
        ),
        f"port:pyrometer_nic_counter:saturated{{{CLUSTER}}}",
        {"node": "node", "device": "device", "port": "port", "counter": "counter", "Value": "pinned"},
        link=NODE_OF_ROW,
        fields={"pinned": {"mappings": [panels.state("1", "yes", palette.BAD, 2)], "custom.width": 90}},
        healthy=Healthy("none", proof.PORTS),
        span=12,
    )
