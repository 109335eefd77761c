"""Nothing that lies in the rings' folder can hurt the exporter or hide a healthy rank."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrometer import ring
from pyrometer_exporters.node.train.description import BadRingError, parse_meta
from pyrometer_exporters.node.train.points import PointStore
from pyrometer_exporters.node.train.rings import RingFile
from pyrometer_exporters.node.train.tracker import Tracker

Rings = Callable[..., Any]


def whole(folder: Path) -> bytes:
    data = bytearray(ring.FILE_BYTES)
    struct.pack_into("<4q", data, 0, ring.MAGIC, 1, 1, 2)
    data[ring.META_OFFSET : ring.META_OFFSET + 2] = b"{}"
    return bytes(data)


def with_meta(text: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        data = bytearray(ring.FILE_BYTES)
        struct.pack_into("<4q", data, 0, ring.MAGIC, 1, 1, len(text))
        data[ring.META_OFFSET : ring.META_OFFSET + len(text)] = text
        path.write_bytes(data)

    return make


def meta_with(**fields: str) -> bytes:
    """A whole description in which some values are replaced by raw JSON."""
    plain = {
        "run": '"r"', "attempt": "0", "rank": "0", "local_rank": "0", "world_size": "1", "reporting": "true",
        "first_step": "0", "warmup_steps": "0", "tokens_per_step": "1", "flops_per_token": "1", "peak_flops": "null",
        **dict.fromkeys((
            "model", "convention", "dtype", "gpu_model", "recompute", "job_id", "gpu", "uuid", "stage", "replica",
            "global_batch_size", "micro_batch_size", "sequence_length"), '""'),
    }  # fmt: skip
    return ("{" + ",".join(f'"{key}":{value}' for key, value in {**plain, **fields}.items()) + "}").encode()


BAD: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: path.touch(),
    "one byte": lambda path: path.write_bytes(b"P") and None,
    "random": lambda path: path.write_bytes(os.urandom(ring.FILE_BYTES)) and None,
    "zeros": lambda path: path.write_bytes(bytes(ring.FILE_BYTES)) and None,
    "another version": lambda path: path.write_bytes(b"PYROMTR3" + bytes(ring.FILE_BYTES)) and None,
    "cut in the header": lambda path: path.write_bytes(whole(path)[:100]) and None,
    "cut in the description": lambda path: path.write_bytes(whole(path)[: ring.META_OFFSET + 1]) and None,
    "description of no length": lambda path: path.write_bytes(struct.pack("<4q", ring.MAGIC, 1, 1, 0)) and None,
    "description of 2**62 bytes": lambda path: path.write_bytes(struct.pack("<4q", ring.MAGIC, 1, 1, 1 << 62)) and None,
    "a FIFO": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "a link to nowhere": lambda path: path.symlink_to("/nowhere"),
    "a link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "a link to itself": lambda path: path.symlink_to(path),
    "not JSON": with_meta(b"{"),
    "a number": with_meta(b"5"),
    "a list": with_meta(b"[]"),
    "not UTF-8": with_meta(b'{"run": "\xff"}'),
    "missing keys": with_meta(b"{}"),
    "brackets": with_meta(b"[" * 3000),
    "infinite attempt": with_meta(meta_with(attempt="1e999")),
    "NaN rank": with_meta(meta_with(rank="NaN")),
    "text for a number": with_meta(meta_with(world_size='"many"')),
    "huge world": with_meta(meta_with(world_size="9" * 400)),
    "huge step": with_meta(meta_with(first_step="9" * 400)),
    "huge tokens": with_meta(meta_with(tokens_per_step="9" * 400)),
    "negative huge": with_meta(meta_with(warmup_steps="-" + "9" * 400)),
    "null rank": with_meta(meta_with(rank="null")),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_down_with_a_reason_and_hides_no_other(what: str, folder: Path, rings: Rings, clock: Any) -> None:
    healthy = rings("healthy")
    healthy.step(1000, 1001)
    BAD[what](folder / "bad.ring")
    store = PointStore()
    tracker = Tracker(folder, clock, store)
    for _ in range(3):
        tracker.poll()
    (down,) = tracker.downs()
    assert (down.part, down.reason) == ("bad.ring", "bad_ring")
    assert len(down.detail) < 300
    assert [rank.header.count for rank in tracker.ranks()] == [1]
    assert len(store.pending("c")) == 1
    tracker.close()


def test_strange_but_possible_descriptions_are_taken(folder: Path, rings: Rings, clock: Any) -> None:
    for n, fields in enumerate((
        {"run": '["a"]'}, {"tokens_per_step": "-5"}, {"flops_per_token": "1e400"}, {"peak_flops": "NaN"},
        {"world_size": "0"}, {"world_size": "-8"}, {"rank": '"7"'}, {"gpu_model": "{}"}, {"model": '"\\ud800"'},
        {"reporting": '"yes"'}, {"warmup_steps": "-1"}, {"first_step": "1e3"},
    )):  # fmt: skip
        folder.mkdir(exist_ok=True)
        with_meta(meta_with(**fields))(folder / f"{n}.ring")
    store = PointStore()
    tracker = Tracker(folder, clock, store)
    tracker.poll()
    assert tracker.downs() == []
    tracker.close()


def test_a_ring_cut_short_while_it_is_followed_becomes_bad_and_comes_back(
    folder: Path, rings: Rings, clock: Any
) -> None:
    other, cut = rings("other"), rings("cut", run="cut")
    other.step(1000, 1001)
    cut.step(1000, 1001)
    tracker = Tracker(folder, clock, PointStore())
    tracker.poll()
    data = cut.path.read_bytes()
    os.truncate(cut.path, 100)
    tracker.poll()
    assert [down.part for down in tracker.downs()] == ["cut.ring"]
    assert [rank.meta.run for rank in tracker.ranks()] == ["llama"]
    with open(cut.path, "r+b") as file:
        file.write(data)
    tracker.poll()
    assert tracker.downs() == []
    assert len(tracker.ranks()) == 2
    tracker.close()


def test_a_ring_that_could_not_be_opened_for_a_while_is_tried_again(
    folder: Path, rings: Rings, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings("r")
    real = os.open

    def no_descriptors(path: str, flags: int, *more: int, **keywords: Any) -> int:
        if str(path).endswith(".ring"):
            raise OSError(24, "Too many open files")
        return real(path, flags, *more, **keywords)

    tracker = Tracker(folder, clock, PointStore())
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_descriptors)
        tracker.poll()
        assert tracker.downs()[0].reason == "bad_ring"
    tracker.poll()
    assert tracker.downs() == []
    assert len(tracker.ranks()) == 1
    tracker.close()


@pytest.mark.parametrize("slot", [ring.COUNT_SLOT, ring.STEP_TOTAL_SLOT, ring.PART_TOTALS_SLOT + 3])
def test_counts_below_zero_are_bad(folder: Path, rings: Rings, clock: Any, slot: int) -> None:
    rings("r").slot(slot, -1)
    tracker = Tracker(folder, clock, PointStore())
    tracker.poll()
    assert "negative count" in tracker.downs()[0].detail
    tracker.close()


def test_records_under_the_writers_pen_are_left_out(rings: Rings) -> None:
    made = rings()
    for n in range(ring.CAPACITY + 5):
        made.step(n, n + 1)
    file = RingFile(str(made.path))
    # Torn: the writer has begun record CAPACITY + 5 in the place of record 5.
    made.slot(ring.FIRST_RECORD_SLOT + 5 * ring.RECORD_SLOTS + ring.END, 0)
    numbers = [record.sequence for record in file.records(0, file.header().count)]
    assert numbers == list(range(6, ring.CAPACITY + 5))
    file.close()


def test_a_count_seen_before_its_record_gives_no_record(rings: Rings) -> None:
    made = rings()
    made.step(1, 2)
    made.slot(ring.COUNT_SLOT, 3)
    file = RingFile(str(made.path))
    assert [record.sequence for record in file.records(0, 3)] == [0]
    file.close()


@pytest.mark.parametrize("count", [0, 1 << 62, (1 << 63) - 1])
def test_any_count_costs_one_read_of_the_ring_at_most(rings: Rings, count: int) -> None:
    made = rings()
    made.slot(ring.COUNT_SLOT, count)
    file = RingFile(str(made.path))
    assert list(file.records(0, count)) == []
    file.close()


def test_a_ring_knows_whether_its_rank_lives(rings: Rings) -> None:
    made = rings()
    file = RingFile(str(made.path))
    assert file.alive()
    assert file.alive()
    made.crash()
    assert not file.alive()
    assert not file.alive()
    file.close()


def test_a_header_between_two_writes_is_read_again(rings: Rings, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rings()
    made.step(1, 2)
    file = RingFile(str(made.path))
    made.slot(ring.TOKENS_EXTRA_SLOT, -500)  # the extra of a step that is not counted yet
    real, reads = os.pread, []

    def pread(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        reads.append(1)
        if len(reads) == 1:
            made.slot(ring.COUNT_SLOT, 2)
        return data

    monkeypatch.setattr(os, "pread", pread)
    header = file.header()
    assert (header.count, header.tokens_extra) == (2, -500)
    file.close()


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=200), st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["run", "rank", "attempt"]), inner),
)))  # fmt: skip
def test_any_description_is_taken_or_refused(value: Any) -> None:
    import json

    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(BadRingError):
        parse_meta("x", data)


NUMBER = st.one_of(
    st.integers().map(str), st.floats().map(lambda f: str(f).replace("inf", "Infinity").replace("nan", "NaN")),
    st.sampled_from(["null", "true", '"5"', "[]", "{}", "1e999", "9" * 400]),
)  # fmt: skip
KEYS = ["attempt", "rank", "world_size", "first_step", "warmup_steps", "tokens_per_step", "flops_per_token", "run"]


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(KEYS), NUMBER))
def test_any_numbers_in_a_description_are_taken_or_refused(fields: dict[str, str]) -> None:
    try:
        meta = parse_meta("x", meta_with(**fields))
    except BadRingError:
        return
    assert meta.world_size >= 1
    assert abs(meta.first_step) <= 1 << 53
    assert meta.flops_per_step is None or meta.flops_per_step > 0
