"""UFM's events by number, with our names, and which are about a port, a switch or a host.

Numbers and meanings: NVIDIA UFM Enterprise User Manual, "Supported Traps and Events", and NVIDIA's InfiniBand cluster
operations guide. Other events are counted under their number with the name ``other``.
"""

from __future__ import annotations

# These are counted per port, switch or host, and per cable where a serial is named: someone may have to go there.
PLACED = {
    110: "symbol_errors",
    112: "link_downed_counter",
    113: "receive_errors",
    115: "receive_switch_relay_errors",
    116: "transmit_discards",
    117: "transmit_constraint_errors",
    118: "receive_constraint_errors",
    120: "buffer_overruns",
    121: "vl15_dropped",
    329: "link_down",
    331: "node_down",
    336: "port_disabled",
    394: "switch_critical_failure",
    702: "port_unhealthy",
    907: "switch_down",
    915: "bit_errors_critical",
    916: "bit_errors_high",
    917: "symbol_bit_errors",
    918: "symbol_bit_errors_warning",
    919: "cable_temperature_high",
    920: "cable_temperature_low",
    1502: "cable_moved",
    1503: "cable_serial_duplicate",
}
NAMES = {
    **PLACED,
    64: "gid_out_of_service",
    65: "gid_in_service",
    66: "multicast_group_created",
    67: "multicast_group_deleted",
    328: "link_up",
    332: "node_up",
    603: "events_suppressed",
    908: "switch_up",
    1500: "cable_new",
}
OTHER = "other"

LINK_UP, LINK_DOWN, SUPPRESSION, UNHEALTHY = 328, 329, 603, 702


def name_of(number: int) -> str:
    """Return the event's name.

    >>> name_of(329), name_of(4711)
    ('link_down', 'other')
    """
    return NAMES.get(number, OTHER)
