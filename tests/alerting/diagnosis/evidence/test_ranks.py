"""A node that was scraped before a stall ended shows none of the wait in it, and is not the one that is waited for."""

from __future__ import annotations

import pytest
from alerting_fakes import START, FakePrometheus, training_incident

from pyrometer_alerting.diagnosis.evidence.ranks import waits
from pyrometer_alerting.diagnosis.look import Questions, Rank
from pyrometer_alerting.model.fact import Roster
from pyrometer_kit.prometheus import Series

NODES = ("gpu-001", "gpu-002", "gpu-003", "gpu-004")
RANKS = {str(rank): Rank(NODES[rank // 8], str(rank % 8), "") for rank in range(32)}
DROP = START


class Run(FakePrometheus):
    """A run in which the ranks of one node wait less, and have seen steps of some length."""

    def __init__(self, odd: str, share: float, mean: float) -> None:
        super().__init__()
        self.odd, self.share, self.mean = odd, share, mean

    def instant(self, query: str, at: float) -> list[Series]:
        odd, usual = (self.share, 0.5) if "part_seconds" in query else (self.mean, 3.0)
        if at < DROP:
            odd, usual = 0.3, 0.3
        return [
            Series({"attempt": "0", "rank": rank}, ((at, odd if place.node == self.odd else usual),))
            for rank, place in RANKS.items()
        ]


def blamed(run: Run, seconds: float) -> list[str]:
    """Return the nodes that are waited for so many seconds after the drop."""
    roster = Roster("0", {node: tuple(map(str, range(8))) for node in NODES})
    questions = Questions(run, training_incident(), DROP + seconds, DROP, roster, ranks=RANKS)
    return [fact.labels["node"] for fact in waits(questions).facts]


def test_the_node_that_is_slow_is_named() -> None:
    assert blamed(Run("gpu-002", share=0.3, mean=3.0), 20) == ["gpu-002"]


def test_a_node_whose_scrape_is_from_before_the_stall_is_not() -> None:
    assert blamed(Run("gpu-002", share=0.3, mean=2.0), 20) == []


@pytest.mark.parametrize("mean", [2.0, 3.0])
def test_later_all_have_seen_it(mean: float) -> None:
    assert blamed(Run("gpu-002", share=0.3, mean=mean), 200) == ["gpu-002"]


def test_a_node_that_saw_more_of_longer_steps_and_waits_as_all_do_is_not() -> None:
    assert blamed(Run("gpu-002", share=0.5, mean=3.8), 20) == []
