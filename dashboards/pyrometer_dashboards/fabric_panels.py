"""Panels of the fabric beside links and errors: UFM's events, RoCE, hot modules."""

from __future__ import annotations

from pyrometer_dashboards import palette, panels, proof
from pyrometer_dashboards.common import CLUSTER, NODE_OF_ROW, leading_to
from pyrometer_dashboards.model import Panel, Query, Reading
from pyrometer_dashboards.proof import Healthy

_ROCE = {
    "sent again": palette.BAD,
    "congestion marks": palette.BAND,
    "notifications obeyed": palette.BESIDE,
    "pause storms": palette.WORST,
}


def events() -> Panel:
    """Return UFM's events by place."""
    return panels.table(
        "UFM's events in the range",
        Reading(
            "Events of UFM's log that someone may have to go to a port for, by where they happened.",
            "'none'.",
            "An event at one port: its cable. The same event at many ports of a switch: the switch.",
            "FabricEventsIncomplete",
        ),
        "topk(20, sum by (event, node, device, switch, switch_port) "
        f"(increase(pyrometer_ufm_port_events_total{{{CLUSTER}}}[$__range])) > 0)",
        {
            "event": "event",
            "node": "node",
            "device": "device",
            "switch": "switch",
            "switch_port": "switch port",
            "Value": "count",
        },
        unit="locale",
        decimals=0,
        sort="count",
        fields={
            "node": leading_to(NODE_OF_ROW, **{"custom.width": 100}),
            "device": {"custom.width": 75},
            "switch port": {"custom.width": 90},
            "count": {"custom.width": 80},
        },
        no_value="no data: the cluster exporter's collector ufm has it",
        healthy=Healthy("none", proof.past(f"pyrometer_ufm_log_unread_bytes{{{CLUSTER}}}")),
        span=14,
    )


def roce() -> Panel:
    """Return the events of RoCE, all ports together."""
    return panels.lines(
        "RoCE: resent, congestion, pauses",
        Reading(
            "Events per second of all ports: packets sent again (loss), packets that a switch marked and notifications "
            "(CNP) that slowed a sender (congestion), pauses so long that a storm is near. InfiniBand has none.",
            "nothing sent again; marks that come and go with the collectives.",
            "Packets sent again: drops on the way. Marks without end: a slow receiver. The node's board has each node.",
            "NicCongested",
        ),
        Query(f"cluster:pyrometer_nic_roce:rate1m{{{CLUSTER}}}", "{{what}}"),
        unit="cps",
        limits=(0, None),
        no_value="no data: no port speaks RoCE",
        overrides=[panels.fixed(what, colour) for what, colour in _ROCE.items()],
        span=12,
    )


def hot_modules() -> Panel:
    """Return the hottest adapters and modules."""
    return panels.table(
        "Hottest adapters and modules",
        Reading(
            "The twelve hottest of the adapters (asic) and of the modules in their ports.",
            "below 70 °C for a module, all close together.",
            "One far above the others: its fans, or a cover that is missing beside it.",
            "NicModuleHot",
        ),
        f"topk(12, cluster:pyrometer_nic_temperature:top12{{{CLUSTER}}})",
        {"node": "node", "device": "device", "sensor": "sensor", "Value": "temperature"},
        unit="celsius",
        decimals=0,
        steps=[(None, palette.QUIET), (70, palette.WATCH), (80, palette.BAD), (90, palette.WORST)],
        sort="temperature",
        link=NODE_OF_ROW,
        fields={"temperature": panels.coloured() | {"custom.width": 130}},
        no_value="no data: no adapter reports its temperature",
        span=10,
    )


def hot_switches() -> Panel:
    """Return the hottest switches and modules in their ports."""
    modules = f'pyrometer_ufm_module_temperature_celsius{{{CLUSTER}, switch!=""}}'
    named = f'label_replace({modules}, "sensor", "module $1", "switch_port", "(.*)")'
    sensors = f"pyrometer_ufm_switch_temperature_celsius{{{CLUSTER}}}"
    return panels.table(
        "Hottest switches and their modules",
        Reading(
            "The twelve hottest of the switches' own sensors and of the modules in their ports, from UFM Telemetry.",
            "a module below 70 °C, a chip (asic) below 85 °C, all close together.",
            "One far above the others: its fans, or a cable bundle before its outlet.",
            "SwitchHot",
        ),
        f"topk(12, max by (switch, sensor) ({sensors} or {named}))",
        {"switch": "switch", "sensor": "sensor", "Value": "temperature"},
        unit="celsius",
        decimals=0,
        steps=[(None, palette.QUIET), (70, palette.WATCH), (85, palette.BAD), (105, palette.WORST)],
        sort="temperature",
        fields={"temperature": panels.coloured() | {"custom.width": 130}},
        no_value="no data: the cluster exporter has no --collector.ufm-telemetry.url",
        span=12,
    )
