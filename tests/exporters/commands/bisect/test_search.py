"""The search: right on simulated clusters, in few rounds, and able to continue."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrometer_exporters.commands.bisect.belief import Noise, Outcome, probabilities
from pyrometer_exporters.commands.bisect.pair_job import PairJob
from pyrometer_exporters.commands.bisect.pair_search import PairSearch
from pyrometer_exporters.commands.bisect.pairs import PairCandidates
from pyrometer_exporters.commands.bisect.plan import METHODS
from pyrometer_exporters.commands.bisect.search import LARGEST_FOR_PAIRS, Search, Settings
from pyrometer_simulator.bad_cluster import BadCluster

QUIET = Noise(1e-6, 1e-6)


def searched(cluster: BadCluster, **more: Any) -> Any:
    return cluster.search(Settings(cluster.hosts, noise=cluster.noise, **more))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_bad_hosts_are_found_by_every_method_under_noise(method: str, seed: int) -> None:
    cluster = BadCluster.drawn(128, seed, hosts=3)
    answer = searched(cluster, method=method)
    assert cluster.is_right(answer)
    assert answer.finished
    assert answer.sure >= 0.99


def test_without_noise_two_rounds_find_the_hosts_and_one_more_confirms_that_it_is_all() -> None:
    cluster = BadCluster.drawn(512, 7, hosts=6, noise=QUIET)
    assert cluster.is_right(searched(cluster))
    assert cluster.rounds == 3


@pytest.mark.parametrize("seed", range(4))
def test_bad_pairs_of_good_hosts_are_found(seed: int) -> None:
    cluster = BadCluster.drawn(128, seed, pairs=2)
    assert cluster.is_right(searched(cluster))


def test_a_bad_pair_that_is_tested_first_makes_neither_host_bad() -> None:
    cluster = BadCluster(64, noise=QUIET)
    first = Search(Settings(cluster.hosts, noise=QUIET)).plan()[0]
    cluster.bad_pairs = frozenset({frozenset(first)})
    assert cluster.is_right(searched(cluster))


def test_pairs_are_not_looked_for_where_nobody_asked() -> None:
    cluster = BadCluster.drawn(64, 1, pairs=1, noise=QUIET)
    assert searched(cluster, pairs=False).pairs == {}


def test_a_bad_switch_is_named_instead_of_all_of_its_hosts() -> None:
    cluster = BadCluster.drawn(128, 3, hosts=1, switches=1)
    answer = searched(cluster, switches=cluster.switches)
    assert cluster.is_right(answer)
    assert len(answer.untested) in (31, 32)


def test_nothing_bad_is_an_answer() -> None:
    cluster = BadCluster.drawn(64, 0)
    answer = searched(cluster)
    assert (answer.hosts, answer.pairs, answer.finished) == ({}, {}, True)


def test_a_budget_of_rounds_leaves_open_questions() -> None:
    cluster = BadCluster.drawn(128, 0, hosts=3)
    answer = cluster.search(Settings(cluster.hosts), most_rounds=1)
    assert not answer.finished
    assert cluster.bad_hosts <= set(answer.open)
    assert answer.sure < 0.99


def test_a_last_row_of_the_grid_that_is_too_short_is_tested_with_the_one_before() -> None:
    hosts = BadCluster(21).hosts
    groups = Search(Settings(hosts, method="grid")).plan()
    assert [len(group) for group in groups] == [5, 5, 5, 6]
    assert sorted(host for group in groups for host in group) == sorted(hosts)


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(2, 40), seed=st.integers(0, 1000), method=st.sampled_from(METHODS), least=st.integers(1, 4),
    hosts=st.integers(0, 2),
)  # fmt: skip
def test_groups_of_a_round_are_disjoint_large_enough_and_known(
    size: int, seed: int, method: str, least: int, hosts: int
) -> None:
    cluster = BadCluster.drawn(size, seed, hosts=min(hosts, size), pairs=int(size > 8))
    cluster.least = least
    search = Search(Settings(cluster.hosts, cluster.switches, method, size=least, pairs=least <= LARGEST_FOR_PAIRS))
    for _ in range(12):
        groups = search.plan()
        named = [host for group in groups for host in group]
        assert len(named) == len(set(named))
        assert all(len(group) >= least for group in groups)
        assert set(named) <= set(cluster.hosts)
        search.record([cluster.test(group) for group in groups])


@pytest.mark.parametrize("method", METHODS)
def test_a_command_that_fails_on_small_groups_makes_no_host_bad(method: str) -> None:
    cluster = BadCluster.drawn(32, 3, pairs=1, noise=QUIET)
    cluster.least = 4
    answer = searched(cluster, method=method, size=4, pairs=False)
    assert (answer.hosts, answer.pairs) == ({}, {})


def test_pairs_are_not_looked_for_where_two_hosts_are_too_few() -> None:
    with pytest.raises(ValueError, match="fewer than 4"):
        Settings(("a", "b", "c", "d"), size=4)


def test_a_search_that_is_replayed_plans_the_same_round() -> None:
    cluster = BadCluster.drawn(64, 5, hosts=2, pairs=1)
    first, rounds = Search(Settings(cluster.hosts)), []
    for _ in range(6):
        rounds.append([cluster.test(group) for group in first.plan()])
        first.record(rounds[-1])
    second = Search(Settings(cluster.hosts))
    for tests in rounds:
        second.record(tests)
    assert second.plan() == first.plan()


def test_one_test_gives_the_probability_of_the_rule_of_bayes() -> None:
    noise = Noise(false_alarm=0.1, missed=0.2, bad_host=0.5)
    found = probabilities(["a"], {}, [Outcome(("a",), passed=False)], noise)
    assert found["a"] == pytest.approx(0.8 / (0.8 + 0.1), abs=1e-6)


def test_two_hosts_that_fail_together_share_the_suspicion() -> None:
    found = probabilities(["a", "b", "c"], {}, [Outcome(("a", "b"), passed=False)], Noise())
    assert found["a"] == found["b"] > 0.3
    assert found["c"] < 0.02


def test_pairs_are_cleared_by_passing_groups() -> None:
    pairs = PairCandidates(["a", "b", "c", "d"])
    assert pairs.count() == 6
    pairs.passed(["a", "b"])
    assert pairs.count() == 5
    assert set(pairs.inside(["a", "b", "c"])) == {("a", "c"), ("b", "c")}
    assert set(pairs.at(1)) - set(pairs.at(0)) == {("a", "b")}
    assert (pairs.doubts("a", ["b", "d"]), pairs.has_inside(["a", "b"])) == (1, False)


def test_two_groups_that_fail_in_a_round_become_two_jobs() -> None:
    weights = dict.fromkeys([("a", "b"), ("a", "c"), ("c", "d")], 1.0)
    job = PairJob(weights, 0.01, QUIET)
    first, second = job.learn([Outcome(("a", "b"), passed=False), Outcome(("c", "d"), passed=False)])
    assert (first.best()[0], second.best()[0]) == (("a", "b"), ("c", "d"))


def test_a_false_alarm_brings_the_job_before_back() -> None:
    weights = dict.fromkeys([("a", "b"), ("a", "c"), ("c", "d"), ("b", "d")], 1.0)
    job = PairJob(weights, 0.01, Noise())
    (inner,) = job.learn([Outcome(("a", "b"), passed=False)])
    assert set(inner.weights) == {("a", "b")}
    for _ in range(4):
        (inner,) = inner.learn([Outcome(("a", "b"), passed=True)])
    assert inner is job
    assert job.weights.get(("a", "b"), 0.0) < 0.01 < job.weights["c", "d"]


def test_a_search_ends_where_the_hosts_beside_a_bad_pair_are_too_few_for_a_test() -> None:
    search = PairSearch(("a", "b"), QUIET, risk=0.01)
    rounds = 0
    while groups := search.plan(random.Random(1)):  # noqa: S311
        assert [sorted(group) for group in groups] == [["a", "b"]]
        search.record([Outcome(("a", "b"), passed=False)])
        rounds += 1
    assert (set(search.bad), rounds) == ({("a", "b")}, 2)


def test_a_failure_alone_counts_once_whatever_the_probability_was() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    job = PairJob(dict.fromkeys(pairs, 1.0), 0.01, QUIET)
    for times in (1, 2):
        (job,) = job.learn([Outcome(("a", "b"), passed=False)])
        assert job.alone[("a", "b")] == times


@pytest.mark.parametrize("seed", range(4))
def test_bad_pairs_that_share_a_host_are_found(seed: int) -> None:
    cluster = BadCluster(64, noise=QUIET)
    cluster.bad_pairs = frozenset(frozenset(pair) for pair in (("gpu-003", "gpu-040"), ("gpu-003", "gpu-055")))
    assert cluster.is_right(searched(cluster, seed=seed))
