"""The samples of a port that are kept from scrape to scrape are those that would be made again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from pyrometer_exporters.framework.metrics import Sample, samples_in
from pyrometer_exporters.node.nic.link_down import PortMemory
from pyrometer_exporters.node.nic.pci_function import PciFunction
from pyrometer_exporters.node.nic.readings import DeviceReading, PortReading
from pyrometer_exporters.node.nic.samples import port_samples


@dataclass(frozen=True)
class _Seen:
    device: DeviceReading
    port: PortReading
    gpu: str = "0000:18:00.0"
    peers_up: bool = True

    def samples(self, memory: PortMemory) -> list[Sample]:
        return samples_in(port_samples(self.device, self.port, memory, gpu=self.gpu, peers_up=self.peers_up))


def _port(**changed: object) -> Callable[[_Seen], _Seen]:
    return lambda seen: replace(seen, port=seen.port._replace(**changed))  # type: ignore[arg-type]


def _device(**changed: object) -> Callable[[_Seen], _Seen]:
    return lambda seen: replace(seen, device=seen.device._replace(**changed))  # type: ignore[arg-type]


SEEN = _Seen(
    DeviceReading("mlx5_0", 1, "", PciFunction("0000:1a:00.0", "mlx5_core", "/pci1"), "28.1", (), board="A"),
    PortReading("1", active=True, admin_down=False, rate=400, netdev="ib0", state_id=4, mtu=4092),
)
CHANGES: dict[str, Callable[[_Seen], _Seen]] = {
    "down": _port(active=False, rate=None, down_reason="no_cable"),
    "unknown": _port(active=None),
    "switched off": _port(admin_down=True, active=False),
    "state": _port(state_id=1, physical_state_id=3),
    "interface": _port(netdev="ib7", mtu=1500, fec_mode="rs", settings=(("tx_queue_len", 256),)),
    "firmware": _device(firmware="28.2"),
    "driver": _device(pci=PciFunction("0000:1a:00.0", "other", "/pci1")),
    "constant link": _device(link_is_constant=True),
    "GPU": lambda seen: replace(seen, gpu=""),
    "peers": lambda seen: replace(seen, peers_up=False),
}
HISTORIES: dict[str, dict[str, object]] = {
    "lost": {"events": 1, "last_down": 5.0, "last_reason": "signal"},
    "active": {"ever_active": True, "rate_max": 400},
    "settling": {"settling": "virtual"},
    "ignored": {"ignored": {"boot": 2}},
    "reset": {"resets": {"wrap": 1}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_change_of_the_port_or_its_device_is_served_at_once(change: Callable[[_Seen], _Seen]) -> None:
    memory = PortMemory()
    before = SEEN.samples(memory)
    after = change(SEEN).samples(memory)
    assert after == change(SEEN).samples(PortMemory()) != before
    assert SEEN.samples(memory) == before


@pytest.mark.parametrize("history", HISTORIES.values(), ids=list(HISTORIES))
def test_a_change_of_its_history_is_served_at_once(history: dict[str, object]) -> None:
    memory = PortMemory()
    before = SEEN.samples(memory)
    for name, value in history.items():
        setattr(memory, name, copy.copy(value))
    assert SEEN.samples(memory) == SEEN.samples(PortMemory(**history)) != before  # type: ignore[arg-type]


def test_what_has_not_changed_is_the_same_object() -> None:
    memory = PortMemory()
    (first,), (second,) = (port_samples(SEEN.device, SEEN.port, memory, gpu="", peers_up=False) for _ in range(2))
    assert first is second
