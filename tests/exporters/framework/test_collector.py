"""Finding the collectors of a package, and how an exporter copes with one that can't be built."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pyrometer_exporters.framework.collector import discover

SPEC = """
from pyrometer_exporters.framework.collector import CollectorSpec
COLLECTOR = CollectorSpec(name={name!r}, help="h", families=(), build=lambda context: None)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], ModuleType]]:
    def make(files: dict[str, str]) -> ModuleType:
        for name, text in {"__init__.py": "", **files}.items():
            path = tmp_path / "found_here" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        return importlib.import_module("found_here")

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "found_here"]:
        del sys.modules[name]


def test_modules_and_subpackages_with_a_collector_are_found_in_order_of_name(
    package: Callable[[dict[str, str]], ModuleType],
) -> None:
    found = discover(package({
        "zeta.py": SPEC.format(name="zeta"),
        "alpha/__init__.py": "", "alpha/collector.py": SPEC.format(name="alpha"), "alpha/helper.py": "",
        "helper.py": "x = 1", "empty/__init__.py": "", "odd.py": "COLLECTOR = 'not a spec'",
    }))  # fmt: skip
    assert [spec.name for spec in found] == ["alpha", "zeta"]


def test_the_node_exporter_has_its_collectors_each_once() -> None:
    from pyrometer_exporters import node

    names = [spec.name for spec in discover(node)]
    assert "train" in names
    assert len(set(names)) == len(names)
