"""Every wheel, installed alone into a clean environment on the oldest and the newest Python, with what it declares."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from tools.pythons import PARTS, ROOT, SUPPORTED, find, newest

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(600)]

VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
# The package of each distribution, its commands, and the most that its wheel may weigh, in bytes.
DISTRIBUTIONS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "pyrometer": ("pyrometer", ("pyrometer-follow", "pyrometer-hang"), 200_000),
    "pyrometer-kit": ("pyrometer_kit", (), 200_000),
    "pyrometer-exporters": (
        "pyrometer_exporters",
        (
            "pyrometer-cluster-exporter",
            "pyrometer-bisect",
            "pyrometer-check",
            "pyrometer-doctor",
            "pyrometer-node-exporter",
            "pyrometer-targets",
            "pyrometer-test",
        ),
        700_000,
    ),
    "pyrometer-alerting": ("pyrometer_alerting", ("pyrometer-alerting",), 450_000),
    "pyrometer-dashboards": ("pyrometer_dashboards", ("pyrometer-dashboards",), 400_000),
}
PYTHONS = dict.fromkeys((SUPPORTED[0], newest(), SUPPORTED[-1]))
# A module may need what only an extra installs, which it gets where a flag asks for it, and nothing else.
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in ("psycopg", "requests"):
                raise
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    parts = [f"./{part}" for part in PARTS if part != "simulator"]
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), *parts)
    return folder


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def wheel_of(wheels: Path, distribution: str) -> Path:
    return wheels / f"{distribution.replace('-', '_')}-{VERSION}-py3-none-any.whl"


def test_every_wheel_is_named_here(wheels: Path) -> None:
    assert sorted(wheels.iterdir()) == sorted(wheel_of(wheels, distribution) for distribution in DISTRIBUTIONS)


# Pages of the manual that a package serves.
RUNBOOKS = {
    f"pyrometer_alerting/runbooks/{name}": ROOT / "docs" / name
    for name in ("alerts.md", "alertmanager.md", "no-data.md")
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_wheel_holds_its_package_and_licence_and_nothing_else(wheels: Path, distribution: str) -> None:
    package, _, most = DISTRIBUTIONS[distribution]
    path = wheel_of(wheels, distribution)
    assert path.stat().st_size <= most
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        info = f"{path.name.removesuffix('-py3-none-any.whl')}.dist-info"
        assert {name.partition("/")[0] for name in names} == {package, info}
        assert f"{package}/py.typed" in names
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        description = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        checkout = (ROOT / package_folder(package)).rglob("*")
        runbooks = {name: archive.read(name) for name in names if name.endswith(".md")}
        source = {str(p.relative_to(ROOT / package_folder(package).parent)) for p in checkout if is_source(p)}
    assert runbooks == {name: path.read_bytes() for name, path in RUNBOOKS.items() if name.startswith(f"{package}/")}
    assert {name for name in names if name.startswith(f"{package}/")} == source | set(runbooks)
    assert (description["License-Expression"], description["Requires-Python"]) == ("Apache-2.0", ">=3.10")
    assert [name for name in names if "test" in Path(name).name or "simulator" in name] == []


# Tools of developers: where they are in a checkout, and what only they need.
TOOLS = {"lint", "board_lint", "screenshots", "benchmarks", "simulator", "tools"}
NEEDED_BY_TOOLS = ("jsonschema", "grafana-foundation-sdk", "pytest", "pandas-stubs")


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_wheel_has_no_developers_tool_and_asks_for_nothing_of_theirs(wheels: Path, distribution: str) -> None:
    with zipfile.ZipFile(wheel_of(wheels, distribution)) as archive:
        names = [Path(name) for name in archive.namelist()]
        (metadata,) = (name for name in names if name.name == "METADATA")
        needs = Parser().parsestr(archive.read(str(metadata)).decode()).get_all("Requires-Dist") or []
    assert [name for name in names if TOOLS & {part.removeprefix("pyrometer_") for part in name.parent.parts}] == []
    assert [name for name in names if name.name.endswith(".schema.json")] == []
    assert [need for need in needs if need.lower().startswith(NEEDED_BY_TOOLS)] == []


def package_folder(package: str) -> Path:
    (folder,) = (path.relative_to(ROOT) for path in ROOT.glob(f"*/{package}"))
    return folder


def is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_wheel_alone_is_complete(wheels: Path, tmp_path: Path, distribution: str, python: str) -> None:
    """It installs with the pinned versions of what it declares; every module imports; every command works."""
    program = find(python)
    if program is None:
        pytest.skip(f"NOT TESTED on Python {python}: this machine has none")
    package, commands, _ = DISTRIBUTIONS[distribution]
    environment = tmp_path / "environment"
    subprocess.run([program, "-m", "venv", "--without-pip", environment], check=True)
    bin_folder = environment / "bin"
    own = ("--python", str(bin_folder / "python"))
    pip(*own, "install", "--constraint=constraints.txt", f"--find-links={wheels}", f"{distribution}=={VERSION}")
    pip(*own, "check")
    installed = {path.name for path in bin_folder.glob("pyrometer*")}  # with those of what it depends on
    assert set(commands) <= installed <= {command for _, each, _ in DISTRIBUTIONS.values() for command in each}
    for command in sorted(installed):
        assert run(bin_folder / command, "--help").startswith(f"usage: {command} ")
        assert run(bin_folder / command, "--version").startswith(f"{command}, version {VERSION} (python {python}.")
    run(bin_folder / "python", "-W", "error", "-c", IMPORT_ALL, package)


def run(program: Path, *arguments: str) -> str:
    """Return what a program prints, started where nothing of the checkout can be imported."""
    answer = subprocess.run(
        [program, *arguments], cwd="/", capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert answer.returncode == 0, f"{program.name} {arguments[0]}: {answer.stderr}"
    assert answer.stderr == ""
    return answer.stdout


def test_the_checkout_itself_names_the_folders_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--target", tmp_path, str(ROOT)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    for line in (
        "pip install ./client",
        "pip install ./kit ./client ./exporters",
        "pip install ./kit ./client ./alerting",
    ):
        assert f"`{line}`" in answer.stdout + answer.stderr
