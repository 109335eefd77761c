"""Faults that are played on a pair and on VictoriaMetrics' cluster version, what is compared, and the tables."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyrometer_simulator import failures
from pyrometer_simulator.demo.observe import Prometheus
from pyrometer_simulator.failures import Batches
from pyrometer_simulator.pair import faults as pair
from pyrometer_simulator.victoria import faults as victoria


class Stored(Prometheus):
    """A Prometheus with these batches of one run."""

    def __init__(self, *batches: tuple[float, float]) -> None:
        super().__init__("http://nowhere")
        object.__setattr__(self, "batches", list(batches))

    def samples(self, selector: str, at: float) -> list[tuple[float, float]]:
        assert selector == 'pyrometer_train_batch_step{run="r"}[2h]'
        kept: list[tuple[float, float]] = self.batches  # type: ignore[attr-defined]
        return [batch for batch in kept if batch[0] <= at]


def test_each_service_of_a_pair_is_killed_and_paused() -> None:
    assert list(pair.matrix(["a", "query"])) == [
        ("-", "none"), ("a", "killed"), ("a", "paused"), ("query", "killed"), ("query", "paused"),
    ]  # fmt: skip


def test_each_service_of_the_cluster_has_each_fault_and_those_with_a_small_disk_a_full_one() -> None:
    assert list(victoria.matrix(["vmauth"], ["vmselect"])) == [
        ("-", "none"), ("vmauth", "killed"), ("vmauth", "paused"), ("vmselect", "full"), ("vmauth", "cut off"),
    ]  # fmt: skip


RIGHT = [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (RIGHT, (0, 0, 0)),
        (RIGHT[:2], (1, 0, 0)),
        ([*RIGHT, (2.0, 2.0)], (0, 1, 0)),
        ([*RIGHT[:2], (2.5, 2.0)], (0, 0, 1)),
        ([*RIGHT, (2.5, float("nan"))], (0, 0, 0)),
        ([], (3, 0, 0)),
    ],
)
def test_batches_are_lost_twice_or_wrong_against_what_the_references_have_together(
    stored: Sequence[tuple[float, float]], expected: tuple[int, int, int]
) -> None:
    batches = Batches(Stored(*stored), [Stored(RIGHT[0], RIGHT[2]), Stored(RIGHT[1])], ["r"])
    assert batches.differences(9.0) == expected
    assert batches.trained(9.0) == {"r": 3}


def test_references_without_a_batch_are_late_themselves() -> None:
    assert Batches(Stored(), [Stored()], ["r"]).differences(9.0) == (1, 0, 0)


def test_a_row_of_a_pair_has_a_cell_for_each_heading() -> None:
    rows = [
        *failures.heading(pair.HEADINGS),
        pair.row("Thanos", pair.Outcome("a", "paused", 60.0, told=1)),
        pair.row("Mimir", pair.Outcome("-", "none", told=2)),
    ]
    assert {row.count("|") for row in rows} == {len(pair.HEADINGS) + 1}
    assert rows[2] == "| Thanos | Prometheus a | paused | 60 | 0 | 0 | 0 | 0 | 0 | once |"
    assert rows[3].endswith("| 2 times |")


def test_an_outcome_of_a_pair_is_good_only_without_a_loss_and_with_one_alert() -> None:
    assert pair.Outcome("a", "paused", told=1).good
    assert not any(
        pair.Outcome("a", "paused", **bad).good for bad in ({"told": 1, "lost": 1}, {"told": 0}, {"told": 2})
    )


def test_a_row_of_the_cluster_has_a_cell_for_each_heading_and_names_what_ended() -> None:
    bad = victoria.Outcome("vmauth", "full", 60.0, lost=2, problems=["x differs"], restarts=["vmauth"])
    rows = victoria.table([victoria.Outcome("-", "none", 60.0), bad])
    assert {row.count("|") for row in rows} == {len(victoria.HEADINGS) + 1}
    assert rows[2].endswith("| once, in both |")
    assert rows[3].startswith("| vmauth | full | 60 | 2 | 0 | 0 |")
    assert rows[3].endswith("| x differs; vmauth ended and was started again |")
