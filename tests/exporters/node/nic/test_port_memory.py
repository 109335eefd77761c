"""The memory of one port, over any series of looks at it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.node.nic.link_down import PortMemory, PortObservation
from pyrometer_exporters.node.nic.state import encode


def look(
    active: bool | None = True, *, boot: str = "b", inode: int = 1, admin_down: bool = False, **sources: int
) -> PortObservation:
    return PortObservation(boot, inode, 7, active, admin_down, sources)


WINDOWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)
LOOKS = st.builds(
    look,
    st.sampled_from([True, False, None]),
    boot=st.sampled_from(["b", "b", "c"]),
    admin_down=st.booleans(),
    link_downed=st.sampled_from([None, 1, 2, 255]),
    carrier_down_count=st.sampled_from([None, 1, 2]),
)


@given(st.lists(st.tuples(LOOKS, st.integers(1, 4)), max_size=8))
def test_looks_that_say_the_same_again_and_again_change_nothing(looks: list[tuple[PortObservation, int]]) -> None:
    """They are passed over from the third on; whoever takes all of them into account remembers the same."""
    quick, thorough = PortMemory(), PortMemory()
    for now, one in enumerate(one for one, times in looks for _ in range(times)):
        again = one._replace(sources=dict(one.sources))
        assert quick.advance(again, now) == thorough._advance(one, now)
        assert encode({"p": quick}) == encode({"p": thorough})


@given(WINDOWS)
def test_the_merged_count_is_never_the_sum_and_never_below_any_source(windows: list[tuple[int, int]]) -> None:
    memory = PortMemory()
    downed = carrier = 0
    memory.advance(look(link_downed=0, carrier_down_count=0), 0)
    for more_downed, more_carrier in windows:
        downed, carrier = downed + more_downed, carrier + more_carrier
        memory.advance(look(link_downed=downed, carrier_down_count=carrier), 1)
    assert max(downed, carrier) <= memory.events <= sum(max(window) for window in windows)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=30))
def test_the_count_never_falls_and_never_jumps_by_more_than_the_counter_shows(raws: list[int]) -> None:
    memory = PortMemory()
    memory.advance(look(link_downed=0), 0)
    for raw in raws:
        before = memory.events
        memory.advance(look(link_downed=raw), 1)
        assert before <= memory.events <= before + raw


def test_a_saturated_source_swallows_nothing_after_it_was_cleared() -> None:
    memory = PortMemory()
    memory.advance(look(link_downed=255, carrier_down_count=0), 0)
    memory.advance(look(link_downed=255, carrier_down_count=1), 1)
    memory.advance(look(link_downed=0, carrier_down_count=1), 2)
    memory.advance(look(link_downed=1), 3)
    assert memory.events == 2
