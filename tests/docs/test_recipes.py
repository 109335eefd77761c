"""Every recipe of CONTRIBUTING.md is followed block by block in a scratch copy of the tree, and is complete.

A block's title says what to do with it: a path makes that file, ``append to PATH`` adds to one, a diff changes one, and
``sh`` blocks are run. Afterwards the checks of the house that apply to any change must pass too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = ("Add a metric", "Add an alert", "Add a situation", "Add a panel")
MOST_FILES = 5  # that a recipe changes by hand
SOURCES = ("client", "kit", "exporters", "alerting", "dashboards", "simulator")
BLOCK = re.compile(r'^( *)```(\w+)(?: title="([^"]+)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, its title, its lines without the indentation of the list."""

    language: str
    title: str
    text: str


def blocks(recipe: str) -> Iterator[Block]:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {recipe}\n")[2].partition("\n## Add ")[0]  # a runbook has a heading
    for indent, language, title, text in BLOCK.findall(section):
        yield Block(language, title, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))


def follow(block: Block, tree: Path) -> None:
    if block.language == "sh":
        for line in block.text.splitlines():
            run(line, tree)
    elif block.language == "diff":
        change(tree / block.title, block.text)
    elif block.title.startswith("append to "):
        path = tree / block.title.removeprefix("append to ")
        assert path.exists(), f"{path} is not there to append to"
        path.write_text(path.read_text(encoding="utf-8") + block.text, encoding="utf-8")
    else:
        path = tree / block.title
        assert not path.exists(), f"{path} exists already"
        path.write_text(block.text, encoding="utf-8")
    git("add", "--all", tree=tree)


def change(path: Path, diff: str) -> None:
    """Apply a diff whose hunks have no line numbers: the old text of each must be in the file once."""
    text = path.read_text(encoding="utf-8")
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, f"{path.name} has this {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def run(command: str, tree: Path) -> None:
    folders = os.pathsep.join(str(tree / folder) for folder in SOURCES)
    # The copy's own packages, before those of the checkout that .venv knows.
    environment = os.environ | {"PYTHONPATH": folders, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


def git(*arguments: str, tree: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=tree, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: no list of files")
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", tree=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for program in Path(sys.executable).parent.iterdir():
        (programs / program.name).symlink_to(program)
    for name in ("lib", "pyvenv.cfg"):  # so that its python finds what is installed
        (programs.parent / name).symlink_to(Path(sys.prefix) / name)
    for stamp in (".demo", ".installed"):
        (tmp_path / ".venv" / stamp).touch()
    git("init", "--quiet", tree=tmp_path)
    git("add", "--all", tree=tmp_path)
    git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message=all", tree=tmp_path)
    return tmp_path


@pytest.mark.recipes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_complete(recipe: str, tree: Path) -> None:
    for block in blocks(recipe):
        follow(block, tree)
    changed = [name for name in git("diff", "--cached", "--name-only", tree=tree).splitlines() if name.endswith(".py")]
    run(f".venv/bin/ruff check --quiet {' '.join(changed)}", tree)
    run(f".venv/bin/ruff format --quiet --check {' '.join(changed)}", tree)


@pytest.mark.recipes
@pytest.mark.timeout(1800)
def test_a_recipe_without_one_of_its_blocks_fails(tree: Path) -> None:
    """The alert without its runbook: the recipe's own commands must notice."""

    def follow_without_runbook() -> None:
        for block in blocks("Add an alert"):
            if "docs/alerts.md" not in block.title:
                follow(block, tree)

    with pytest.raises(AssertionError, match=r"(?i)nicoutofbuffers"):
        follow_without_runbook()


@pytest.mark.recipes
def test_a_collector_is_one_file_that_the_exporter_finds_and_the_gates_name_what_it_lacks(tree: Path) -> None:
    """The smallest one under another name, as "Add a collector" has it."""
    folder = tree / "exporters/pyrometer_exporters/node"
    text = (folder / "maintenance.py").read_text(encoding="utf-8")
    assert (
        f"`{(folder / 'maintenance.py').relative_to(tree)}` is the smallest" in (ROOT / "CONTRIBUTING.md").read_text()
    )
    (folder / "vacation.py").write_text(text.replace("maintenance", "vacation"), encoding="utf-8")
    run(".venv/bin/python -m pyrometer_exporters.node.main --help | grep -e --no-collector.vacation", tree)
    run(".venv/bin/python -m tools.metrics_page docs/metrics.md && grep pyrometer_node_vacation docs/metrics.md", tree)
    for gate in ("tests/exporters/test_golden_pages.py", "tests/tools/test_metrics_used.py"):
        with pytest.raises(AssertionError, match=r"vacation"):
            run(f".venv/bin/pytest -q {gate}", tree)


def test_every_recipe_is_followed() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    with_blocks = [recipe for recipe in re.findall(r"^## (Add .+)$", page, re.MULTILINE) if any(blocks(recipe))]
    assert tuple(with_blocks) == RECIPES
    for recipe in RECIPES:
        files = {block.title.removeprefix("append to ") for block in blocks(recipe) if block.title}
        assert len(files) <= MOST_FILES


def test_a_diff_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("a\nb\n")
    change(path, "@@\n a\n+c\n")
    assert path.read_text() == "a\nc\nb\n"
    with pytest.raises(AssertionError, match="0 times"):
        change(path, textwrap.dedent("@@\n x\n+y\n"))
