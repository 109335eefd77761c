"""Where the time of a run went: each kind of time, each kind of end, and what isn't known."""

from __future__ import annotations

from typing import Any

import pytest

from pyrometer_exporters.cluster.ledger.facts import RunJob


def test_a_run_that_only_trains(world: Any, audit: Any) -> None:
    world.start(20_000)
    world.train(300)
    auditor = audit(world).finish()
    assert auditor.seconds() == {"init": 20.0, "useful": 300.0}
    assert auditor.book.steps == {"useful": 300, "rework": 0}
    assert auditor.book.tokens == 300 * 4096


def test_steps_that_are_taken_again_after_a_restart_are_rework(world: Any, audit: Any) -> None:
    world.start(10_000)
    world.train(100)
    world.crash(after_ms=400, down_ms=60_000)
    world.start(15_000, number=70)
    world.train(50)
    auditor = audit(world).finish()
    assert auditor.seconds()["rework"] == 30.0
    assert auditor.seconds()["useful"] == 120.0
    assert auditor.seconds()["init"] == 25.0
    assert auditor.seconds()["down"] == pytest.approx(60.0, abs=5.4)
    assert auditor.book.lengths == {**dict.fromkeys(auditor.book.lengths, 0), **world.truth}
    assert auditor.book.restarts == 1
    assert auditor.book.tokens == 120 * 4096


def test_a_process_that_begins_before_the_last_one_was_seen_dead_is_told_by_its_beginning(
    world: Any, audit: Any
) -> None:
    world.start(10_000)
    world.train(100)
    world.crash(after_ms=100, down_ms=300)
    world.start(5_000, number=50)
    world.train(100)
    auditor = audit(world).finish()
    assert auditor.book.lengths == {**dict.fromkeys(auditor.book.lengths, 0), **world.truth}


@pytest.mark.parametrize("part", ["checkpoint", "eval"])
@pytest.mark.parametrize("scrape_ms", [5000, 15_000])
def test_parts_between_steps_and_within_them_are_taken_out_exactly(
    make_world: Any, audit: Any, part: str, scrape_ms: int
) -> None:
    world = make_world(scrape_ms)
    world.start(1_000)
    for _ in range(10):
        world.train(17, 900)
        world.part_between_steps(part, 12_345)
        world.train(5, 900)
        world.part_in_step(part, 3_210, 900)
    world.train(60, 900)
    auditor = audit(world)
    for now in range(world.processes[0].born, world.now, 15_000):
        auditor.look(now)
    auditor.finish()
    assert auditor.seconds() == {"init": 1.0, "useful": (10 * 23 + 60) * 0.9, part: 155.55}


