"""Several sources, one count."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.gpu.xid import ledger as ledger_module
from pyrometer_exporters.node.gpu.xid.catalogue import Classes
from pyrometer_exporters.node.gpu.xid.ledger import WINDOW_SECONDS, Key, Ledger, Seen, decode, encode
from pyrometer_exporters.node.gpu.xid.lines import Source, XidEvent

PCI = "0000:18:00.0"
CLASSES = Classes()


def _take(
    ledger: Ledger, source: Source, xid: int = 79, at: float = 100.0, since: float | None = None, **more: str
) -> bool:
    event = XidEvent(PCI, xid, source, **more)  # type: ignore[arg-type]
    return ledger.take(event, CLASSES, (at if since is None else since, at), 1.7e9 + at)


def _counts(ledger: Ledger) -> dict[int, int]:
    return {key.xid: count for (key, _), count in ledger.counts.items()}


def _again(ledger: Ledger) -> Ledger:
    return decode(json.loads(json.dumps(encode(ledger))))


@pytest.mark.parametrize("order", [("nvml", "kernel_log"), ("kernel_log", "nvml")])
def test_an_event_told_by_both_counts_once(order: tuple[Source, Source]) -> None:
    ledger = Ledger()
    assert [_take(ledger, source) for source in order] == [True, False]
    assert _counts(ledger) == {79: 1}


def test_two_events_of_one_source_are_two() -> None:
    ledger = Ledger()
    for source in ("kernel_log", "kernel_log", "nvml", "nvml"):
        _take(ledger, source)
    assert _counts(ledger) == {79: 2}


def test_events_far_apart_are_not_one() -> None:
    ledger = Ledger()
    _take(ledger, "nvml", at=100)
    _take(ledger, "kernel_log", at=101 + WINDOW_SECONDS)
    assert _counts(ledger) == {79: 2}


def test_what_nvml_was_asked_for_late_is_what_the_log_told_long_before() -> None:
    ledger = Ledger()
    ledger.heard[PCI] = 90.0  # nobody scraped for an hour
    _take(ledger, "kernel_log", at=100)
    _take(ledger, "kernel_log", xid=31, at=3000)
    _take(ledger, "nvml", since=90, at=3690)
    assert _counts(ledger) == {79: 1, 31: 1}


def test_other_numbers_and_other_gpus_are_other_events() -> None:
    ledger = Ledger()
    _take(ledger, "nvml", xid=48)
    _take(ledger, "kernel_log", xid=95)
    ledger.take(XidEvent("0000:2a:00.0", 48, "kernel_log"), CLASSES, (100, 100), 0)
    assert sum(ledger.counts.values()) == 3


def test_lines_about_a_lost_gpu_count_as_one_79_until_it_has_answered() -> None:
    ledger = Ledger()
    for second in range(0, 600, 15):  # the driver prints one for each attempt to open it
        _take(ledger, "bus_loss", at=second)
    assert _counts(ledger) == {79: 1}
    assert not _take(_again(ledger), "bus_loss", at=1000), "an exporter that was restarted must know as well"
    ledger.answered(PCI, "GPU-aa")
    _take(ledger, "bus_loss", at=1000)
    assert _counts(ledger) == {79: 2}


@pytest.mark.parametrize(
    "order",
    [("bus_loss", "kernel_log", "nvml"), ("nvml", "bus_loss", "kernel_log"), ("kernel_log", "nvml", "bus_loss")],
)
def test_a_loss_told_three_ways_counts_once(order: tuple[Source, ...]) -> None:
    ledger = Ledger()
    for source in order:
        _take(ledger, source)
    assert _counts(ledger) == {79: 1}


def test_a_consequence_is_counted_and_marked() -> None:
    ledger = Ledger()
    _take(ledger, "nvml", xid=45)
    _take(ledger, "kernel_log", xid=45, caused_by="79")
    assert _counts(ledger) == {45: 1}
    assert ledger.consequences == {(Key(PCI, 45), "79"): 1}


def test_the_log_names_the_process_of_an_event_that_nvml_told_first() -> None:
    ledger = Ledger()
    _take(ledger, "nvml", xid=31)
    _take(ledger, "kernel_log", xid=31, pid="12", process="python")
    _take(ledger, "nvml", xid=31, at=400)
    assert ledger.last[PCI].event.pid == ""
    _take(ledger, "kernel_log", xid=31, at=400, pid="13")
    assert ledger.last[PCI].event.pid == "13"


def test_another_gpu_in_the_same_place_begins_at_0() -> None:
    ledger = Ledger()
    ledger.answered(PCI, "GPU-aa")
    _take(ledger, "nvml")
    ledger.answered(PCI, "GPU-aa")
    assert _counts(ledger) == {79: 1}
    ledger.answered(PCI, "GPU-bb")
    assert (_counts(ledger), ledger.last, ledger.at) == ({}, {}, {})


def test_a_log_full_of_nonsense_does_not_fill_memory() -> None:
    ledger = Ledger()
    for xid in range(5000):
        _take(ledger, "kernel_log", xid=xid, at=100 + xid / 1000)
    assert len(ledger.counts) == 1024
    assert len(ledger.recent) <= 1024


def test_a_boot_forgets_what_cannot_be_told_again() -> None:
    ledger = Ledger()
    ledger.booted("a")
    _take(ledger, "nvml")
    ledger.sequence = 7
    ledger.booted("a")
    assert (ledger.sequence, len(ledger.recent)) == (7, 1)
    ledger.booted("b")
    assert (ledger.sequence, ledger.recent, ledger.gone, _counts(ledger)) == (-1, {}, set(), {79: 1})


def test_a_state_of_an_earlier_release_is_read() -> None:
    ledger = Ledger()
    _take(ledger, "nvml")
    data = encode(ledger)
    del data["old"]
    assert decode(data).last == ledger.last


@pytest.mark.parametrize(
    "damage",
    [
        {"counts": 3}, {"counts": [["x", "y", "z", 1]]}, {"last": {"p": [{"nonsense": 1}, {}]}},
        {"recent": [[1]]}, {"at": None}, {"gone": 5},
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        decode(encode(Ledger()) | damage)


ERRORS = st.lists(
    st.tuples(st.sampled_from([13, 31, 48, 79]), st.floats(0, 20), st.floats(0, 5), st.floats(0, 5)), max_size=20
)


@given(ERRORS, st.lists(st.floats(0, 500), max_size=5), st.randoms(use_true_random=False))
def test_each_event_counts_once_in_any_interleaving_of_sources_and_restarts(
    errors: list[tuple[int, float, float, float]], restarts: list[float], chance: object
) -> None:
    """Both sources report each event, each with a delay of its own; an exporter restarts here and there."""
    told: list[tuple[float, str, int, float]] = []
    now = 0.0
    for xid, pause, log_delay, nvml_delay in errors:
        now += pause
        told.append((now + log_delay, "kernel_log", xid, now))
        told.append((now + nvml_delay, "nvml", xid, now))
    told += [(at, "restart", 0, at) for at in restarts]
    ledger = Ledger()
    for at, source, xid, happened in sorted(told):
        if source == "restart":
            ledger = _again(ledger)
        elif source == "nvml":
            _take(ledger, "nvml", xid, at=at, since=happened)
        else:
            _take(ledger, "kernel_log", xid, at=at)
    assert _counts(ledger) == Counter(xid for xid, *_ in errors)


@given(st.lists(st.sampled_from(["both", "log", "restart"]), max_size=30), st.data())
def test_one_complete_source_is_enough_whatever_the_other_misses(events: list[str], data: st.DataObject) -> None:
    ledger, pending, expected = Ledger(), 0, 0
    for step, event in enumerate(events):
        at = float(step)
        if event == "restart":
            ledger = _again(ledger)
            continue
        _take(ledger, "kernel_log", at=at)
        expected += 1
        pending += event == "both"
        if pending and data.draw(st.booleans()):
            pending -= 1
            _take(ledger, "nvml", at=at + 0.5, since=0)
    assert _counts(ledger) == ({79: expected} if expected else {})


REPORTS = st.lists(
    st.tuples(st.sampled_from(["kernel_log", "nvml", "bus_loss"]), st.floats(0, 60), st.floats(0, 90)), max_size=40
)


@given(REPORTS, st.integers(0, 40))
def test_recent_events_are_matched_as_by_looking_at_all_of_them(
    reports: list[tuple[str, float, float]], expired_after: int
) -> None:
    most, window = 4, ledger_module.WINDOW_SECONDS
    events: list[Seen] = []

    def match_among_all(source: str, since: float, at: float) -> bool:
        for seen in events:
            if source not in seen.sources and seen.since - window <= at and since - window <= seen.at:
                seen.sources.add(source)
                return True
        events.append(Seen(since, at, {source}))
        del events[:-most]
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "MOST_RECENT", most)
        recent = ledger_module.RecentEvents()
        now = 0.0
        for number, (source, pause, age) in enumerate(reports):
            now += pause
            if number == expired_after:
                recent.expire(now - window)
                while events and events[0].at < now - window:
                    del events[0]
            assert recent.match(source, now - age, now) == match_among_all(source, now - age, now)
            assert list(recent) == events
