"""A queue of any size is read as it comes."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.cluster.slurm.jobs import JobReader, jobs_of
from pyrometer_exporters.cluster.slurm.stream import DocumentReader
from pyrometer_exporters.framework.outcome import PartError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.lists(VALUES, max_size=5), st.integers(1, 40), st.booleans())
def test_any_pieces_give_what_the_whole_gives(rest: dict[str, Any], entries: list[Any], size: int, last: bool) -> None:
    rest.pop("jobs", None)
    document = {**rest, "jobs": entries} if last else {"jobs": entries, **rest}
    data = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if b"\xed" in data:  # half a surrogate pair is no UTF-8
        return
    taken: list[Any] = []
    reader = DocumentReader("jobs", taken.append)
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    reader.finish()
    assert (taken, reader.rest) == ([entry for entry in entries if isinstance(entry, dict)], rest)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"jobs": [', b'{"jobs": [{}', b'{"jobs": [}]}', b'{"jobs" []}', b'{"jobs": []} x', b"x"],
)
def test_what_is_no_such_document_is_refused(data: bytes) -> None:
    with pytest.raises(PartError) as refused:
        jobs_of(data)
    assert refused.value.reason == "bad_answer"


def test_errors_beside_the_jobs_are_no_empty_queue() -> None:
    with pytest.raises(PartError) as refused:
        jobs_of(b'{"jobs": [{"job_id": 1}], "errors": [{"description": "gone"}]}')
    assert refused.value.reason == "refused"


def test_a_value_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrometer_exporters.cluster.slurm.stream.MAX_ENTRY", 1000)
    reader = JobReader()
    with pytest.raises(PartError, match="a value larger than") as refused:
        reader.feed(b'{"jobs": [{"name": "' + b"x" * 2000)
    assert refused.value.reason == "too_large"


def test_six_thousand_jobs_take_the_memory_of_a_few() -> None:
    """60 MB of JSON."""
    filler = {f"field_{n}": {"set": True, "infinite": False, "number": n} for n in range(200)}
    job = {"job_id": 1, "name": "llama", "user_name": "ada", "partition": "gpu", "job_state": ["RUNNING"], **filler}
    piece = json.dumps(job).encode() + b","
    assert len(piece) > 10_000
    reader = JobReader()
    reader.feed(b'{"meta": {}, "jobs": [')
    tracemalloc.start()
    for _ in range(600):
        reader.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(json.dumps(job).encode() + b'], "errors": []}')
    assert len(reader.finish()) == 601
    assert peak < 2 << 20
