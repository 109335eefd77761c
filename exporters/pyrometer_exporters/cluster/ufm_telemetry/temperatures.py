"""Read UFM Telemetry's CSV, whichever release wrote it: the temperatures of modules in ports, and of switches' sensors.

Source: NVIDIA UFM Enterprise User Manual, "Telemetry" (``curl http://HOST:9002/csv/xcset/low_freq_debug``) and NVIDIA
UFM Telemetry Documentation, "Cable Info" and "Switch Info", which list the columns. A table begins with its header,
several follow each other::

    timestamp,source_id,tag,Node_GUID,port_guid,Port_Number,node_description,Module_Temperature
    1768895184442000,0x9c0591030090e000,,0x9c0591030090e000,0x9c0591030090e000,33,MF0;leaf-12:MQM9700/U1,54C

    timestamp,node_guid,sensor_index,mtmp_sensor_name,temperature,max_temperature
    1768895184442000,0x9c0591030090e000,0,asic,61,66
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrometer_exporters.cluster.ufm.fabric import HostPort, plain_guid
from pyrometer_exporters.cluster.ufm.link_ends import switch_port

# Columns without which a line is no header. Releases differ in case: Node_GUID of the primary, node_guid of the others.
IDENTITIES = frozenset({"node_guid", "port_guid"})
# The header of low_freq_debug has some 150 columns.
MAX_COLUMNS = 2000
MAX_FIELD = 256

Row = Mapping[str, str]


def rows(body: bytes) -> Iterator[Row]:
    """Yield the rows of all tables by their columns' names in lower case.

    A line with another number of fields than its header, such as the last one of an answer that was cut off, is left
    out; a field of more than MAX_FIELD characters is empty.
    """
    header: Sequence[str] = ()
    text = io.TextIOWrapper(io.BytesIO(body.replace(b"\0", b"")), encoding="utf-8", errors="replace", newline="")
    for fields in _lines(text):
        if any(field.lower() in IDENTITIES for field in fields):
            header = [field.lower() for field in fields]
        elif header and len(fields) == len(header):
            yield dict(zip(header, fields, strict=True))


def _lines(text: io.TextIOWrapper) -> Iterator[Sequence[str]]:
    """Yield the fields of each line that may be one of a table: none has quotes."""
    while line := text.readline(MAX_COLUMNS * MAX_FIELD):
        fields = line.split(",", MAX_COLUMNS)
        if len(fields) <= MAX_COLUMNS:
            yield [field.strip() if len(field) <= MAX_FIELD else "" for field in fields]


# Imbue's fabric of 4,088 GPUs has 12,000 links: a module at each end. A switch has some ten sensors.
MAX_PORTS = 40_000
MAX_SENSORS = 40_000
# The secondary telemetry looks every 300 s; three looks without a row, and nothing is known of the port.
STALE_SECONDS = 900.0

GUID, PORT = ("node_guid", "port_guid"), ("port_num", "port_number", "port")
# Module_Temperature of the ports' table, Temperature of the cables' own.
MODULE = ("module_temperature", "temperature")
# "0", "0C", "NA", "N/A" and nothing: a copper cable or an empty port. "54C" in the ports' table, "54" in the cables'.
_CELSIUS = re.compile(r"(-?\d{1,3}(?:\.\d+)?) ?C?", re.ASCII)
# MF0;leaf-12:MQM9700/U1 of a managed switch: its name is between the semicolon and the colon.
_MANAGED = re.compile(r"[^;]*;(?P<name>[^:;]+):[^:]*")


class ModulePlace(NamedTuple):
    """Name the port that a module is in, by the labels of its metric.

    A host's port has node, device and port; a switch's has switch (its GUID where it has no name) and switch_port.
    """

    node: str
    device: str
    port: str
    switch: str
    switch_port: str


@dataclass
class Temperatures:
    """Temperatures of one answer, in degrees Celsius."""

    modules: dict[ModulePlace, float] = field(default_factory=dict)
    sensors: dict[tuple[str, str], float] = field(default_factory=dict)
    """By switch and sensor."""
    left_out: int = 0
    stale: int = 0
    newest: float = 0.0
    """Unix time of the newest row; 0 where rows have none."""


def temperatures(table: Iterable[Row], hosts: Mapping[str, HostPort], now: float) -> Temperatures:
    """Return the temperatures of an answer's rows.

    Args:
        table: the rows of all tables of the answer.
        hosts: the ports that node exporters report, by GUID in plain lower-case hexadecimal.
        now: unix time; rows that are older than STALE_SECONDS are left out.
    """
    result = Temperatures()
    names: dict[str, str] = {}
    sensors: dict[tuple[str, str], float] = {}
    for row in table:
        if not _is_fresh(row, now, result):
            continue
        guid = _guid(row, GUID)
        if guid not in names and len(names) < MAX_PORTS and (name := switch_name(row.get("node_description", ""))):
            names[guid] = name
        if "mtmp_sensor_name" in row or "sensor_index" in row:
            _add_sensor(row, guid, sensors, result)
        else:
            _add_module(row, guid, hosts, names, result)
    result.sensors = {(names.get(guid, guid), sensor): celsius for (guid, sensor), celsius in sensors.items()}
    return result


def celsius_of(text: str) -> float | None:
    """Return a temperature, or None where there is no sensor.

    >>> celsius_of("54C"), celsius_of("61"), celsius_of("0C"), celsius_of("N/A")
    (54.0, 61.0, None, None)
    """
    match = _CELSIUS.fullmatch(text.strip())
    value = float(match[1]) if match else 0.0
    return value or None


def switch_name(description: str) -> str:
    """Return a switch's name from its node description; empty where that names none.

    >>> switch_name("MF0;leaf-12:MQM9700/U1"), switch_name("Quantum Mellanox Technologies"), switch_name("leaf-13")
    ('leaf-12', '', 'leaf-13')
    """
    managed = _MANAGED.fullmatch(description.strip())
    if managed:
        return managed["name"].strip()
    return description.strip() if description.strip() and " " not in description.strip() else ""


def _is_fresh(row: Row, now: float, result: Temperatures) -> bool:
    """Return whether a row is of now; its stamp is in microseconds, and a row without one was made for the answer.

    A stamp of the future is no newest row: it would hide for ever that nothing new comes.
    """
    stamp = row.get("timestamp", "")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 20):
        return True
    at = int(stamp) / 1e6
    if at <= now + STALE_SECONDS:
        result.newest = max(result.newest, at)
    if abs(now - at) <= STALE_SECONDS:
        return True
    result.stale += 1
    return False


def _guid(row: Row, names: Iterable[str]) -> str:
    given = next((row[name] for name in names if row.get(name)), "")
    return plain_guid(given).zfill(16)


def _add_sensor(row: Row, guid: str, sensors: dict[tuple[str, str], float], result: Temperatures) -> None:
    celsius = celsius_of(row.get("temperature", ""))
    sensor = row.get("mtmp_sensor_name") or row.get("sensor_index", "")
    if celsius is None or not sensor:
        return
    if len(sensors) >= MAX_SENSORS:
        result.left_out += 1
    else:
        # Two ASICs of one switch may have one name: the hotter one counts.
        sensors[guid, sensor] = max(celsius, sensors.get((guid, sensor), celsius))


def _add_module(
    row: Row, guid: str, hosts: Mapping[str, HostPort], names: Mapping[str, str], result: Temperatures
) -> None:
    celsius = next((celsius_of(row[name]) for name in MODULE if name in row), None)
    number = next((row[name] for name in PORT if row.get(name)), "")
    if celsius is None or not number:
        return
    host = hosts.get(_guid(row, ("port_guid",)))
    if host is not None:
        place = ModulePlace(host.node, host.device, host.port, "", "")
    else:
        label = switch_port(row.get("port_label") or row.get("port_name") or number)
        place = ModulePlace("", "", "", names.get(guid, guid), label)
    if place not in result.modules and len(result.modules) >= MAX_PORTS:
        result.left_out += 1
    else:
        result.modules[place] = celsius
