"""The state that survives restarts of the exporter, and failures to save it."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.nic.link_down import CAUSES, PortMemory, Widening
from pyrometer_exporters.node.nic.pci_function import PciFunction
from pyrometer_exporters.node.nic.port_memory import MAX_ABSENT, PortMemories
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading
from pyrometer_exporters.node.nic.state import PortStateFile, decode, encode

UNUSABLE_STATES = [
    "",
    "{",
    "[]",
    "\x00" * 99,
    "[" * 100_000,
    '{"version": 1}',
    '{"version": 9, "ports": {}}',
    '{"version": 1, "ports": {"a": 3}}',
    '{"version": 1, "ports": {"a": {"events": -1}}}',
]


@pytest.mark.parametrize("text", UNUSABLE_STATES, ids=range(len(UNUSABLE_STATES)))
def test_a_state_file_that_cannot_be_used_is_set_aside(node: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (node.state / "nic.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert node.scrape().events() == 0
        node.nic.flap()
        assert node.scrape().events() == 1
    assert len(caplog.records) == 1
    assert (node.state / "nic.json.corrupt").read_text() == text
    json.loads((node.state / "nic.json").read_text())


def test_the_state_is_written_only_when_it_changed(node: Any) -> None:
    node.scrape()
    written = (node.state / "nic.json").stat()
    node.nic.traffic(1_000_000)
    node.scrape()
    assert (node.state / "nic.json").stat() == written


def test_a_state_that_cannot_be_written_is_told_and_written_later(node: Any) -> None:
    (node.state / "nic.json.new").mkdir()
    scrape = node.scrape()
    assert scrape.downs == {"state": "eisdir"}
    assert scrape.events() == 0
    (node.state / "nic.json.new").rmdir()
    assert node.scrape().downs == {}
    assert (node.state / "nic.json").exists()


def test_counts_survive_a_restart(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    before = node.scrape()
    node.stop()
    after = node.scrape()
    for name in ("link_down_events_total", "link_last_down_timestamp_seconds", "link_rate_max_bits_per_second"):
        assert after.value(name, "mlx5_0", "1") == before.value(name, "mlx5_0", "1")


def test_a_state_of_the_first_release_is_understood(node: Any) -> None:
    node.scrape()
    node.nic.flap()
    node.scrape()
    node.stop()
    file = node.state / "nic.json"
    data = json.loads(file.read_text())
    for port in data["ports"].values():
        port["armed"] = port.pop("unarmed") == ""
        for name in ("ignored", "resets", "behind", "last", "last_reason"):
            del port[name]
    file.write_text(json.dumps(data))
    node.nic.flap()
    assert node.scrape().events() == 2


def test_without_a_state_folder_counts_are_kept_in_memory(node: Any) -> None:
    node.state = None
    node.scrape()
    node.nic.flap()
    assert node.scrape().events() == 1
    node.stop()
    assert node.scrape().events() == 0


COUNTS = st.dictionaries(st.text(max_size=5), st.integers(0, 2**40), max_size=3)
MEMORIES = st.builds(
    PortMemory,
    events=st.integers(0, 2**40),
    last_down=st.none() | st.floats(0, 2e9),
    ever_active=st.booleans(),
    rate_max=st.integers(0, 10**12),
    boot=st.text(max_size=40),
    inode=st.integers(0, 2**64 - 1),
    ifindex=st.integers(0, 2**31),
    unarmed=st.sampled_from(["", *CAUSES]),
    ignored=COUNTS,
    resets=COUNTS,
    behind=COUNTS,
    last_reason=st.text(max_size=5),
    active=st.booleans(),
    sources=COUNTS,
    widening=st.builds(Widening, wraps=COUNTS, last=COUNTS),
)


@given(st.dictionaries(st.text(max_size=10), MEMORIES, max_size=4))
def test_any_memory_reads_back_the_same(ports: dict[str, PortMemory]) -> None:
    assert decode(json.loads(encode(ports))) == ports


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from(["events", "sources", "wraps", "last_down", "boot", "ports", "version", "port"]))
def test_a_state_of_any_shape_is_read_or_refused(value: Any, place: str) -> None:
    port: dict[str, Any] = json.loads(encode({"k": PortMemory()}))["ports"]["k"]
    whole: dict[str, Any] = {"version": 1, "ports": {"k": {**port, place: value}}}
    if place in whole:
        whole[place] = value
    if place == "port":
        whole["ports"] = {"k": value}
    with contextlib.suppress(ValueError):
        decode(json.loads(json.dumps(whole)))


class Ports:
    """Memories of ports that come and go; `see` reads some of them in a boot."""

    def __init__(self, folder: Path) -> None:
        self._boot_id = folder / "sys/kernel/random/boot_id"
        self._boot_id.parent.mkdir(parents=True)
        self.memories = PortMemories(PortStateFile(None), folder)

    def see(self, *numbers: int, boot: str = "a", address: str = "") -> None:
        self._boot_id.write_text(boot)
        port = PortReading("1", active=True, admin_down=False, rate=None)
        guids = [f"guid{number}" for number in numbers]
        readings = [DeviceReading(guid, 1, guid, PciFunction(address, ""), "", (port,)) for guid in guids]
        list(self.memories.update(readings, 0))

    def known(self) -> set[int]:
        return {int(key.removeprefix("guid:guid").removesuffix("/1")) for key in self.memories.ports}


def test_ports_that_come_and_go_in_one_boot_are_bounded(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    for number in range(2000):
        ports.see(number, 9999)
    assert ports.known() == {9999, *range(1999 - MAX_ABSENT, 2000)}


def test_however_many_ports_are_present_all_are_remembered(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    everything = range(3 * MAX_ABSENT)
    ports.see(*everything)
    ports.see(*everything)
    assert ports.known() == {*everything}


def test_of_absent_ports_those_of_an_earlier_boot_go_first_and_missed_hardware_last(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    ports.see(0, boot="a", address="0000:18:00.0")  # a card, which somebody may miss
    ports.see(*range(1, 10), boot="a")
    ports.see(*range(10, 10 + MAX_ABSENT), boot="b")
    ports.see(9999, boot="b")
    assert ports.known() == {0, 9999, *range(11, 10 + MAX_ABSENT)}


def test_the_port_absent_longest_is_forgotten_first(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    ports.see(1)
    ports.see(*range(2, 2 + MAX_ABSENT))
    ports.see(1)
    ports.see(9999)
    assert ports.known() == {1, 9999, *range(3, 2 + MAX_ABSENT)}
