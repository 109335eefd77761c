"""So that a node's life passes quickly: whatever is read at most every so many seconds is read more often."""

from __future__ import annotations

from pyrometer_exporters.framework import lane
from pyrometer_exporters.node.gpu import field_subject
from pyrometer_exporters.node.nic import device, inventory, sysfs, tiers


def faster(times: float) -> None:
    """Each scrape finds due what it would at intervals that are ``times`` as long."""
    tiers.SLACK /= times
    sysfs.RELIST_SECONDS /= times
    inventory.LOOK_AGAIN_SECONDS /= times
    device.APART_SECONDS /= times
    lane.APART_SECONDS /= times
    field_subject.SELDOM_SECONDS /= times
