"""The real node_exporter on the same tree: every value it has, we have, in our units.

Values that are not compared are listed here, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyrometer_simulator.stack import StackError
from pyrometer_simulator.stack.node_exporter import find_node_exporter, running
from pyrometer_simulator.sysfs_drivers import HFI1, IRDMA, MANA, MLX4

BITS_PER_BYTE = 8

# Theirs and ours, where the names differ by more than their prefix. InfiniBand:
RENAMED = {"rate_bytes_per_second": "link_rate_bits_per_second"}
# netclass: our family, or the file of pyrometer_nic_interface_setting.
COUNTERS = {
    "carrier_changes_total": "carrier_changes_total",
    "carrier_down_changes_total": "carrier_down_count_total",
    "carrier_up_changes_total": "carrier_up_count_total",
    "mtu_bytes": "mtu_bytes",
}
SETTINGS = {
    "address_assign_type": "addr_assign_type", "device_id": "dev_id", "dormant": "dormant", "flags": "flags",
    "iface_id": "ifindex", "iface_link": "iflink", "iface_link_mode": "link_mode",
    "name_assign_type": "name_assign_type", "net_dev_group": "netdev_group", "protocol_type": "type",
    "transmit_queue_length": "tx_queue_len",
}  # fmt: skip
# 10 ms divided by 1000 as whole numbers: theirs is always 0. Ours is 0.01.
THEIRS_IS_WRONG = {"lifespan_seconds"}
# Texts, not values: ours are labels of pyrometer_nic_info.
TEXTS = {"info"}


class Theirs(NamedTuple):
    subsystem: str
    name: str
    device: str
    port: str
    value: float


@pytest.fixture(scope="module")
def binary() -> Path:
    try:
        return find_node_exporter(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))


def ask(binary: Path, sysfs: Path) -> list[Theirs]:
    """Node_exporter's values of a tree; that its collectors worked is checked."""
    with running(binary, sysfs) as exporter:
        text = exporter.scrape()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    worked = {s.labels["collector"]: s.value for s in samples if s.name == "node_scrape_collector_success"}
    assert worked == {"infiniband": 1, "netclass": 1}
    found = []
    for sample in samples:
        for subsystem in ("infiniband", "network"):
            name = sample.name.removeprefix(f"node_{subsystem}_")
            if name != sample.name:
                labels = sample.labels
                found.append(Theirs(subsystem, name, labels["device"], labels.get("port", ""), sample.value))
    return found


class Ours:
    """Our scrape, asked in their names."""

    def __init__(self, scrape: Any) -> None:
        self._scrape = scrape
        infos = [s.labels for s in scrape.samples if s.family.name == "pyrometer_nic_info"]
        self.places = {netdev: (device, port) for device, port, netdev, *_ in infos if netdev}

    def value(self, theirs: Theirs) -> float | None:
        """Ours in their unit; None where we have none."""
        value: float | None
        if theirs.subsystem == "infiniband":
            value = self._scrape.value(RENAMED.get(theirs.name, theirs.name), theirs.device, theirs.port)
            return value / BITS_PER_BYTE if value is not None and theirs.name in RENAMED else value
        at = self.places.get(theirs.device)
        if at is None:
            return None
        if theirs.name in SETTINGS:
            value = self._scrape.value("interface_setting", *at, SETTINGS[theirs.name])
        elif theirs.name in COUNTERS:
            value = self._scrape.value(COUNTERS[theirs.name], *at)
        else:
            value = self._link(theirs.name, at)
        return value

    def _link(self, name: str, at: tuple[str, str]) -> float | None:
        value: float | None
        if name == "speed_bytes":
            value = self._scrape.value("link_rate_bits_per_second", *at)
            return None if value is None else value / BITS_PER_BYTE
        assert name in {"carrier", "up"}, f"node_exporter has {name}, and nobody has said what ours is"
        value = self._scrape.value("link_up", *at)
        return value


