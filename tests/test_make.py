"""`make test` plays the scenario beside the tests, and says of each what came of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on PATH: apt-get install make")

# In place of pytest: it begins, waits for the other one to have begun, and fails where it is told to.
PYTEST = """#!/bin/bash
part=tests; [ "$2" = "e2e and not compose" ] && part=scenario
trap 'sleep 0.3; touch $part.cleaned; exit 2' INT
touch $part.begun
echo "$part: first line"
while [ ! -e tests.begun ] || [ ! -e scenario.begun ] || [ -e hang ]; do sleep 0.05; done
echo "$part: last line"
[ ! -e $part.fails ]
"""


# The environment is as new as these: otherwise make would install it first.
NEEDED = ("pyproject.toml", "constraints.txt", "VERSION", *(f"{part}/pyproject.toml" for part in (
    "client", "kit", "exporters", "alerting", "dashboards", "simulator")))  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile, with an environment in which every program does nothing, and pytest the above."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    bin_folder = tmp_path / ".venv/bin"
    bin_folder.mkdir(parents=True)
    for name, text in {"pytest": PYTEST, **dict.fromkeys(("python", "ruff", "mypy", "pyright"), "#!/bin/sh\n")}.items():
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    for stamp in (".demo", ".installed"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def make_test(checkout: Path) -> subprocess.Popen[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    # A script's background job ignores Ctrl-C, and so would all that it starts; what has a handler here has none there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            ["make", "test"], cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=bare,
            start_new_session=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_scenario_is_played_beside_the_tests_and_told_after_them(checkout: Path) -> None:
    with make_test(checkout) as made:
        said = made.communicate(timeout=60)[0]
    assert made.returncode == 0, said
    lines = [line for line in said.splitlines() if line.endswith(" line")]
    assert lines == ["tests: first line", "tests: last line", "scenario: first line", "scenario: last line"]


@pytest.mark.parametrize(
    ("fails", "named"), [(["tests"], "unit"), (["scenario"], "e2e"), (["tests", "scenario"], "e2e unit")]
)
def test_what_failed_is_named_at_the_end_and_the_other_part_is_told_too(
    checkout: Path, fails: list[str], named: str
) -> None:
    for part in fails:
        (checkout / f"{part}.fails").touch()
    with make_test(checkout) as made:
        said = made.communicate(timeout=60)[0]
    assert made.returncode == 2
    assert f"\nmake: failed: {named}\n" in said
    assert said.count(": last line") == 2


def test_a_type_error_is_told_beside_the_tests_and_named(checkout: Path) -> None:
    (checkout / ".venv/bin/mypy").write_text("#!/bin/sh\necho mypy: one error\nexit 1\n")
    with make_test(checkout) as made:
        said = made.communicate(timeout=60)[0]
    assert made.returncode == 2
    assert "\nmypy: one error\n" in said
    assert "\nmake: failed: types\n" in said
    assert said.count(": last line") == 2


def test_every_end_to_end_test_lies_where_make_looks_for_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    places = [place for each in re.findall(r"(?m)^(?:E2E|SCALE) := (.+)$", makefile) for place in each.split()]
    assert len(places) > 10
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark." + "e2e" in (text := path.read_text(encoding="utf-8")) and "pytest.mark.compose" not in text
    ]
    assert [path for path in marked if not path.startswith(tuple(places))] == []


def test_an_interrupt_ends_both_and_lets_them_clean_up(checkout: Path) -> None:
    (checkout / "hang").touch()
    with make_test(checkout) as made:
        deadline = time.monotonic() + 60
        while not all((checkout / f"{part}.begun").exists() for part in ("tests", "scenario")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(made.pid, signal.SIGINT)  # as a terminal does
        made.communicate(timeout=60)
    assert made.returncode != 0
    assert sorted(path.name for path in checkout.glob("*.cleaned")) == ["scenario.cleaned", "tests.cleaned"]


def test_an_environment_of_another_checkout_is_not_cleared_through_a_link(checkout: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (checkout / ".venv").rename(theirs)
    (checkout / ".venv").symlink_to(theirs)
    kept = sorted(theirs.rglob("*"))
    later = time.time() + 1  # than the stamp by more than a tick of the file system's clock
    os.utime(checkout / "VERSION", (later, later))
    made = subprocess.run(["make", "setup"], cwd=checkout, capture_output=True, text=True, check=False)
    assert (made.returncode, "link" in made.stderr, sorted(theirs.rglob("*"))) == (2, True, kept)
