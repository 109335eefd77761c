"""Read the temperatures of a device and its module: ``hwmon`` of the PCI function (mlx5 since kernel 6.6).

A module has a sensor only if it was plugged in when the driver was loaded. Each read is a firmware command.
Sample::

    $ cd /sys/class/infiniband/mlx5_0/device/hwmon/hwmon5; cat temp1_label temp1_input temp1_crit
    asic
    54125
    105000
"""

from __future__ import annotations

import re

from pyrometer_exporters.framework.metrics import Families
from pyrometer_exporters.node.nic.readings import DeviceAccess, Temperature
from pyrometer_exporters.node.nic.sysfs import Folder
from pyrometer_exporters.node.nic.tiers import TEMPERATURES

_INPUT = re.compile(r"temp(\d{1,3})_input", re.ASCII)
_MILLIDEGREES = re.compile(r"-?\d{1,9}", re.ASCII)

# fmt: off
FAMILIES = Families("device", "sensor")
CELSIUS = FAMILIES.gauge("pyrometer_nic_temperature_celsius",
    "Temperature of the device (asic) or its module, in degrees Celsius. hwmon: temp<n>_input.")
CRITICAL_CELSIUS = FAMILIES.gauge("pyrometer_nic_temperature_critical_celsius",
    "The temperature that the firmware calls critical, in degrees Celsius. hwmon: temp<n>_crit.")
# fmt: on


def read_temperatures(access: DeviceAccess, path: str) -> tuple[Temperature, ...]:
    """Read all sensors of the device whose class folder is at ``path``, every 60 s."""
    return access.cache.get(TEMPERATURES, path, lambda: tuple(_read(access, f"{path}/device/hwmon")))


def _read(access: DeviceAccess, path: str) -> list[Temperature]:
    sensors = []
    try:
        for name in sorted(access.folders.get(path).names):
            folder = access.folders.get(f"{path}/{name}")
            numbers = sorted(int(match[1]) for match in map(_INPUT.fullmatch, folder.names) if match)
            sensors += [sensor for number in numbers if (sensor := _sensor(folder, number)) is not None]
    except OSError:
        return sensors
    return sensors


def _sensor(folder: Folder, number: int) -> Temperature | None:
    celsius = _celsius(folder.text(f"temp{number}_input"))
    label = folder.text(f"temp{number}_label") or f"temp{number}"
    return None if celsius is None else Temperature(label, celsius, _celsius(folder.text(f"temp{number}_crit")) or None)


def _celsius(text: str | None) -> float | None:
    """Parse millidegrees, such as ``54125``, into degrees; None for anything else."""
    return int(text) / 1000 if text is not None and _MILLIDEGREES.fullmatch(text) else None