def differences(theirs: list[Theirs], ours: Ours) -> list[str]:
    """Where we say something else, or nothing."""
    found = []
    for item in theirs:
        if item.name in TEXTS | THEIRS_IS_WRONG:
            continue
        value = ours.value(item)
        if value is None or not math.isclose(value, item.value, rel_tol=1e-12):
            found.append(f"{item}: ours is {value}")
    return found


def test_every_value_agrees_on_the_recorded_machines(binary: Path, recorded_node: Any) -> None:
    theirs = ask(binary, recorded_node.sysfs)
    assert len(theirs) > 100
    assert differences(theirs, Ours(recorded_node.scrape())) == []


@pytest.fixture
def busy(node: Any) -> Iterator[Any]:
    """A node with something in every file, and devices of every driver that node_exporter can read."""
    for number, nic in enumerate(node.tree.nics):
        for position, name in enumerate(sorted(path.name for path in nic.counters.folder.iterdir())):
            nic.counters.set(name, (position * 7 + number) % 15)
        for position, name in enumerate(sorted(path.name for path in nic.hw_counters.folder.iterdir())):
            if name != "lifespan":
                nic.hw_counters.set(name, position * 1000 + number)
        nic.traffic(123_456_789, 987_654_321)
    node.tree.interface("eth0").flap()
    for files in (MLX4, HFI1, IRDMA):
        node.tree.add_device(files)
    return node


def test_every_value_agrees_on_a_simulated_node(binary: Path, busy: Any) -> None:
    theirs = ask(binary, busy.sysfs)
    assert len(theirs) > 200
    # Their mlx4_0/2 is down and reports a rate all the same.
    lies = [item for item in theirs if item[1:4] == ("rate_bytes_per_second", "mlx4_0", "2")]
    assert differences(theirs, Ours(busy.scrape())) == [f"{item}: ours is None" for item in lies]


def test_values_that_node_exporter_lacks_are_served(binary: Path, busy: Any) -> None:
    names = {item.name for item in ask(binary, busy.sysfs)}
    assert names.isdisjoint({"req_transport_retries_exceeded_total", "req_rnr_retries_exceeded_total"})
    scrape = busy.scrape()
    for name in (
        "req_transport_retries_exceeded_total",
        "req_rnr_retries_exceeded_total",
        "link_down_events_total",
        "expected_up",
        "lifespan_seconds",
    ):
        assert scrape.value(name, "mlx5_0", "1") is not None, name
    assert scrape.value("lifespan_seconds", "mlx5_0", "1") == 0.01
    assert scrape.value("counter_saturated", "mlx5_0", "1", "link_downed") == 0
    assert scrape.value("driver_counter_total", "hfi1_0", "", "DcDroppedPkt") is not None


def test_a_device_that_node_exporter_cannot_read_hides_no_other(binary: Path, busy: Any) -> None:
    """MANA's rate can't be read (node_exporter issue 3810): one such device empties their whole collector."""
    before = len(ask(binary, busy.sysfs))
    busy.tree.add_device(MANA)
    with running(binary, busy.sysfs) as exporter:
        after = exporter.scrape()
    assert before > 200
    assert 'node_scrape_collector_success{collector="infiniband"} 0' in after
    scrape = busy.scrape()
    assert scrape.value("out_of_sequence_packets_received_total", "mana_0", "1") is not None
    assert scrape.value("symbol_error_total", "mlx5_0", "1") is not None


def test_a_wrong_value_is_found_out(binary: Path, busy: Any) -> None:
    theirs = ask(binary, busy.sysfs)
    busy.nic.count("symbol_error", 3)
    busy.tree.interface("eth0").values.set("carrier_up_count", 99)
    assert {line.split("'")[3] for line in differences(theirs, Ours(busy.scrape()))} >= {
        "symbol_error_total",
        "carrier_up_changes_total",
    }
