"""Which faults are played on a pair, and the table of what they cost."""

from __future__ import annotations

from pyrometer_simulator.pair.faults import HEADINGS, Outcome, every, heading, row


def test_each_service_is_killed_and_paused() -> None:
    assert list(every(["a", "query"])) == [
        ("-", "none"), ("a", "killed"), ("a", "paused"), ("query", "killed"), ("query", "paused"),
    ]  # fmt: skip


def test_a_row_has_a_cell_for_each_heading() -> None:
    rows = [*heading(), row("Thanos", Outcome("a", "paused", 60.0, told=1)), row("Mimir", Outcome("-", "none", told=2))]
    assert {each.count("|") for each in rows} == {len(HEADINGS) + 1}
    assert rows[2] == "| Thanos | Prometheus a | paused | 60 | 0 | 0 | 0 | 0 | 0 | once |"
    assert rows[3].endswith("| 2 times |")


def test_an_outcome_is_good_only_without_a_loss_and_with_one_alert() -> None:
    assert Outcome("a", "paused", told=1).good
    assert not Outcome("a", "paused", told=1, lost=1).good
    assert not Outcome("a", "paused", told=0).good
    assert not Outcome("a", "paused", told=2).good
