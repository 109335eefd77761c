"""The rules of the house that no tool checks: who may import whom, sizes, names, version, commands."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tools import prose

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "pyrometer": ROOT / "client" / "pyrometer",
    "pyrometer_kit": ROOT / "kit" / "pyrometer_kit",
    "pyrometer_exporters": ROOT / "exporters" / "pyrometer_exporters",
    "pyrometer_alerting": ROOT / "alerting" / "pyrometer_alerting",
    "pyrometer_dashboards": ROOT / "dashboards" / "pyrometer_dashboards",
    "pyrometer_simulator": ROOT / "simulator" / "pyrometer_simulator",
}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80

# Which modules of ours a package may import beside its own.
MAY_IMPORT = {
    "pyrometer": (),
    "pyrometer_kit": (),
    "pyrometer_exporters": ("pyrometer.ring", "pyrometer_kit"),
    "pyrometer_alerting": ("pyrometer.hang", "pyrometer_kit"),
    "pyrometer_dashboards": (),
    "pyrometer_simulator": ("pyrometer", "pyrometer_kit", "pyrometer_exporters", "pyrometer_alerting"),
}
# The check of a GPU trains a model with the client, as a user's job does.
TRAINS = PACKAGES["pyrometer_exporters"] / "commands" / "gpu_check"


def sources(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts)


def all_sources() -> list[Path]:
    folders = [*PACKAGES.values(), ROOT / "tests", ROOT / "benchmarks", ROOT / "examples", ROOT / "tools"]
    return [path for folder in folders for path in sources(folder)]


class Source(NamedTuple):
    """Hold what the rules ask of a source file, so that it is parsed once and its syntax tree is not kept."""

    docstring: str | None
    imported: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]  # "line name" of each function, nested ones too, and its number of lines
    module_functions: tuple[str, ...]  # names of those at the module's level


@functools.cache
def source(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(prose.statements(tree.body))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Source(
        ast.get_docstring(tree),
        tuple(name for node in nodes for name in names_imported(node, path)),
        tuple((f"{node.lineno} {node.name}", lines_of(node)) for node in functions),
        tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef)),
    )


def names_imported(node: ast.AST, path: Path) -> Iterator[str]:
    """Yield the full name of each module that a statement imports: ``a.b`` for ``from a import b``."""
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}: relative imports can't be grepped"
        yield from (f"{node.module}.{name.name}" for name in node.names)


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines of code, without its decorators and docstring."""
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


@pytest.mark.parametrize("package", PACKAGES)
def test_who_may_import_whom(package: str) -> None:
    wrong = []
    for path in sources(PACKAGES[package]):
        for name in source(path).imported:
            ours = name.partition(".")[0] in PACKAGES
            more = ("pyrometer",) if path.is_relative_to(TRAINS) else ()
            allowed = any(within(name, module) for module in (package, *MAY_IMPORT[package], *more))
            if ours and not allowed:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_the_client_imports_the_standard_library_only() -> None:
    names = {name.partition(".")[0] for path in sources(PACKAGES["pyrometer"]) for name in source(path).imported}
    # Type checkers bring typing_extensions along; nothing imports it while the program runs.
    assert names - sys.stdlib_module_names == {"pyrometer", "typing_extensions"}
    used = [path for path in sources(PACKAGES["pyrometer"]) if "typing_extensions" in "".join(source(path).imported)]
    assert [
        path for path in used if "\n    from typing_extensions import" not in path.read_text(encoding="utf-8")
    ] == []


def test_files_stay_small() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in all_sources()}
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_functions_stay_small() -> None:
    sizes = {(path, name): size for path in all_sources() for name, size in source(path).functions}
    assert len(sizes) > 1000
    long = {key: size for key, size in sizes.items() if size > MAX_FUNCTION_LINES}
    assert {f"{path.relative_to(ROOT)}:{name}": size for (path, name), size in long.items()} == {}


def test_nothing_is_left_lying_about() -> None:
    found = []
    for package, folder in PACKAGES.items():
        for path in sources(folder):
            text = path.read_text(encoding="utf-8")
            found += [f"{path.name}: {word}" for word in re.findall(r"\b(TODO|FIXME|XXX|HACK)\b", text)]
            if package != "pyrometer_simulator" and re.search(r"\b(print|breakpoint)\b", text):
                # With file= it is a message to someone; without, it was left over.
                calls = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and not n.keywords)
                names = [node.func.id for node in calls if isinstance(node.func, ast.Name)]
                found += [f"{path.name}: {name}" for name in names if name in ("print", "breakpoint")]
    assert found == []