def test_without_parts_a_tag_says_what_the_gap_and_the_longer_step_were_for(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(50)
    world.pause(8_000, "checkpoint")
    world.step(1_000, "checkpoint")
    world.train(20)
    world.step(31_000, "eval")
    world.train(20)
    auditor = audit(world).finish()
    assert auditor.seconds() == {"init": 1.0, "useful": 92.0, "checkpoint": 8.0, "eval": 30.0}


def test_a_pause_that_nobody_explains_is_other(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(50)
    world.pause(7_000)
    world.train(50)
    auditor = audit(world).finish()
    assert auditor.seconds() == {"init": 1.0, "useful": 100.0, "other": 7.0}


def test_warm_up_and_ramps_are_useful(world: Any, audit: Any) -> None:
    world.start(1_000)
    for _ in range(5):
        world.step(9_000, "warmup")
    world.step(2_000, "ramp")
    world.train(90)
    auditor = audit(world).finish()
    assert auditor.seconds() == {"init": 1.0, "useful": 137.0}


def test_a_hang_is_other_while_the_process_lives_and_down_once_it_is_dead(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    auditor = audit(world)
    world.crash(after_ms=1_800_000, down_ms=600_000)
    hung_at = world.processes[0].steps[-1][0]
    for now in range(hung_at, world.now, 15_000):
        auditor.look(now)
    world.start(5_000)
    world.train(100)
    auditor.finish()
    assert auditor.book.lengths == {**dict.fromkeys(auditor.book.lengths, 0), **world.truth}
    assert auditor.seconds()["other"] == pytest.approx(1800.0, abs=5)
    assert auditor.seconds()["down"] == pytest.approx(600.0, abs=5)


def test_a_hang_shows_before_it_is_over(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    world.crash(after_ms=1_800_000, down_ms=0)
    auditor = audit(world)
    auditor.look(world.processes[0].steps[-1][0] + 1_500_000)
    assert auditor.seconds()["other"] == pytest.approx(1500 - 600 - 60, abs=10)


def test_a_long_checkpoint_shows_before_it_is_over_and_is_not_counted_twice(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    begun = world.now
    world.part_between_steps("checkpoint", 1_500_000)
    world.train(100)
    auditor = audit(world)
    auditor.look(begun + 1_200_000)
    assert auditor.seconds()["checkpoint"] == pytest.approx(1200 - 600 - 60, abs=10)
    auditor.finish()
    assert auditor.seconds() == {"init": 1.0, "useful": 200.0, "checkpoint": 1500.0}


def test_after_a_good_end_nothing_is_counted_until_the_run_goes_on(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    world.close()
    ended = world.now
    auditor = audit(world)
    auditor.look(ended + 3_600_000)
    assert auditor.book.settled <= ended
    assert auditor.seconds()["useful"] == 100.0
    assert "down" not in auditor.seconds()
    world.off(7_200_000)
    world.start(10_000)
    world.train(100)
    auditor.finish()
    assert auditor.seconds()["useful"] == 200.0
    assert auditor.seconds()["init"] == 11.0
    assert auditor.seconds()["down"] == pytest.approx(7200.0, abs=5)


def test_a_run_that_crashed_is_down_until_it_is_given_up(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    world.crash(after_ms=0, down_ms=0)
    died = world.now
    auditor = audit(world)
    auditor.look(died + 3_600_000)
    assert auditor.seconds()["down"] == pytest.approx(3600 - 60, abs=10)
    auditor.look(died + 30 * 3_600_000)
    given_up = auditor.seconds()["down"]
    assert given_up == pytest.approx(24 * 3600, abs=1900)
    auditor.look(died + 40 * 3_600_000)
    assert auditor.seconds()["down"] == given_up
    world.off(50 * 3_600_000)
    world.start(1_000)
    world.train(10)
    auditor.finish()
    assert auditor.seconds()["down"] == pytest.approx(50 * 3600, abs=10)


def test_an_outage_of_prometheus_costs_nothing_while_batches_are_kept(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    world.outage(1_200_000)
    begun = world.now
    world.train(1500)
    auditor = audit(world)
    for now in range(begun, world.now, 60_000):
        auditor.look(now)
        assert set(auditor.seconds()) <= {"init", "useful"}
    auditor.finish()
    assert auditor.seconds() == {"init": 1.0, "useful": 1600.0}


def test_batches_that_are_lost_were_trained_all_the_same_as_their_numbers_tell(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    world.lost.append((world.now + 1, world.now + 500_000))
    world.train(400)
    world.pause(7_000)
    world.train(200)
    auditor = audit(world).finish()
    assert auditor.seconds() == {"init": 1.0, "useful": 700.0, "other": 7.0}
    assert auditor.book.steps["useful"] == 700


def test_a_death_that_nobody_saw_is_not_called_down(world: Any, audit: Any) -> None:
    """Prometheus was away when the process died and the next one began: when it died isn't known."""
    world.start(1_000)
    world.train(100)
    world.outage(1_000_000)
    world.crash(after_ms=300_000, down_ms=400_000)
    world.start(5_000, number=90)
    world.train(500)
    auditor = audit(world).finish()
    assert auditor.seconds()["other"] == pytest.approx(700.0, abs=6)
    assert "down" not in auditor.seconds()
    assert (auditor.seconds()["rework"], auditor.seconds()["useful"]) == (10.0, 590.0)
    assert auditor.seconds()["init"] == 6.0


def test_a_process_that_was_seen_dead_stays_down_over_an_outage(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    world.crash(after_ms=0, down_ms=30_000)
    world.outage(1_000_000)
    world.off(600_000)
    world.start(5_000)
    world.train(500)
    auditor = audit(world).finish()
    assert auditor.seconds()["down"] == pytest.approx(630.0, abs=6)
    assert auditor.seconds()["useful"] == 600.0


def test_a_run_that_nobody_sees_any_more_is_unknown_and_not_down(world: Any, audit: Any) -> None:
    """Its node doesn't answer, while another one does: is the process dead, or only the way to it?"""
    world.start(1_000)
    world.train(100)
    world.processes[0].gone = lambda: world.processes[0].steps[-1][0] + 1  # type: ignore[method-assign]
    auditor = audit(world)
    auditor.look(world.now + 1_800_000)
    assert auditor.seconds() == {"init": 1.0, "useful": 100.0}
    auditor.look(world.now + 7_200_000)
    assert auditor.seconds()["other"] == pytest.approx(3600.0, abs=100)
    assert "down" not in auditor.seconds()


def test_the_other_ranks_tell_of_a_death_where_rank_0s_node_is_silent(
    world: Any, audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(1_000)
    world.train(100)
    world.crash(after_ms=0, down_ms=0)
    died = world.now
    auditor = audit(world)
    instant, ranks = auditor.prometheus.instant, auditor.prometheus._ranks

    def silent(query: str, at: float) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                auditor.prometheus, "_ranks", lambda since, until: [s for s in ranks(since, until) if s[1] < died]
            )
            return instant(query, at)

    monkeypatch.setattr(auditor.prometheus, "instant", silent)
    auditor.look(died + 400_000)
    assert auditor.seconds()["down"] == pytest.approx(340.0, abs=25)


def test_a_ledger_that_comes_late_begins_with_what_it_sees(world: Any, audit: Any) -> None:
    world.start(1_000)
    for _ in range(10):
        world.train(100)
        world.part_between_steps("checkpoint", 5_000)
    middle = world.now
    for _ in range(3):
        world.train(100)
        world.part_between_steps("checkpoint", 5_000)
    world.train(100)
    auditor = audit(world, since=middle)
    auditor.finish()
    assert auditor.seconds() == {"useful": 400.0, "checkpoint": 15.0}
    assert auditor.book.started == middle
    assert auditor.book.tokens == 1400 * 4096, "what came before counts at the rate of now"


def test_checkpoints_by_tag_or_by_part(make_world: Any, audit: Any) -> None:
    for tagged in (True, False):
        world = make_world()
        world.start(1_000)
        for _ in range(4):
            world.train(200)
            if tagged:
                world.step(6_000, "checkpoint")
                world.step(1_000, "checkpoint")
            else:
                world.part_between_steps("checkpoint", 5_000)
                world.step(1_000)
                world.step(1_000)
        saved_at = world.now
        world.train(77)
        auditor = audit(world)
        auditor.finish()
        assert auditor.book.checkpoint_interval == pytest.approx(202_000, abs=1_001)
        assert auditor.book.unsaved == pytest.approx(78_000, abs=6_001)
        assert auditor.book.saved_at == pytest.approx(saved_at, abs=6_001)


def test_two_runs_and_what_one_does_not_know_of_the_other(world: Any, audit: Any) -> None:
    world.start(1_000)
    world.train(100)
    auditor = audit(world).finish()
    auditor.ledger.books[RunJob("gone", "")] = auditor.book
    auditor.look(world.now + 300_000)
    assert set(auditor.ledger.books) == {("llama-8b", ""), ("gone", "")}
