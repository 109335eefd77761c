"""UFM's events by number, with our names, and which are about a port, a switch or a host.

Numbers and meanings: NVIDIA UFM Enterprise User Manual, "Supported Traps and Events", and NVIDIA's InfiniBand cluster
operations guide. Other events are counted under their number with the name ``other``.
"""

from __future__ import annotations

NAMES = {
    64: "gid_out_of_service",
    65: "gid_in_service",
    66: "multicast_group_created",
    67: "multicast_group_deleted",
    110: "symbol_errors",
    112: "link_downed_counter",
    113: "receive_errors",
    115: "receive_switch_relay_errors",
    116: "transmit_discards",
    117: "transmit_constraint_errors",
    118: "receive_constraint_errors",
    120: "buffer_overruns",
    121: "vl15_dropped",
    328: "link_up",
    329: "link_down",
    331: "node_down",
    332: "node_up",
    336: "port_disabled",
    394: "switch_critical_failure",
    603: "events_suppressed",
    702: "port_unhealthy",
    907: "switch_down",
    908: "switch_up",
    915: "bit_errors_critical",
    916: "bit_errors_high",
    917: "symbol_bit_errors",
    918: "symbol_bit_errors_warning",
    919: "cable_temperature_high",
    920: "cable_temperature_low",
    1500: "cable_new",
    1502: "cable_moved",
    1503: "cable_serial_duplicate",
}
OTHER = "other"

LINK_UP, LINK_DOWN, SUPPRESSION, UNHEALTHY = 328, 329, 603, 702
# These are counted per port, switch or host, and per cable where a serial is named: someone may have to go there.
PLACED = frozenset(
    {
        110,
        112,
        113,
        115,
        116,
        117,
        118,
        120,
        121,
        329,
        331,
        336,
        394,
        702,
        907,
        915,
        916,
        917,
        918,
        919,
        920,
        1502,
        1503,
    }
)


def name_of(number: int) -> str:
    """Return the event's name.

    >>> name_of(329), name_of(4711)
    ('link_down', 'other')
    """
    return NAMES.get(number, OTHER)
