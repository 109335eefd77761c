"""Which Grafana shows the demo's boards, and with what."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.demo import boards, grafana
from pyrometer_simulator.demo.addresses import Addresses
from pyrometer_simulator.demo.processes import DemoError, Processes
from pyrometer_simulator.shipped import project_folder

PROJECT = project_folder()


def program(path: Path, script: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def home(folder: Path, name: str = "grafana", script: str = "exit 0") -> Path:
    program(folder / "bin" / name, script)
    (folder / "conf").mkdir()
    (folder / "conf/defaults.ini").touch()
    (folder / "public").mkdir()
    return folder


def found(tmp_path: Path, **environ: str) -> grafana.Grafana | None:
    return grafana.find(PROJECT, {"PATH": str(tmp_path / "nothing"), **environ})


def test_the_folder_that_somebody_names_comes_first(tmp_path: Path) -> None:
    ours, theirs = home(tmp_path / "ours"), home(tmp_path / "theirs")
    chosen = found(tmp_path, GRAFANA_HOME=str(ours), PATH=str(theirs / "bin"))
    assert chosen == grafana.Installed(ours / "bin/grafana", ours)


def test_a_named_folder_without_grafana_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=f"GRAFANA_HOME={tmp_path}: no bin/grafana with conf/defaults.ini there"):
        found(tmp_path, GRAFANA_HOME=str(tmp_path))


@pytest.mark.parametrize(("name", "words"), [("grafana", ["server", "--homepath"]), ("grafana-server", ["--homepath"])])
def test_a_grafana_on_path_is_started_with_its_home(tmp_path: Path, name: str, words: list[str]) -> None:
    theirs = home(tmp_path / "theirs", name)
    chosen = found(tmp_path, PATH=str(theirs / "bin"))
    assert chosen is not None
    command, _ = chosen.launch(PROJECT, tmp_path / "data", {})
    assert command == [str(theirs / "bin" / name), *words, str(theirs)]


def test_a_program_of_that_name_without_its_files_is_no_grafana(tmp_path: Path) -> None:
    program(tmp_path / "bin/grafana")
    assert found(tmp_path, PATH=str(tmp_path / "bin")) is None


@pytest.mark.parametrize(("status", "expected"), [(0, grafana.InDocker), (1, type(None))])
def test_docker_counts_where_its_daemon_answers(tmp_path: Path, status: int, expected: type) -> None:
    program(tmp_path / "bin/docker", f"exit {status}")
    assert isinstance(found(tmp_path, PATH=str(tmp_path / "bin")), expected)


def test_the_container_has_the_boards_and_no_password_in_its_command(tmp_path: Path) -> None:
    settings = grafana.settings(PROJECT, 3000, "http://127.0.0.1:9090", "http://127.0.0.1:9093")
    command, environment = grafana.InDocker("grafana/grafana:12.2.0").launch(PROJECT, tmp_path, settings)
    assert f"--volume={PROJECT / 'dashboards/json'}:/etc/grafana/boards:ro" in command
    assert "--network=host" in command
    assert command[-1] == "grafana/grafana:12.2.0"
    password = environment["GF_SECURITY_ADMIN_PASSWORD"]
    assert len(password) >= 32
    assert password not in " ".join(command)
    assert {f"--env={name}" for name in settings} <= set(command)


def test_the_image_is_that_of_compose_or_of_the_environment(tmp_path: Path) -> None:
    program(tmp_path / "bin/docker")
    path = str(tmp_path / "bin")
    chosen = found(tmp_path, PATH=path)
    assert isinstance(chosen, grafana.InDocker)
    assert chosen.image.startswith("grafana/grafana:")
    assert found(tmp_path, PATH=path, GRAFANA_IMAGE="mirror/grafana:12") == grafana.InDocker(
        "mirror/grafana:12", chosen.name
    )


def test_grafana_listens_to_this_machine_alone_and_asks_nobody() -> None:
    settings = grafana.settings(PROJECT, 3000, "http://127.0.0.1:9090", "http://127.0.0.1:9093")
    expected = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1", "GF_AUTH_ANONYMOUS_ENABLED": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_ANALYTICS_REPORTING_ENABLED": "false", "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false", "GF_NEWS_NEWS_FEED_ENABLED": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true", "GF_PLUGINS_PUBLIC_KEY_RETRIEVAL_DISABLED": "true",
        "GF_SECURITY_DISABLE_GRAVATAR": "true",
    }  # fmt: skip
    assert expected.items() <= settings.items()


def test_all_that_grafana_writes_is_in_the_demos_folder(tmp_path: Path) -> None:
    ours = home(tmp_path / "ours")
    _, environment = grafana.Installed(ours / "bin/grafana", ours).launch(PROJECT, tmp_path / "data", {})
    for name in ("DATA", "LOGS", "PLUGINS", "PROVISIONING"):
        assert environment[f"GF_PATHS_{name}"].startswith(str(tmp_path / "data"))
    provider = (tmp_path / "data/provisioning/dashboards/pyrometer.yaml").read_text()
    assert f"path: {PROJECT / 'dashboards/json'}\n" in provider


def test_a_grafana_that_ends_costs_only_the_boards(tmp_path: Path) -> None:
    ours = home(tmp_path / "ours", script="echo no such schema; exit 3")
    said: list[str] = []
    with (
        Processes(tmp_path) as processes,
        boards.serving(
            "auto", found(tmp_path, GRAFANA_HOME=str(ours)), tmp_path / "data", Addresses(), processes
        ) as shown,
    ):
        assert shown.url("overview").endswith("/d/pyrometer-overview")
        processes._running[boards.NAME].wait(20)
        processes.check()
        shown.look(processes, said.append)
        shown.look(processes, said.append)
    assert [line.partition(" (all")[0] for line in said] == ["no boards: Grafana ended with status 3: no such schema"]
    assert shown.url("overview") == ""


def test_a_grafana_that_was_asked_for_and_is_missing_ends_the_demo(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"--boards=grafana: there is none on PATH"):
        boards.find("grafana", {"PATH": str(tmp_path)})


def test_a_board_is_shown_as_it_was_at_a_time() -> None:
    shown = boards.Boards("drawn", "http://127.0.0.1:3000")
    assert shown.url("fabric", 1000.0) == "http://127.0.0.1:3000/d/pyrometer-fabric?from=760000&to=1000000"
    assert boards.Boards("none").url("fabric", 1000.0) == ""