def test_every_package_is_typed_and_every_module_says_what_it_is() -> None:
    assert [name for name, folder in PACKAGES.items() if not (folder / "py.typed").exists()] == []
    modules = [path for folder in PACKAGES.values() for path in sources(folder)]
    silent = [path for path in modules if not source(path).docstring]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_the_tests_mirror_the_packages() -> None:
    """tests/exporters/node/train/test_*.py tests exporters/pyrometer_exporters/node/train."""
    roots = {folder.parent.name: folder for folder in PACKAGES.values()}
    strays = []
    for path in sources(ROOT / "tests"):
        top, *rest = path.parent.relative_to(ROOT / "tests").parts or ("",)
        mirrored = (
            roots[top].joinpath(*rest).is_dir()
            if top in roots
            else top
            in (
                "",
                "alert_rules",
                "benchmarks",
                "compose",
                "distributions",
                "docs",
                "e2e",
                "examples",
                "integrations",
                "tools",
            )
        )
        holds_tests = any(name.startswith("test_") for name in source(path).module_functions)
        if not mirrored or (holds_tests and not path.name.startswith("test_")):
            strays.append(path)
    assert [str(path.relative_to(ROOT)) for path in strays] == []
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def project(package: str) -> dict[str, object]:
    with open(PACKAGES[package].parent / "pyproject.toml", "rb") as file:
        found: dict[str, object] = tomllib.load(file)["project"]
    return found


def test_the_version_is_the_changelogs() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)\]?", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == (ROOT / "VERSION").read_text(encoding="utf-8").strip()


def test_the_readme_stays_short_and_names_the_first_steps() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert {"make demo", "make test"} <= set(re.findall(r"make [a-z]+", text))


def test_the_changelog_keeps_its_form() -> None:
    """Keep a Changelog: dated versions, newest first, a link and a tag name for each, one line per change."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    assert versions == sorted(versions, key=lambda version: [*map(int, version.split("."))], reverse=True)
    assert [version for version in versions if f"/tag/v{version}" not in text] == []
    sections = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    changes = text.partition("## [Unreleased]")[2].splitlines()
    assert [line for line in changes if line.startswith("  ")] == []
    assert [line for line in changes if line.startswith("- ") and len(line) > 200] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_commands_lead_somewhere(package: str) -> None:
    scripts = project(package).get("scripts", {})
    assert isinstance(scripts, dict)
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert module.partition(".")[0] == package
        path = PACKAGES[package].joinpath(*module.split(".")[1:]).with_suffix(".py")
        assert path.exists(), target
        assert function in source(path).module_functions, target


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "Makefile"])
def test_pages_name_only_make_targets_that_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|[`\"\s$])make ([a-z][a-z-]*)(?=[`\s]|$)", "\n".join(code(text)), re.MULTILINE))
    assert named <= make_targets()


def code(markdown: str) -> Iterator[str]:
    """Text in backticks or quotes, in code blocks, or in a Makefile's recipes; prose may make anything."""
    yield from re.findall(r"`[^`\n]+`", markdown)
    yield from re.findall(r"^```[a-z]*\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    yield from re.findall(r'"make [^"]*"', markdown)


def test_pages_link_only_to_files_that_exist() -> None:
    missing = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                missing.append(f"{page.name}: {target}")
    assert missing == []


def test_nothing_has_to_be_decoded() -> None:
    """See tools/prose.py."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: no list of files")
    assert [str(finding) for path in prose.files() for finding in prose.findings(path)] == []


def test_every_end_to_end_test_lies_where_make_looks_for_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    places = [place for line in re.findall(r"(?m)^(?:E2E|SCALE) := (.+)$", makefile) for place in line.split()]
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    marked = [
        path for path, text in texts.items() if "pytest.mark." + "e2e" in text and "pytest.mark.compose" not in text
    ]
    assert len(marked) > 10
    assert [path for path in marked if not path.startswith(tuple(places))] == []


def test_nothing_speaks_of_the_place_where_it_was_made() -> None:
    """Absolute paths of one machine are of no use on another."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: no list of files")
    files = (
        subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    )
    places = re.compile(r"/(work|home|Users)/[a-z]+/")
    found = []
    for name in files:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", "") and path.is_file():
            match = places.search(path.read_text(encoding="utf-8", errors="replace"))
            if match and name != "tests/test_house.py":
                found.append(f"{name}: {match[0]}")
    assert found == []


def test_tests_that_are_begun_first_or_apart_exist(pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    assert conftest is not None
    assert [name for name in conftest.FIRST if not (ROOT / name).is_file()] == []
    parts = [name.split("::") for name in conftest.APART]
    assert [name for file, name in parts if f"\ndef {name}(" not in (ROOT / file).read_text(encoding="utf-8")] == []
