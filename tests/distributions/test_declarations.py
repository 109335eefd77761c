"""The distributions' pyproject.toml: dependencies as imported, bounds as tested, one version, one licence."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PARTS = ("client", "kit", "exporters", "alerting", "dashboards", "simulator")
PUBLISHED = PARTS[:-1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
NEWEST = (3, 14)


def project(part: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / part / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def requirements(part: str) -> dict[str, Requirement]:
    return {canonicalize_name(each.name): each for each in map(Requirement, project(part)["dependencies"])}


def optional(part: str) -> dict[str, Requirement]:
    extras = project(part).get("optional-dependencies", {}).values()
    return {canonicalize_name(each.name): each for extra in extras for each in map(Requirement, extra)}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the top-level names that a module imports when it runs."""
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            continue
        if isinstance(child, ast.Import):
            yield from (name.name.partition(".")[0] for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield (child.module or "").partition(".")[0]
        yield from imports(child)


def imported(part: str) -> set[str]:
    """Return the distributions that a part imports from, its own and the standard library left out."""
    (package,) = (path.parent for path in (ROOT / part).glob("pyrometer*/py.typed"))
    names = {name for path in package.rglob("*.py") for name in imports(ast.parse(path.read_text(encoding="utf-8")))}
    owners = owning_distributions()
    return {canonicalize_name(owners.get(name, name)) for name in names - sys.stdlib_module_names - {package.name}}


@cache
def owning_distributions() -> dict[str, str]:
    """Return the name of the distribution of each top-level package, our editable ones included.

    metadata.packages_distributions() of Python 3.10 knows only those with a top_level.txt.
    """
    owners = {}
    for distribution in metadata.distributions():
        name = distribution.name  # reads its metadata each time
        for file in distribution.files or ():
            if file.suffix in (".py", ".so") and ".." not in file.parts:
                owners[file.parts[0].partition(".")[0]] = name
    ours = [project(part)["name"] for part in PARTS]
    return owners | {name.replace("-", "_"): name for name in ours}


def pins() -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_part_declares_exactly_what_it_imports(part: str) -> None:
    assert set(requirements(part)) == imported(part) - set(optional(part))


@pytest.mark.parametrize("part", PUBLISHED)
def test_bounds_end_where_the_tested_versions_end(part: str) -> None:
    """The upper bound is the first major version (of 0.x: minor or 1) after the one that constraints.txt pins."""
    ranges = {name: each for name, each in optional(part).items() if not str(each.specifier).startswith("==")}
    for name, requirement in (requirements(part) | ranges).items():
        if name.startswith("pyrometer"):
            assert str(requirement.specifier) == f"=={VERSION}", f"{part}: {requirement}"
            continue
        bounds = {each.operator: Version(each.version) for each in requirement.specifier}
        assert set(bounds) == {">=", "<"}, f"{part}: {requirement} needs a lower and an upper bound"
        newest = max(Version(each.version) for pin in pins()[name] for each in pin.specifier)
        assert bounds[">="] <= newest < bounds["<"], f"{part}: {requirement}, but {newest} is tested"
        after = {Version(str(newest.major + 1))}
        after |= {Version(f"0.{newest.minor + 1}")} if newest.major == 0 else set()
        assert bounds["<"] in after, f"{part}: {requirement} allows more than is tested: {newest}"


def test_every_pin_is_exact_and_serves_one_python_at_most_once() -> None:
    for name, each in pins().items():
        for pin in each:
            assert re.fullmatch(r"==[^,*]+", str(pin.specifier)), name
        for minor in range(10, NEWEST[1] + 1):
            environment = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}
            assert sum(pin.marker is None or pin.marker.evaluate(environment) for pin in each) <= 1, (name, minor)


def test_this_environment_has_the_pinned_versions() -> None:
    wrong = []
    for name, each in pins().items():
        for pin in each:
            if pin.marker is None or pin.marker.evaluate():
                try:
                    installed = metadata.version(name)
                except metadata.PackageNotFoundError:
                    wrong.append(f"{name}: not installed")
                    continue
                if installed not in pin.specifier:
                    wrong.append(f"{name} {installed}: constraints.txt says {pin.specifier}")
    assert wrong == []


@pytest.mark.parametrize("part", PARTS)
def test_the_version_is_read_from_one_file(part: str) -> None:
    settings = tomllib.loads((ROOT / part / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    assert (ROOT / part / settings["tool"]["hatch"]["version"]["path"]).resolve() == ROOT / "VERSION"
    assert metadata.version(settings["project"]["name"]) == VERSION


@pytest.mark.parametrize("part", PUBLISHED)
def test_a_part_states_its_licence_and_the_pythons_it_runs_on(part: str) -> None:
    settings = project(part)
    assert settings["license"] == "Apache-2.0"
    assert (ROOT / part / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert settings["requires-python"] == ">=3.10"
    minors = re.findall(r"Python :: 3\.(\d+)", " ".join(settings["classifiers"]))
    assert [int(minor) for minor in minors] == list(range(10, NEWEST[1] + 1))


def test_nobody_publishes_the_simulator() -> None:
    assert "Private :: Do Not Upload" in project("simulator")["classifiers"]
    assert [part for part in PUBLISHED if "pyrometer-simulator" in requirements(part)] == []
