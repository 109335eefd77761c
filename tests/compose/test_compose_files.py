"""The compose files: valid in every combination, and each service as locked down as the project promises."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrometer_alerting.app import main, settings
from pyrometer_simulator.engine.compose import Compose, plugin
from pyrometer_simulator.stack import StackError
from pyrometer_simulator.yaml_loader import LOADER

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose"
FILES = ("compose.yaml", "compose.node.yaml", "compose.demo.yaml")
ALL_FILES = (*FILES, "compose.scale.yaml")  # a part of compose.yaml
PROFILES = [(), ("scale",), ("scale-cluster",), ("scale", "scale-cluster")]
# The demo changes services of the monitoring host, of which compose.scale.yaml is a part already.
COMBINATIONS = (
    ("compose.yaml",),
    ("compose.node.yaml",),
    ("compose.scale.yaml",),
    ("compose.yaml", "compose.demo.yaml"),
    ("compose.yaml", "compose.node.yaml"),
    ("compose.yaml", "compose.demo.yaml", "compose.node.yaml"),
    ("compose.node.yaml", "compose.scale.yaml"),
)
# Overrides of services that another file defines in full.
OVERRIDES = {("compose.demo.yaml", name) for name in ("prometheus", "alerting", "vmagent-0", "vmagent-1")}
OUR_USER = "10935:10935"


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), LOADER)  # noqa: S506  a SafeLoader
    return loaded


def services() -> dict[tuple[str, str], dict[str, Any]]:
    found = {(file, name): service for file in ALL_FILES for name, service in load(FOLDER / file)["services"].items()}
    return {place: service for place, service in found.items() if place not in OVERRIDES}


ALL = services()


@pytest.fixture(scope="session")
def program() -> Path:
    try:
        return plugin("docker-compose", lambda _: None)
    except StackError as error:
        pytest.skip(str(error))


@cache
def configuration(program: Path, files: tuple[str, ...], profiles: tuple[str, ...], **env: str) -> str:
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    compose = Compose(program, FOLDER, files, env=bare | env, profiles=profiles)
    return compose.run("--env-file", os.devnull, "config")


def resolved(program: Path, files: tuple[str, ...], profiles: tuple[str, ...], **env: str) -> dict[str, Any]:
    text = configuration(program, files, profiles, **env)
    loaded: dict[str, Any] = yaml.load(text, LOADER)  # noqa: S506  a SafeLoader
    return loaded


@pytest.mark.parametrize("profiles", PROFILES, ids="+".join)
@pytest.mark.parametrize("files", COMBINATIONS, ids="+".join)
def test_every_combination_of_files_and_profiles_is_valid(
    program: Path, files: tuple[str, ...], profiles: tuple[str, ...]
) -> None:
    merged = resolved(program, files, profiles)
    for name, service in merged["services"].items():
        assert service["image"], name


def test_the_example_settings_are_the_defaults(program: Path, tmp_path: Path) -> None:
    """Each line of .env.example, taken at its word, changes nothing."""
    uncommented = re.sub(r"^#([A-Z0-9_]+=)", r"\1", (FOLDER / ".env.example").read_text(), flags=re.MULTILINE)
    settings = dict(line.split("=", 1) for line in uncommented.splitlines() if re.match(r"[A-Z0-9_]+=", line))
    settings = {name: value for name, value in settings.items() if not name.startswith("PIP_")}
    profiles = ("scale", "scale-cluster")
    plain = {"PYTHON_IMAGE": settings["PYTHON_IMAGE"]}  # a build argument: not passed on where it is not set
    for files in (FILES, ("compose.yaml",)):
        assert resolved(program, files, profiles, **settings) == resolved(program, files, profiles, **plain)


def test_every_setting_is_explained_and_every_explained_setting_exists() -> None:
    used = {name for file in ALL_FILES for name in re.findall(r"(?<!\$)\$\{([A-Z0-9_]+)", (FOLDER / file).read_text())}
    used |= set(load(FOLDER / "compose.yaml")["services"]["alerting"]["build"]["args"])
    explained = set(re.findall(r"^#([A-Z0-9_]+)=", (FOLDER / ".env.example").read_text(), re.MULTILINE))
    assert used == explained


def alerting_flags(program: Path, *files: str, **env: str) -> dict[str, str]:
    command = resolved(program, files or ("compose.yaml",), (), **env)["services"]["alerting"]["command"]
    return dict(flag.split("=", 1) for flag in command[1:])


def test_an_address_with_signs_of_the_shell_is_one_flag_and_ends_no_others(program: Path) -> None:
    names = re.findall(r"\$\{([A-Z_]+_URL):-", load(FOLDER / "compose.yaml")["services"]["alerting"]["command"])
    addresses = {name: f"https://reader:p&s;s|w@{name}.corp:9090/(x)?a=b&c=d#e" for name in names}
    flags = alerting_flags(program, **addresses)
    assert set(addresses.values()) - set(flags.values()) == set()
    assert flags.keys() >= alerting_flags(program).keys()


def test_a_slack_channel_brings_the_token_along(program: Path) -> None:
    assert not [flag for flag in alerting_flags(program) if flag.startswith("--slack")]
    flags = alerting_flags(program, SLACK_CHANNEL="#gpu alerts")
    assert flags["--slack.bot-token-file"] == "/run/secrets/slack_bot_token"
    assert flags["--slack.channel"] == "#gpu alerts"


def test_the_address_of_a_loki_brings_its_data_source_along(program: Path) -> None:
    for address, file in (("", "loki.yaml"), ("http://loki:3100", "loki-of-an-address.yaml")):
        grafana = resolved(program, ("compose.yaml",), (), LOKI_URL=address)["services"]["grafana"]
        (source,) = [each["source"] for each in grafana["volumes"] if each["target"].endswith("loki.yaml")]
        assert Path(source) == FOLDER / "grafana" / file
        assert grafana["environment"]["LOKI_URL"] == address


EVERY_SETTING = {
    "SLACK_CHANNEL": "C1", "SLACK_APP_TOKEN_FILE": "./app", "RUNBOOK_URL": "https://git.example/x",
    "LOKI_URL": "http://loki.example:3100",
    "DIGEST_DAILY": "09:00", "DIGEST_WEEKLY": "mon 09:00", "DIGEST_TIMEZONE": "Europe/Zurich",
}  # fmt: skip


def test_every_flag_of_the_alerting_service_can_be_set(program: Path) -> None:
    """By a setting of its own, or named where .env.example explains ALERTING_FLAGS."""
    known = set(re.findall(r"^  (--[a-z.-]+) [A-Z{]", settings._parser().format_help(), re.MULTILINE))
    assert len(known) > 20
    named = set(re.findall(r"--[a-z]+\.[a-z.-]+|--notice|--scheduler", (FOLDER / ".env.example").read_text()))
    own = {"--slack.api-url"}  # for tests and the demo
    assert known - own - set(alerting_flags(program, **EVERY_SETTING)) - named == set()


def test_the_service_takes_the_flags_that_it_is_given(program: Path) -> None:
    flags = alerting_flags(program, **EVERY_SETTING)
    flags = {name: value for name, value in flags.items() if not name.endswith("token-file")}
    chosen = settings.load([f"{name}={value}" for name, value in flags.items()], {})
    assert chosen.alertmanager_urls == ("http://alertmanager:9093",)
    assert main.style(chosen).alertmanager_url == "http://localhost:9093"
    assert [schedule.kind for schedule in chosen.schedules] == ["daily", "weekly"]


def test_links_lead_where_browsers_reach_and_not_into_the_network_of_containers(program: Path) -> None:
    links = {
        "ALERTMANAGER_URL": "alertmanager.external-url", "PROMETHEUS_URL": "prometheus.external-url",
        "GRAFANA_URL": "grafana.url", "ALERTING_URL": "web.external-url",
    }  # fmt: skip
    urls = {variable: f"https://{flag}.example" for variable, flag in links.items()}
    for files in (("compose.yaml",), ("compose.yaml", "compose.demo.yaml")):
        flags = alerting_flags(program, *files, **urls)
        assert [flags[f"--{flag}"] for flag in links.values()] == list(urls.values())
        assert (flags["--alertmanager.url"], flags["--prometheus.url"]) == (
            "http://alertmanager:9093", "http://prometheus:9090",
        )  # fmt: skip


def test_the_demo_changes_the_alerting_service_only_where_it_says_so(program: Path) -> None:
    real, demo = (
        alerting_flags(program, *files, **EVERY_SETTING)
        for files in (("compose.yaml",), ("compose.yaml", "compose.demo.yaml"))
    )
    differ = {name for name in real.keys() | demo.keys() if real.get(name) != demo.get(name)}
    assert differ == {
        "--slack.api-url", "--slack.channel", "--slack.bot-token-file", "--slack.app-token-file", "--notice",
    }  # fmt: skip


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
    assert re.fullmatch(r"\$\{[A-Z0-9_]+_IMAGE:-[a-z/-]+:v?\d+\.\d+\.\d+(-cluster)?\}", image), (
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
    manifests = ("node-daemonset", "cluster-exporter", "alerting", "kustomization")
    files = (*ALL_FILES, ".env.example", "Dockerfile", *(f"kubernetes/{name}.yaml" for name in manifests))
    image = re.compile(r"pyrometer-(?:exporters|alerting|demo)(?::|, newTag: )(\d[\d.]+)")
    tags = {file: set(image.findall((FOLDER / file).read_text(encoding="utf-8"))) for file in files}
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    assert {file: found for file, found in tags.items() if found != {version}} == {}
