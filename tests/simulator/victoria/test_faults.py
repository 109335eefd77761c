"""Which faults are played, and the table of what they cost."""

from __future__ import annotations

from pyrometer_simulator.victoria.faults import HEADINGS, Outcome, every, table


def test_each_service_has_each_kind_of_fault_and_those_with_a_small_disk_one_more() -> None:
    assert list(every(["vmauth"], ["vmselect"])) == [
        ("-", "none"), ("vmauth", "killed"), ("vmauth", "paused"), ("vmselect", "full"), ("vmauth", "cut off"),
    ]  # fmt: skip


def test_a_row_has_a_cell_for_each_heading_and_names_what_ended() -> None:
    bad = Outcome("vmauth", "full", 60.0, lost=2, problems=["x differs"], restarts=["vmauth"])
    head, line, good, other = table([Outcome("-", "none", 60.0), bad])
    assert {row.count("|") for row in (head, line, good, other)} == {len(HEADINGS) + 1}
    assert good.endswith("| once, in both |")
    assert other.startswith("| vmauth | full | 60 | 2 | 0 | 0 |")
    assert other.endswith("| x differs; vmauth ended and was started again |")
