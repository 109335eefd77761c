"""Functions with which a fabric manager reaches the NVSwitches are told from HCAs by their place, or their data."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyrometer_exporters.node.nic.fabric_functions import RdmaFunction, fabric_functions

CHIP, MELLANOX, AMAZON = "0x1021", "0x15b3", "0x1d0f"


def cards(
    *addresses: str, by_gpu: bool = False, vendor: str = MELLANOX, layer: str = "InfiniBand"
) -> list[RdmaFunction]:
    return [RdmaFunction(f"at_{address}", address, layer, CHIP, vendor, by_gpu) for address in addresses]


RAILS = cards(*(f"0000:{bus}:00.0" for bus in ("1a", "3c", "4d", "5e", "9b", "bc", "cc", "dc")), by_gpu=True)
FOUR_OF_ONE = cards(*(f"0000:c3:00.{number}" for number in range(4)))
SIDE_BY_SIDE = cards(*(f"0000:{bus}:00.0" for bus in ("05", "06", "07", "08")))
PAIRS = cards("0000:05:00.0", "0000:05:00.1", "0000:a5:00.0", "0000:a5:00.1")
EFA = cards("0000:4f:00.0", "0000:50:00.0", vendor=AMAZON, layer="Unknown")


@pytest.mark.parametrize(
    ("others", "limited"),
    [([], []), (FOUR_OF_ONE, FOUR_OF_ONE), (SIDE_BY_SIDE, SIDE_BY_SIDE), (PAIRS, [])],
    ids=["none", "four of one card", "four side by side", "two dual cards for storage"],
)
def test_they_are_known_by_their_place(others: Sequence[RdmaFunction], limited: Sequence[RdmaFunction]) -> None:
    assert fabric_functions([*RAILS, *others]) == {function.device for function in limited}


def test_amazons_are_all_that_is_infiniband() -> None:
    functions = cards("0000:73:00.0", "0000:74:00.0")
    assert fabric_functions([*EFA, *functions]) == {function.device for function in functions}


def test_what_their_vital_product_data_say_goes_first() -> None:
    said = PAIRS[0].device
    assert fabric_functions([*RAILS, *PAIRS], lambda device: b"SMDL=SW_MNG" if device == said else b"") == {said}
