"""The compose files at work: images built without PyPI, the demo's scenario in containers, a newcomer's first steps.

Upstream images are stand-ins from Debian's packages; where no engine runs and none can be started, all of it is skipped
with the reason. `make test-compose` runs this file and its neighbours, on one site: nine minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.containers import all_scraped, documented, eventually, healthy, lasting, targets, told

from pyrometer_simulator.demo.topology import NODES
from pyrometer_simulator.engine.compose import ComposeError
from pyrometer_simulator.engine.daemon import EngineError
from pyrometer_simulator.engine.site import OUR_IMAGES, Site

pytestmark = [pytest.mark.e2e, pytest.mark.compose, pytest.mark.timeout(1800)]

# Ours have python3, the stand-ins busybox: both have a shell.
TOUCH = ("sh", "-c", "touch /proof")


def test_the_scenario_reaches_slack_and_names_the_culprits(played: dict[str, Any]) -> None:
    assert played["status"] == 0, played["log"]
    assert "WRONG" not in played["log"]


def test_every_program_is_well_and_scraped(running: Site, played: dict[str, Any]) -> None:
    assert eventually(lambda: all_scraped(running)), targets(running)
    assert eventually(lambda: not healthy(running, lasting(running)), 150), healthy(running, lasting(running))


def test_a_newcomers_first_commands_change_nothing_that_runs(running: Site, played: dict[str, Any]) -> None:
    before = {name: running.container(name) for name in running.services}
    said = running.person.play(documented("start"))
    assert {name: running.container(name) for name in running.services} == before
    assert "prometheus" in said
    password = running.folder / "compose/secrets/grafana-admin-password"
    assert password.stat().st_mode & 0o777 == 0o440
    assert len(password.read_text()) > 30


def test_a_newcomers_first_alert_is_in_the_channel(running: Site, played: dict[str, Any]) -> None:
    running.person.play(documented("first alert"))
    assert eventually(lambda: told(running, ["FirstAlert"]), 60) == ["FirstAlert"]


def test_targets_are_made_from_what_sinfo_prints(running: Site, played: dict[str, Any]) -> None:
    tools = running.folder / "tools"
    tools.mkdir()
    (tools / "sinfo").write_text("#!/bin/sh\necho 'PARTITION AVAIL TIMELIMIT NODES STATE NODELIST'\n"
                                 "echo 'gpu* up infinite 3 idle gpu-[001-003]'\n")  # fmt: skip
    (tools / "sinfo").chmod(0o755)
    running.person.play(f"PATH={tools}:$PATH\n" + documented("targets"))
    made = yaml.safe_load((running.folder / "compose/targets/nodes.yaml").read_text())
    found = {target: group["labels"] for group in made for target in group["targets"]}
    assert found == {f"{name}:9935": {"cluster": "h100", "node": name} for name in NODES[:3]}


def test_every_program_is_an_ordinary_user_without_capabilities(running: Site) -> None:
    for name in lasting(running):
        status = Path(f"/proc/{running.inspect(name)['State']['Pid']}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split()[0] != "0", name
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0, name
        assert fields["NoNewPrivs"] == "1", name


def test_every_root_is_read_only(running: Site) -> None:
    for name in lasting(running):
        with pytest.raises(ComposeError, match="Read-only file system"):
            running.inside(name, *TOUCH)


def test_the_exporters_image_is_small_and_has_no_pandas(running: Site) -> None:
    image = OUR_IMAGES["PYROMETER_EXPORTERS_IMAGE"]
    assert int(running.docker.run("image", "inspect", "--format", "{{.Size}}", image)) < 200e6
    run = ("run", "--rm", "--network=none", image, "python3", "-c")
    for module in ("pandas", "matplotlib", "requests"):
        with pytest.raises(EngineError, match="ModuleNotFoundError"):
            running.docker.run(*run, f"import {module}")
