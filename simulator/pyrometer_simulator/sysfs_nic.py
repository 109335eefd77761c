"""HCAs and interfaces: the parts of a simulated node whose values change. See :mod:`pyrometer_simulator.sysfs`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyrometer_simulator.sysfs_layout import HW_COUNTERS, INTERFACE_STATISTICS, PMA_MAXIMA, guid_of, mac_of

# Wider than any value that changes: a rate such as "400 Gb/sec (4X NDR)" has 19 characters.
WIDTH = 40
RATES = {100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)", 800: "800 Gb/sec (4X XDR)"}
# The rate that mlx5 reports for a link that is down.
RATE_DOWN = "10 Gb/sec (4X SDR)"
ACTIVE, DOWN = "4: ACTIVE", "1: DOWN"
LINK_UP, POLLING, DISABLED = "5: LinkUp", "2: Polling", "3: Disabled"
FLAGS_UP, FLAGS_DOWN = "0x1003", "0x1002"
# Mean size of a packet of training traffic: the 4 KiB InfiniBand MTU.
PACKET_BYTES = 4096


def write_value(path: Path, value: object) -> None:
    """Write a value to a file in place; a reader sees the old or the new one.

    Raises:
        ValueError: the value is longer than WIDTH bytes.
    """
    data = f"{value}".encode().ljust(WIDTH, b"\n")
    if len(data) > WIDTH:
        msg = f"{value!r} is longer than {WIDTH} bytes"
        raise ValueError(msg)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, data, 0)
    finally:
        os.close(descriptor)


class Values:
    """The changing files of one folder; values are remembered, so that a change needs no read."""

    def __init__(self, folder: Path, values: Mapping[str, object]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._values: dict[str, object] = {}
        for name, value in values.items():
            self.set(name, value)

    def get(self, name: str) -> int:
        """Return a counter's current value."""
        return int(str(self._values[name]))

    def code(self, name: str) -> int:
        """Return the number of a state such as ``4: ACTIVE``."""
        return int(str(self._values[name]).partition(":")[0])

    def holds(self, name: str, value: object) -> bool:
        """Return whether a file has this value."""
        return self._values[name] == value

    def set(self, name: str, value: object) -> None:
        """Write a value if it has changed."""
        if self._values.get(name) != value:
            write_value(self.folder / name, value)
            self._values[name] = value

    def add(self, name: str, by: int, maximum: int | None = None) -> None:
        """Increment a counter; one with a maximum saturates."""
        value = self.get(name) + by
        self.set(name, value if maximum is None else min(value, maximum))

    def zero(self) -> None:
        """Clear all values, as a reset of the device does."""
        for name in self._values:
            self.set(name, 0)


class SimulatedInterface:
    """An interface of net class: ``eth0``, or the IPoIB interface of an HCA."""

    def __init__(self, folder: Path, name: str, index: int, gbps: int, kind: int) -> None:
        self.folder = folder / "net" / name
        self._mbps = gbps * 1000
        self.values = Values(
            self.folder,
            {
                "operstate": "up", "carrier": 1, "flags": FLAGS_UP, "speed": self._mbps, "ifindex": index,
                "carrier_changes": 1, "carrier_up_count": 1, "carrier_down_count": 0,
            },
        )  # fmt: skip
        fixed = {"type": kind, "mtu": 4092, "dev_port": 0, "dev_id": "0x0", "address": mac_of(index), "duplex": "full"}
        for file, value in fixed.items():
            (self.folder / file).write_text(f"{value}\n")
        self.statistics = Values(self.folder / "statistics", dict.fromkeys(INTERFACE_STATISTICS, 0))
        (self.folder / "device").symlink_to("../..")

    @property
    def is_up(self) -> bool:
        """True if there is a carrier."""
        return self.values.get("carrier") == 1

    @property
    def is_switched_on(self) -> bool:
        """True unless an administrator has switched the interface off."""
        return self.values.holds("flags", FLAGS_UP)

    def down(self) -> None:
        """Lose the carrier, if there is one."""
        if self.is_up:
            self.values.add("carrier_changes", 1)
            self.values.add("carrier_down_count", 1)
            self._show("down", 0, -1)

    def train(self) -> None:
        """Show an interface that has had no carrier yet since it was created."""
        self._show("down", 0, -1)

    def up(self) -> None:
        """Regain the carrier, if it was lost."""
        if not self.is_up:
            self.values.add("carrier_changes", 1)
            self.values.add("carrier_up_count", 1)
            self._show("up", 1, self._mbps)

    def flap(self, seconds: float = 0.0, sleep: Callable[[float], None] = time.sleep) -> None:
        """Go down and, ``seconds`` later, up again; blocks meanwhile."""
        self.down()
        sleep(seconds)
        self.up()

    def admin_down(self) -> None:
        """Go down as with ``ip link set down``."""
        self.values.set("flags", FLAGS_DOWN)
        self.down()

    def admin_up(self) -> None:
        """Come up as with ``ip link set up``."""
        self.values.set("flags", FLAGS_UP)
        self.up()

    def traffic(self, sent: int, received: int | None = None) -> None:
        """Count bytes sent and received (by default as many) through the kernel's own network stack."""
        self.statistics.add("tx_bytes", sent)
        self.statistics.add("rx_bytes", sent if received is None else received)

    def _show(self, operstate: str, carrier: int, speed: int) -> None:
        self.values.set("operstate", operstate)
        self.values.set("carrier", carrier)
        self.values.set("speed", speed)


