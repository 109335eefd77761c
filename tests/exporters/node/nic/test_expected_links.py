"""A link that was never up is expected up only when all its peers are."""

from __future__ import annotations

from typing import Any


def expected(node: Any, device: str = "mlx5_0") -> float | None:
    value: float | None = node.scrape().value("expected_up", device, "1")
    return value


def test_the_only_link_of_its_kind_that_is_down_is_expected_up(four_nics: Any) -> None:
    four_nics.nic.down()
    assert expected(four_nics) == 1
    assert four_nics.scrape().value("link_up", "mlx5_0", "1") == 0


def test_two_that_are_down_may_never_have_been_cabled(four_nics: Any) -> None:
    four_nics.nic.down()
    four_nics.tree.nic("mlx5_1").down()
    assert expected(four_nics) == 0


def test_two_peers_are_no_evidence(four_nics: Any) -> None:
    four_nics.tree.unplug("mlx5_3")
    four_nics.nic.down()
    assert expected(four_nics) == 0


def test_other_boards_are_no_peers(four_nics: Any) -> None:
    (four_nics.nic.folder / "board_id").write_text("MT_0000000001\n")
    four_nics.nic.down()
    assert expected(four_nics) == 0


def test_a_port_that_an_administrator_disabled_is_not_expected_up(four_nics: Any) -> None:
    four_nics.nic.admin_down()
    assert expected(four_nics) == 0
