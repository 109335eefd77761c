"""The rooms of the alerting package are layers, and no package has a circle of imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent for path in ROOT.glob("*/pyrometer*/__init__.py"))

# From the lowest to the highest: a room imports from itself and from those before it.
ROOMS = ("model", "incidents", "diagnosis", "channel", "policy", "app")


def modules(package: Path) -> dict[str, Path]:
    """All modules of a package by their full names."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the same package that a file imports, wherever in it, also for its types only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                module = f"{node.module}.{name.name}"
                if module in known:
                    yield module
                elif node.module in known:
                    yield node.module


def circles(graph: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """The sets of modules that all reach each other (strongly connected components with more than one)."""
    reached = {name: reach(graph, name) for name in graph}
    return {
        tuple(sorted(circle))
        for name in graph
        if len(circle := {name} | {other for other in reached[name] if name in reached[other]}) > 1
    }


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


def upward(room: str, imported: str) -> bool:
    """True if a module of this room may not import that one."""
    target = imported.split(".")[1] if "." in imported else ""
    if target not in ROOMS:
        return False
    return room not in ROOMS or ROOMS.index(target) > ROOMS.index(room)


def test_the_rooms_of_alerting_import_downward_only() -> None:
    known = modules(ROOT / "alerting" / "pyrometer_alerting")
    wrong = [
        f"{name} imports {imported}"
        for name, path in known.items()
        for imported in imports(path, known)
        if upward(name.split(".")[1] if "." in name else "", imported)
    ]
    assert wrong == []


def test_alerting_has_exactly_these_rooms() -> None:
    package = ROOT / "alerting" / "pyrometer_alerting"
    assert {path.parent.name for path in package.glob("*/__init__.py")} == set(ROOMS)


def test_an_upward_import_is_noticed() -> None:
    assert upward("model", "pyrometer_alerting.app.settings")
    assert upward("", "pyrometer_alerting.model.text"), "what lies beside the rooms is below them"
    assert not upward("app", "pyrometer_alerting.model.text")
    assert not upward("incidents", "pyrometer_alerting.model.text")


def test_a_circle_is_noticed() -> None:
    graph: dict[str, set[str]] = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}
    assert circles(graph) == {("b", "c")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_package_has_a_circle_of_imports(package: Path) -> None:
    known = modules(package)
    assert circles({name: set(imports(path, known)) for name, path in known.items()}) == set()
