"""Read the tables of UFM Telemetry's CSV: rows by the names of their columns, whichever release wrote them.

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
from collections.abc import Iterator, Mapping, Sequence

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
