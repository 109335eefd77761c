"""Tests with the real frameworks: gigabytes, which `make test-integrations` installs apart."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyrometer import ring
from pyrometer_exporters.node.train.rings import RingFile


@pytest.fixture(autouse=True)
def rings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("PYROMETER_RINGS", folder)
        yield Path(folder)


@pytest.fixture
def seen(rings: Path) -> Callable[..., Any]:
    """A rank's ring as the exporter sees it: its description, header, records and seconds by part."""

    def look(rank: int = 0, attempt: int = 0) -> Any:
        for path in rings.glob("*.ring"):
            file = RingFile(str(path))
            header = file.header()
            records = list(file.records(0, header.count))
            file.close()
            if (file.meta.rank, file.meta.attempt) == (str(rank), str(attempt)):
                parts = {name: ns / 1e9 for name, ns in zip(ring.PARTS, header.part_totals, strict=True)}
                return SimpleNamespace(file=file, meta=file.meta, header=header, records=records, parts=parts)
        raise AssertionError(f"no ring of rank {rank}, attempt {attempt}")

    return look
