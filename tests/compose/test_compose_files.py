"""The compose files: valid in every combination, and each service as locked down as the project promises."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_simulator.engine.compose import Compose, find_compose
from pyrometer_simulator.stack import StackError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose"
FILES = ("compose.yaml", "compose.node.yaml", "compose.demo.yaml")
ALL_FILES = (*FILES, "compose.scale.yaml")  # a part of compose.yaml
COMBINATIONS = (
    ("compose.yaml",),
    ("compose.node.yaml",),
    ("compose.yaml", "compose.demo.yaml"),
    ("compose.yaml", "compose.node.yaml"),
    ("compose.yaml", "compose.demo.yaml", "compose.node.yaml"),
)
# Overrides of services that another file defines in full.
OVERRIDES = {("compose.demo.yaml", name) for name in ("prometheus", "alerting", "vmagent-0", "vmagent-1")}
OUR_USER = "10935:10935"


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def services() -> dict[tuple[str, str], dict[str, Any]]:
    found = {(file, name): service for file in ALL_FILES for name, service in load(FOLDER / file)["services"].items()}
    return {place: service for place, service in found.items() if place not in OVERRIDES}


ALL = services()


@pytest.fixture(scope="session")
def program() -> Path:
    try:
        return find_compose(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))


def resolved(program: Path, files: tuple[str, ...], profiles: tuple[str, ...], **env: str) -> dict[str, Any]:
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    compose = Compose(program, FOLDER, files, env=bare | env, profiles=profiles)
    loaded: dict[str, Any] = yaml.safe_load(compose.run("--env-file", os.devnull, "config"))
    return loaded


@pytest.mark.parametrize("profiles", [(), ("scale",), ("scale-cluster",), ("scale", "scale-cluster")], ids="+".join)
@pytest.mark.parametrize("files", COMBINATIONS, ids="+".join)
def test_every_combination_of_files_and_profiles_is_valid(
    program: Path, files: tuple[str, ...], profiles: tuple[str, ...]
) -> None:
    merged = resolved(program, files, profiles)
    for name, service in merged["services"].items():
        assert service["image"], name


def test_the_example_settings_are_the_defaults(program: Path, tmp_path: Path) -> None:
    """Each line of .env.example, taken at its word, changes nothing."""
    uncommented = re.sub(r"^#([A-Z_]+=)", r"\1", (FOLDER / ".env.example").read_text(), flags=re.MULTILINE)
    settings = dict(line.split("=", 1) for line in uncommented.splitlines() if re.match(r"[A-Z_]+=", line))
    settings = {name: value for name, value in settings.items() if not name.startswith("PIP_")}
    profiles = ("scale", "scale-cluster")
    plain = {"PYTHON_IMAGE": settings["PYTHON_IMAGE"]}  # a build argument: not passed on where it is not set
    for files in (FILES, ("compose.yaml",)):
        assert resolved(program, files, profiles, **settings) == resolved(program, files, profiles, **plain)


def test_every_setting_is_explained_and_every_explained_setting_exists() -> None:
    used = {name for file in ALL_FILES for name in re.findall(r"(?<!\$)\$\{([A-Z_]+)", (FOLDER / file).read_text())}
    used |= set(load(FOLDER / "compose.yaml")["services"]["alerting"]["build"]["args"])
    explained = set(re.findall(r"^#([A-Z_]+)=", (FOLDER / ".env.example").read_text(), re.MULTILINE))
    assert used == explained


def test_a_slack_channel_brings_the_token_along(program: Path) -> None:
    def flags(**env: str) -> list[str]:
        found: list[str] = resolved(program, ("compose.yaml",), (), **env)["services"]["alerting"]["command"]
        return [flag for flag in found if flag.startswith("--slack")]

    assert flags() == []
    assert flags(SLACK_CHANNEL="#gpu alerts") == [
        "--slack.bot-token-file=/run/secrets/slack_bot_token",
        "--slack.channel=#gpu alerts",
    ]


@pytest.mark.parametrize(("file", "name"), ALL)
def test_every_service_is_locked_down(file: str, name: str) -> None:
    service = ALL[file, name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["SYSLOG"] if name == "node" else [])
    assert "privileged" not in service
    if name != "node":  # whose Python carries its one capability
        assert service["security_opt"] == ["no-new-privileges:true"]
    # Our images name their user themselves; see the Dockerfile's own test.
    user = service.get("user", OUR_USER if "build" in service else "")
    assert re.fullmatch(r"[1-9]\d*:\d+", user), "runs as root"


@pytest.mark.parametrize(("file", "name"), ALL)
def test_every_service_has_bounds_and_comes_back(file: str, name: str) -> None:
    service = ALL[file, name]
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["logging"]["options"]["max-size"]
    assert service["restart"] == ("no" if name == "victoria-volume" else "unless-stopped")


@pytest.mark.parametrize(("file", "name"), ALL)
def test_every_service_can_be_replaced_and_is_pinned(file: str, name: str) -> None:
    image = ALL[file, name]["image"]
    assert re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[a-z/-]+:v?\d+\.\d+\.\d+(-cluster)?\}", image), (
        "no version, or not to be overridden"
    )


@pytest.mark.parametrize(("file", "name"), [place for place, service in ALL.items() if "build" not in service])
def test_programs_of_others_have_a_health_check(file: str, name: str) -> None:
    """Ours have it in their image."""
    assert ALL[file, name]["healthcheck"]["test"][0] == "CMD"


def test_ports_are_published_on_loopback_unless_told_otherwise() -> None:
    for service in ALL.values():
        for port in service.get("ports", []):
            assert port.startswith("${BIND_ADDRESS:-127.0.0.1}:")


def test_a_gpu_node_mounts_what_it_needs_and_nothing_more() -> None:
    node = ALL["compose.node.yaml", "node"]
    assert sorted(mount.split(":")[0] for mount in node["volumes"]) == ["./site", "/dev/shm", "/sys", "state"]
    assert [mount for mount in node["volumes"] if not mount.endswith(":ro")] == ["state:/var/lib/pyrometer"]
    assert node["devices"] == ["/dev/kmsg:/dev/kmsg:r"]
    assert (node["pid"], node["network_mode"]) == ("host", "host")


def test_the_image_ends_as_an_ordinary_user() -> None:
    stages = re.split(r"^FROM ", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    finals = {stage.split()[2]: re.findall(r"^USER (\S+)", stage, re.MULTILINE) for stage in stages}
    assert finals["base"][-1] == OUR_USER
    for name in ("exporters", "alerting", "demo"):
        assert (finals[name] or [OUR_USER])[-1] == OUR_USER


def test_the_images_have_the_version_of_the_project() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    texts = [(FOLDER / file).read_text() for file in (*ALL_FILES, ".env.example")]
    assert {tag for text in texts for tag in re.findall(r"pyrometer-(?:exporters|alerting|demo):([\d.]+)", text)} == {
        version[1]
    }