class SimulatedNic:
    """An HCA with one InfiniBand port and its IPoIB interface."""

    def __init__(self, folder: Path, name: str, index: int, gbps: int) -> None:
        self.name = name
        self.folder = folder / "infiniband" / name
        self.guid = guid_of(index)
        port = self.folder / "ports" / "1"
        self._rate = RATES[gbps]
        self.port = Values(port, {"state": ACTIVE, "phys_state": LINK_UP, "rate": self._rate})
        self.counters = Values(port / "counters", dict.fromkeys(PMA_MAXIMA, 0))
        self.hw_counters = Values(port / "hw_counters", dict.fromkeys(HW_COUNTERS, 0))
        self._fixed_files(port)
        self.interface = SimulatedInterface(folder, f"ib{index}", 10 + index, gbps, kind=32)

    @property
    def is_up(self) -> bool:
        """True if the port is ACTIVE."""
        return self.port.holds("state", ACTIVE)

    def down(self, phys_state: str = POLLING) -> None:
        """Lose the link, if it is up."""
        if self.is_up:
            # In the hardware's order: first the counter, then the state.
            self.count("link_downed")
            self.interface.down()
            self._show(DOWN, phys_state, RATE_DOWN)

    def up(self, gbps: int | None = None) -> None:
        """Train the link, at another rate if one is given (a lost lane: 200 of 400)."""
        if gbps is not None:
            self._rate = RATES[gbps]
        self._show(ACTIVE, LINK_UP, self._rate)
        self.interface.up()

    def flap(self, seconds: float = 0.0, sleep: Callable[[float], None] = time.sleep) -> None:
        """Go down and, ``seconds`` later, up again; blocks meanwhile."""
        self.down()
        sleep(seconds)
        self.up()

    def train(self) -> None:
        """Show a link that has not come up yet since the device was reset: down, and nothing lost."""
        self._show(DOWN, POLLING, RATE_DOWN)
        self.interface.train()

    def admin_down(self) -> None:
        """Disable the port as an administrator (``ibportstate disable``)."""
        self.down(DISABLED)

    def traffic(self, sent: int, received: int | None = None) -> None:
        """Count RDMA bytes sent and received (by default as many); a link that is down moves none."""
        if not self.is_up:
            return
        for direction, total in (("xmit", sent), ("rcv", sent if received is None else received)):
            self.counters.add(f"port_{direction}_data", total // 4)
            packets = -(-total // PACKET_BYTES)
            self.counters.add(f"port_{direction}_packets", packets)
            self.counters.add(f"unicast_{direction}_packets", packets)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of either kind, such as ``symbol_error`` or ``local_ack_timeout_err``."""
        if name in PMA_MAXIMA:
            self.counters.add(name, by, PMA_MAXIMA[name])
        else:
            self.hw_counters.set(name, (self.hw_counters.get(name) + by) % (1 << 32))

    def clear(self) -> None:
        """Clear the counters, as ``perfquery -R`` does."""
        self.counters.zero()

    def moved(self, folder: Path) -> None:
        """Move to another folder of the device, with the same files."""
        for values in (self.port, self.counters, self.hw_counters):
            values.folder = folder / values.folder.relative_to(self.folder)
        self.name, self.folder = folder.name, folder

    def _show(self, state: str, phys_state: str, rate: str) -> None:
        self.port.set("state", state)
        self.port.set("phys_state", phys_state)
        self.port.set("rate", rate)

    def heat(self, celsius: float) -> None:
        """Set the temperature of the cable's module."""
        folder = self.folder.parents[1] / "hwmon/hwmon0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "temp1_label").write_text("Module0\n")
        (folder / "temp1_input").write_text(f"{celsius * 1000:.0f}\n")

    def _fixed_files(self, port: Path) -> None:
        (port / "gids").mkdir()
        files = {
            self.folder / "node_guid": self.guid,
            self.folder / "sys_image_guid": self.guid,
            self.folder / "fw_ver": "28.39.2048",
            self.folder / "hca_type": "MT4129",
            self.folder / "board_id": "MT_0000000838",
            self.folder / "node_type": "1: CA",
            port / "link_layer": "InfiniBand",
            port / "gids" / "0": f"fe80:0000:0000:0000:{self.guid}",
            port / "hw_counters" / "lifespan": "10",
        }
        for path, value in files.items():
            path.write_text(f"{value}\n")
        (self.folder / "device").symlink_to("../..")
