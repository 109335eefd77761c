"""The images install only files whose hashes are in the tree, in the versions that are tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose/requirements"
FILES = sorted(FOLDER.glob("*.txt"))


def pins(path: Path) -> dict[str, set[str]]:
    """Versions by name; a package may have several, for several Pythons."""
    found: dict[str, set[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "# ":
            requirement = Requirement(line.removesuffix("\\").strip())
            found.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_package_has_hashes_and_the_version_that_is_tested(path: Path) -> None:
    tested = pins(ROOT / "constraints.txt")
    for name, versions in pins(path).items():
        assert versions <= tested[name], name
    blocks = re.split(r"\n(?=[a-z])", path.read_text(encoding="utf-8"))[1:]
    assert [block.splitlines()[0] for block in blocks if not re.search(r"--hash=sha256:[0-9a-f]{64}", block)] == []


def test_every_install_of_an_image_demands_hashes_or_takes_nothing_from_outside() -> None:
    text = (ROOT / "compose/Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [command for line in re.findall(r"^RUN (.*)$", text, re.MULTILINE) for command in line.split("&&")]
    installs = [
        " ".join(command.split()) for command in commands if re.search(r"\bpip\b.*\b(install|wheel)\b", command)
    ]
    assert len(installs) == 8
    for command in installs:
        fetches = "--no-index --no-deps" not in command and "--no-deps --no-build-isolation" not in command
        assert not fetches or "--require-hashes" in command, command
    named = set(re.findall(r"--requirement compose/requirements/(\w+)\.txt", text))
    assert named == {path.stem for path in FILES}
