"""Published outputs of a machine become the files that the machine has."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from pyrometer_simulator.zoo.acts import EVENTS, LOSSES
from pyrometer_simulator.zoo.machine import Description, Machine
from pyrometer_simulator.zoo.page import sources
from pyrometer_simulator.zoo.player import MOST_EVENTS, at_work, descriptions
from pyrometer_simulator.zoo.prints import mountinfo

EVERY = descriptions()
PUBLISHED = 15
PAGE = Path(__file__).parents[3] / "docs/zoo.md"


@pytest.fixture
def h100() -> Description:
    return next(each for each in EVERY if each.folder.name == "hgx-h100-ib-two-ethernet")


@pytest.mark.parametrize("description", EVERY, ids=lambda each: each.folder.name)
def test_a_machine_is_described_in_known_words(description: Description) -> None:
    verbs = {verb for event in description.week for verb in event} - {"after", "what"}
    inner = {verb for event in description.week for verb in event.get("reboot") or ()}
    assert verbs | inner <= EVENTS.keys()
    assert {verb for loss in description.losses for verb in loss} <= LOSSES.keys()
    assert 0 < len(description.week) <= MOST_EVENTS
    assert description.losses
    assert description.sources or description.assumptions
    assert all((description.folder / name).is_file() for name in description.published)
    assert description.sources or not description.published


def test_enough_machines_have_published_prints() -> None:
    assert sum(bool(description.published) for description in EVERY) >= PUBLISHED


def test_the_page_says_what_is_published_rebuilt_and_assumed() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(sources(EVERY))


@pytest.mark.parametrize("description", EVERY, ids=lambda each: each.folder.name)
def test_no_two_functions_have_one_address(description: Description) -> None:
    path = description.folder / "lspci.txt"
    addresses = re.findall(r"^([0-9a-f:]+\.[0-7]) ", path.read_text() if path.exists() else "", re.MULTILINE)
    assert [address for address, times in Counter(addresses).items() if times > 1] == []


def test_a_printed_device_is_where_its_link_says(h100: Description) -> None:
    with at_work(h100) as machine:
        assert machine.real("/sys/class/infiniband/mlx5_3/device").endswith("/0000:39:02.0/0000:3c:00.0")
        assert machine.read("/sys/class/infiniband/mlx5_3/ports/1/state") == "4: ACTIVE"
        assert machine.read("/sys/class/infiniband/mlx5_3/device/max_link_speed") == "32.0 GT/s PCIe"
        assert machine.read("/sys/class/net/ibp60s0/device/vendor") == "0x15b3"
        assert machine.read("/sys/class/net/enp27s0f0np0/flags") == "0x1803"


@pytest.mark.parametrize(
    "line",
    [
        "/dev/sda6 /oem btrfs rw,nodev 0 0",
        "/dev/sda6 on /oem type btrfs (rw,nodev)",
        "7 1 0:7 / /oem rw,nodev shared:7 - btrfs /dev/sda6 rw,nodev",
    ],
)
def test_mounts_are_read_as_each_program_prints_them(line: str) -> None:
    assert mountinfo(line, 7) == "7 1 0:7 / /oem rw,nodev shared:7 - btrfs /dev/sda6 rw,nodev"


def test_what_is_lost_comes_back(h100: Description) -> None:
    with at_work(h100) as machine:
        before = _all_files(machine)
        for entry in h100.losses:
            for verb, argument in entry.items():
                for name in (verb, f"{verb}_after_reboot"):
                    if name in LOSSES:
                        back = machine.mark()
                        assert LOSSES[name](machine, argument)
                        back()
        assert _all_files(machine) == before


def _all_files(machine: Machine) -> dict[Path, str]:
    every = [path for tree in ("sys", "proc") for path in (machine.root / tree).rglob("*")]
    return {
        path: str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
        for path in every
        if path.name != "uptime"
    }
