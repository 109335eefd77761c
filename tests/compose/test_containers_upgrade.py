"""The commands of docs/deployment.md for an upgrade and the way back, in a checkout with a release that is pulled."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compose.containers import documented, eventually, lasting

from pyrometer_simulator.demo.observe import incidents
from pyrometer_simulator.demo.processes import answers
from pyrometer_simulator.engine.site import OUR_IMAGES, Site

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
OLD, NEXT = "0.2.0", "9.9.9"
# Images by the names in the compose files, as a person has them.
UNSET = "unset " + " ".join(OUR_IMAGES) + "\n"


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "safe.directory=*"]
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def next_release(running: Site) -> Iterator[Path]:
    """Make the site a checkout of this release, whose origin has another one."""
    shutil.copy(ROOT / ".gitignore", running.folder)
    for name in ("compose.yaml", "compose.demo.yaml", "compose.node.yaml"):
        rename(running.folder / "compose" / name, ":-pyrometer-", ":-pyrometer-test-")
    with tempfile.TemporaryDirectory(prefix="pym-origin-") as folder:
        origin = Path(folder) / "origin"
        git(running.folder, "init", "--quiet", "--initial-branch=main")
        git(running.folder, "add", "--all")
        git(running.folder, "commit", "--quiet", "--message=this release")
        git(running.folder, "clone", "--quiet", str(running.folder), str(origin))
        git(running.folder, "remote", "add", "origin", str(origin))
        git(running.folder, "fetch", "--quiet", "origin")
        git(running.folder, "branch", "--set-upstream-to=origin/main")
        for name in ("compose.yaml", "compose.demo.yaml", "compose.node.yaml"):
            rename(origin / "compose" / name, f":{OLD}}}", f":{NEXT}}}")
        (origin / "VERSION").write_text(f"{NEXT}\n")
        git(origin, "commit", "--quiet", "--all", "--message=the next release")
        yield origin
        shutil.rmtree(running.folder / ".git")


def rename(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new))


def version(running: Site) -> str:
    return running.inside("alerting", "pyrometer-alerting", "--version").split()[2]


def test_an_upgrade_by_the_pages_commands_and_the_way_back(
    running: Site, played: dict[str, Any], next_release: Path, tmp_path: Path
) -> None:
    running.person.play(UNSET + "docker compose up --detach")
    untouched = [name for name in ("prometheus", "alertmanager", "victoria", "host") if name in lasting(running)]
    started = {name: running.inspect(name)["State"]["StartedAt"] for name in untouched}
    known = {each["id"] for each in incidents(running.url("ALERTING"))}
    assert known
    running.person.play(UNSET + upgrade(running, tmp_path), seconds=900.0)
    assert eventually(lambda: answers(f"{running.url('ALERTING')}/-/healthy"))
    assert version(running) == NEXT
    assert {name: running.inspect(name)["State"]["StartedAt"] for name in untouched} == started
    assert known <= {each["id"] for each in incidents(running.url("ALERTING"))}
    last = "\n".join(upgrade(running, tmp_path).splitlines()[-2:])
    running.person.play(f"{UNSET}git checkout --quiet HEAD^\n{last}\n./state.sh restore {tmp_path}/before")
    assert eventually(lambda: answers(f"{running.url('ALERTING')}/-/healthy"))
    assert version(running) == OLD
    assert known <= {each["id"] for each in incidents(running.url("ALERTING"))}


def upgrade(running: Site, folder: Path) -> str:
    """Return the page's block. Images of others are there already, as no registry is: only absent ones are pulled."""
    block = documented("upgrade").replace("/backup/before", f"{folder}/before")
    block = block.replace("pull --ignore-buildable", "pull --ignore-buildable --policy=missing")
    return block if running.has_grafana else block.replace("alerting grafana", "alerting")
