"""Find where an event happened: the switch ports and host ports that its line names, and the cable between them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyrometer_exporters.cluster.ufm.lines import Event

# (Switch:leaf-12:1/17/1)9c0591030090e000:33 and (Computer:gpu-174 mlx5_5)b8cef6030012aa00:1
_PAIRED = re.compile(
    r"\((?P<kind>Switch|Computer):\s*(?P<name>[^()]+)\)\s*(?:0x)?(?P<guid>[0-9a-fA-F]{6,16})?(?::(?P<number>\d{1,3}))?"
)
# default / Switch: leaf-12 / 1/17/1, in older versions default(34) / Switch: leaf-12 / NA / 16
_OBJECT = re.compile(r"(?P<kind>Switch|Computer): (?P<name>.+)$")
# Peer info: Computer: c931f03p08 HCA-1 / 1.
_PEER = re.compile(r"Peer info: (?P<kind>Switch|Computer): (?P<name>[^.]*(?:\.(?=\S)[^.]*)*)")
# Peer Port T2-E63-L-U37:1/19/2 is considered by SM as unhealthy due to FLAPPING.
_PEER_PORT = re.compile(r"Peer Port (?P<name>\S.*?) is considered")
_UNHEALTHY = re.compile(r"unhealthy due to (?P<why>\w+)")
_CABLE = re.compile(r"(?:cable )?(?:S/N|serial(?: number)?):?\s*(?P<serial>[A-Za-z0-9][\w\-]{1,31})", re.IGNORECASE)
_DEVICE = re.compile(r"^(?P<device>[a-z][a-z0-9_]*_?\d+)(?:/(?P<port>\d+))?$")
_HCA = re.compile(r"^HCA-(?P<number>\d+)$")


@dataclass(frozen=True)
class LinkEnd:
    """One end of a link, or a whole switch or host.

    Attributes:
        switch: the switch's name; empty for a host.
        node: the host's name; empty for a switch.
        device: of a host, ``mlx5_5``; empty if the line has none.
        port: ``17/1`` of a switch, ``1`` of a host; empty for the whole.
        guid: lower-case hexadecimal; empty where unknown.
    """

    switch: str = ""
    node: str = ""
    device: str = ""
    port: str = ""
    guid: str = ""


def ends(event: Event) -> list[LinkEnd]:
    """Return the ends that the event names, at most two; the first is the one that it was logged for."""
    paired = [_end(m["kind"], m["name"], m["guid"] or "", m["number"] or "") for m in _PAIRED.finditer(event.message)]
    link_ends = [end for end in paired if end is not None][:2]
    if not link_ends:
        named = [_OBJECT.search(event.object), _PEER.search(event.message)]
        link_ends = [end for m in named if m is not None and (end := _end(m["kind"], m["name"])) is not None]
        link_ends += _peer_port(event.message)
    return list(dict.fromkeys(link_ends))[:2]


def cable(event: Event) -> str:
    """Return the serial number of the cable that the event names, or an empty text."""
    match = _CABLE.search(event.message) or _CABLE.search(event.object)
    return "" if match is None or match["serial"].upper() in ("NONE", "UNKNOWN", "N/A") else match["serial"]


def unhealthy_reason(message: str) -> str:
    """Return why a port was declared unhealthy: flapping, unresponsive, noisy, manual; empty if not named."""
    match = _UNHEALTHY.search(message)
    return match["why"].lower() if match else ""


def switch_port(text: str) -> str:
    """Return a switch's port as UFM labels it, without the 1 for the only board.

    >>> switch_port("1/17/1"), switch_port("17/1"), switch_port("NA / 16"), switch_port("16")
    ('17/1', '17/1', '16', '16')
    """
    text = text.strip().removeprefix("NA / ").strip()
    return text[2:] if text.startswith("1/") and text.count("/") == 2 else text


def labelled(number: str) -> str:
    """Return the label of a port from its number, on a switch with two ports per cage (NDR).

    >>> labelled("33"), labelled("8")
    ('17/1', '4/2')
    """
    index = int(number)
    return f"{(index + 1) // 2}/{1 if index % 2 else 2}"


def _end(kind: str, name: str, guid: str = "", number: str = "") -> LinkEnd | None:
    name = name.strip().rstrip(".")
    if not name or "Aggregation Node" in name:  # a switch's own collective engine, not a link
        return None
    return _switch_end(name, guid, number) if kind == "Switch" else _host_end(name, guid, number)


def _switch_end(name: str, guid: str, number: str) -> LinkEnd:
    switch, separator, port = name.partition(" / ")
    if not separator:
        switch, _, port = name.rpartition(":") if ":" in name else (name, "", "")
    return LinkEnd(switch=switch.strip(), port=switch_port(port) or number, guid=guid.lower())


def _host_end(name: str, guid: str, number: str) -> LinkEnd:
    """Parse ``gpu-174 mlx5_5``, ``gpu-174 HCA-6``, ``c931f03p08 HCA-1 / 1`` or ``gpu-174:mlx5_5/1``."""
    body, _, port = name.partition(" / ")
    host, *rest = re.split(r"[\s:]+", body.strip())
    device = ""
    for word in rest:
        if hca := _HCA.match(word):
            device = f"mlx5_{int(hca['number']) - 1}"
        elif plain := _DEVICE.match(word):
            device, port = plain["device"], plain["port"] or port
    return LinkEnd(node=host, device=device, port=port.strip() or number, guid=guid.lower())


def _peer_port(message: str) -> list[LinkEnd]:
    match = _PEER_PORT.search(message)
    if match is None:
        return []
    kind = "Switch" if re.search(r":\d+(?:/\d+){0,2}$", match["name"]) else "Computer"
    end = _end(kind, match["name"])
    return [] if end is None else [end]
