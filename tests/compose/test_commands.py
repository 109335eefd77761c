"""The commands of containers, units, manifests and docs/deployment.md: each is one that our distributions install."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.containers import PLACES, documented

from pyrometer_simulator.yaml_loader import LOADER

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose"
INSTALLED = {
    script.name
    for script in importlib.metadata.entry_points(group="console_scripts")
    if script.module.startswith("pyrometer")
}


def words(command: Any) -> list[str]:
    return command.split() if isinstance(command, str) else [str(word) for word in command or ()]


def pod_commands(path: Path) -> Iterator[tuple[str, list[str]]]:
    for document in yaml.load_all(path.read_text(encoding="utf-8"), LOADER):
        if document["kind"] in ("DaemonSet", "Deployment", "StatefulSet"):
            pod = document["spec"]["template"]["spec"]
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                yield f"kubernetes {container['name']}", words(container.get("command"))


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the words of every command that may be ours."""
    for path in sorted(FOLDER.glob("compose*.yaml")):
        (document,) = yaml.load_all(path.read_text(encoding="utf-8"), LOADER)
        for name, service in document["services"].items():
            for key in ("entrypoint", "command"):
                yield f"{path.name} {name} {key}", words(service.get(key))
    for path in sorted((FOLDER / "kubernetes").glob("*.yaml")):
        yield from pod_commands(path)
    for unit in sorted((FOLDER / "systemd").glob("*.service")):
        (line,) = re.findall(r"^ExecStart=(.+)", unit.read_text(encoding="utf-8"), re.MULTILINE)
        yield unit.name, line.split()
    for number, line in enumerate(re.findall(r"^CMD (\[.+\])", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)):
        yield f"Dockerfile CMD {number}", words(yaml.safe_load(line))
    text = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    for number, block in enumerate(text.split("```\n")[1::2]):
        for name in re.findall(r"(?:^|[|] |^ +)(pyrometer-[a-z-]+) --", block, re.MULTILINE):
            yield f"deployment.md block {number}", [name]


OURS = [
    (place, found)
    for place, found in commands()
    if found and (Path(found[0]).name.startswith("pyrometer-") or any("pyrometer_" in word for word in found))
]


@pytest.mark.parametrize(("place", "found"), OURS, ids=[place for place, _ in OURS])
def test_the_command_or_module_exists(place: str, found: list[str]) -> None:
    if "-m" in found:
        module = found[found.index("-m") + 1]
        assert importlib.util.find_spec(module) is not None, f"{place}: no module {module}"
    else:
        assert Path(found[0]).name in INSTALLED, f"{place}: no command {found[0]}"


def test_commands_of_every_kind_were_seen() -> None:
    """A change of a file's layout must not leave its commands unseen."""
    seen = {place.split(" ")[0] for place, _ in OURS}
    units = {unit.name for unit in (FOLDER / "systemd").glob("*.service")}
    files = {"compose.yaml", "compose.node.yaml", "compose.demo.yaml"}
    assert seen == {*units, *files, "kubernetes", "Dockerfile", "deployment.md"}


@pytest.mark.parametrize("subject", PLACES)
def test_the_documentation_has_the_commands_that_the_containers_tests_follow(subject: str) -> None:
    assert documented(subject).strip()
