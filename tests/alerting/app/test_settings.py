"""Bad input: one line on stderr that names the thing and the way out, exit code 2, no trace, no secret."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrometer_alerting.app import commands, main, settings
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_kit.errors import UsageError

TOKEN = "xoxb-1-s3cr3t"


def secret(tmp_path: Path, content: str = TOKEN, mode: int = 0o600, name: str = "token") -> Path:
    file = tmp_path / name
    file.write_text(content)
    file.chmod(mode)
    return file


def yaml(tmp_path: Path, content: str) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    return file


Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Start the service with a mistake; return the one line that it ends with, which repeats no secret."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **environment: str) -> str:
        assert main.run(list(arguments), environment) == 2
        captured = capsys.readouterr()
        assert (captured.out, captured.err.count("\n")) == ("", 1)
        assert not any(secret in captured.err for secret in ("pw", "s3cr3t", "hunter2", "Traceback"))
        return captured.err

    return run


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--web.listen-address=nine", "--web.listen-address: 'nine' is not host:port, such as 127.0.0.1:"),
        ("--web.listen-address=127.0.0.1:70000", "is not host:port"),
        ("--prometheus.url=localhost:9090", "--prometheus.url=localhost:9090: expected an address"),
        ("--prometheus.url=http://me:pw@[bad", "expected an address"),
        ("--grafana.url=javascript:alert(1)", "expected an address"),
        ("--alertmanager.external-url=am.example", "--alertmanager.external-url=am.example: expected an address"),
        ("--slack.api-url=ftp://x/", "expected an address"),
        ("--scheduler=slurm,lab=pbs", "--scheduler=slurm,lab=pbs: 'lab=pbs' must be one of slurm, kubernetes, none"),
        ("--log.format=xml", "--log.format=xml: must be one of logfmt, json"),
        ("--config.file=/nonexistent.yaml", "/nonexistent.yaml: No such file or directory"),
        ("--web.config.file=/nonexistent.yaml", "/nonexistent.yaml: No such file or directory"),
        ("--slack.bot-token-file=/nonexistent", "/nonexistent: No such file or directory"),
        ("--slack.bot-token-file=/", "not a file"),
        ("--storage.path=/proc/nope", "/proc/nope/alerting.sqlite3: No such file or directory: choose another"),
        ("--storage.path=/dev/null", "/dev/null"),
    ],
)
def test_bad_flags(argument: str, said: str, refused: Refused) -> None:
    assert said in refused(argument)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("", 0o600, "the file is empty"),
        (" \n", 0o600, "the file is empty"),
        ("xapp-1-s3cr3t", 0o600, "not a bot token: it must start with xoxb-"),
        ("xoxb-1 s3cr3t", 0o600, "not a bot token"),
        ("xoxb-1-é-s3cr3t", 0o600, "not a bot token"),
        (TOKEN, 0o644, "everyone on this machine can read it: chmod 600"),
    ],
)
def test_bad_tokens_are_refused_and_not_repeated(
    content: str, mode: int, said: str, refused: Refused, tmp_path: Path
) -> None:
    assert said in refused(f"--slack.bot-token-file={secret(tmp_path, content, mode)}", "--slack.channel=C1")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({settings.TOKEN_VARIABLE: "hunter2"}, settings.TOKEN_VARIABLE),
        ({settings.TOKEN_VARIABLE: TOKEN}, "--slack.channel is missing"),
        ({settings.APP_TOKEN_VARIABLE: "xapp-1-s3cr3t"}, "buttons need a bot token as well"),
    ],
)
def test_tokens_of_the_environment_that_are_wrong_or_not_enough(
    environment: dict[str, str], said: str, refused: Refused
) -> None:
    assert said in refused(**environment)


def test_more_than_two_tokens_are_a_mistake(refused: Refused, tmp_path: Path) -> None:
    file = secret(tmp_path, "one\ntwo\nthree")
    line = refused(f"--web.bearer-token-file={file}", f"--storage.path={tmp_path / 's'}")
    assert "expected one token, or two on a line each" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("slack:\n  chanel: x\n", "config.yaml:2: unknown setting slack.chanel; known are"),
        ("slack: [1]\n", "config.yaml:1: slack must not be a list"),
        ("notice: a\nnotice: b\n", "config.yaml:2: notice is given twice"),
        ("notice: 'a\n", "config.yaml:2: not valid YAML"),
        ("just text\n", "config.yaml:1: expected settings as `name: value`"),
        ("a: &x {b: 1}\nc: *x\n", "config.yaml:1: YAML aliases"),
        ("notice: &x a\nlog: {level: *x}\n", "aliases are not supported"),
        ("log:\n  level: loud\n", "must be one of debug"),
    ],
)
def test_bad_configuration_files_are_named_with_their_line(
    content: str, said: str, refused: Refused, tmp_path: Path
) -> None:
    assert said in refused(f"--config.file={yaml(tmp_path, content)}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "slack-users in --config.file must say who may press buttons"),
        ("slack-users: [bob]", "config.yaml:1: bob: expected a user's id"),
        ("slack-users: U0ALICE", "config.yaml:1: expected a list"),
    ],
)
def test_buttons_need_people(tmp_path: Path, content: str, said: str, refused: Refused) -> None:
    tokens = {settings.TOKEN_VARIABLE: TOKEN, settings.APP_TOKEN_VARIABLE: "xapp-1-s3cr3t"}
    arguments = [f"--config.file={yaml(tmp_path, content)}", "--slack.channel=#x", f"--storage.path={tmp_path / 's'}"]
    assert said in refused(*arguments, **tokens)


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ([], ""),
        (["--alertmanager.url=http://am-1:9093,http://am-2:9093"], "http://am-1:9093"),
        (["--alertmanager.url=http://me:s3cr3t@am-1:9093"], "http://am-1:9093"),
        (
            ["--alertmanager.url=http://am-1:9093", "--alertmanager.external-url=https://am.example"],
            "https://am.example",
        ),
        (["--alertmanager.external-url=https://me:s3cr3t@am.example/"], "https://am.example/"),
    ],
)
def test_links_to_alertmanager_lead_where_browsers_reach_it(flags: list[str], shown: str) -> None:
    assert main.style(settings.load(flags, {})).alertmanager_url == shown


def test_what_is_asked_is_not_what_links_lead_to() -> None:
    chosen = settings.load(["--alertmanager.url=http://am:9093", "--alertmanager.external-url=https://am.example"], {})
    assert chosen.alertmanager_urls == ("http://am:9093",)
    chosen = settings.load(["--prometheus.url=http://p:9090", "--prometheus.external-url=https://p.example"], {})
    assert (chosen.prometheus_url, main.style(chosen).prometheus_url) == ("http://p:9090", "https://p.example")


def test_a_port_in_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main.run([f"--web.listen-address={address}", f"--storage.path={tmp_path}"], {}) == 2
    error = capsys.readouterr().err
    assert f"can't listen on {address}: the port is in use by another program; give another address" in error


def test_two_services_never_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = Store(tmp_path)
    assert main.run([f"--storage.path={tmp_path}"], {}) == 2
    assert f"{tmp_path}: another pyrometer-alerting uses this folder: choose another --storage.path" in (
        capsys.readouterr().err
    )
    first.close()
    Store(tmp_path).close()


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = yaml(tmp_path, "notice: from file\nslack:\n  channel: '#a'\nprometheus:\n  url: http://p:9090\n")
    chosen = settings.load([f"--config.file={file}", "--notice=from flag"], {settings.TOKEN_VARIABLE: TOKEN})
    assert (chosen.notice, chosen.slack_channel, chosen.prometheus_url) == ("from flag", "#a", "http://p:9090")
    assert TOKEN not in repr(chosen)


@pytest.mark.parametrize("argument", ["--slack.chanel=x", "--slack.chan=x", "stray"])
def test_unknown_and_abbreviated_flags(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.run([argument], {})
    line = f"pyrometer-alerting: unrecognized arguments: {argument} (see pyrometer-alerting --help)\n"
    assert (caught.value.code, capsys.readouterr().err) == (2, line)


def test_digests_have_a_time_and_a_zone() -> None:
    chosen = settings.load(["--digest.daily=9:05", "--digest.weekly=Mon 18:30", "--digest.timezone=Europe/Zurich"], {})
    assert [(found.kind, found.minutes, found.weekday) for found in chosen.schedules] == [
        ("daily", 545, None),
        ("weekly", 1110, 0),
    ]
    assert str(chosen.zone) == "Europe/Zurich"
    assert settings.load([], {}).schedules == ()


@pytest.mark.parametrize(
    "flag",
    [
        "--digest.daily=25:00",
        "--digest.daily=nine",
        "--digest.weekly=09:00",
        "--digest.weekly=mon",
        "--digest.timezone=Europe/Nowhere",
        "--digest.timezone=../../etc/passwd",
        "--slack.charts=svg",
        "--runbook.url=docs",
    ],
)
def test_bad_digest_and_message_settings_get_one_line(flag: str) -> None:
    with pytest.raises(UsageError, match=flag.partition("=")[0].lstrip("-")):
        settings.load([flag], {})


def test_a_configuration_can_be_checked_without_starting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = yaml(tmp_path, "slack:\n  channel: '#x'\nrouting:\n  routes:\n    - {match: {a: b}, channel: '#y'}\n")
    assert main.run(["check-config", f"--config.file={file}"], {}) == 0
    assert capsys.readouterr().out == "the configuration is valid\n"
    assert list(tmp_path.iterdir()) == [file]  # nothing was started, no store was made
    file.write_text("slack:\n  channel: '#x'\nrouting:\n  routes:\n    - {match: {a: b}, channel: y}\n")
    assert main.run(["check-config", f"--config.file={file}"], {}) == 2
    assert "config.yaml:5: y: expected a channel" in capsys.readouterr().err


def test_the_service_sends_digests_at_the_times_that_the_flags_give(tmp_path: Path) -> None:
    flags = ["--digest.daily=9:05", "--digest.timezone=Europe/Zurich", "--prometheus.url=http://127.0.0.1:9"]
    chosen = settings.load([*flags, f"--storage.path={tmp_path}"], {})
    service = main._service(chosen, main._Configuration(chosen))
    try:
        digests = service.analysis.digest_scheduler._digests
        assert (digests.schedules, digests.zone) == (chosen.schedules, chosen.zone)
        assert digests.prometheus is not None
    finally:
        service.stop()


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.run(["--help"], {})
    shown = capsys.readouterr().out
    assert all(f"\n  {name}" in shown and said in shown for name, said in settings.COMMANDS.items())
    assert all(commands.find([name], {}) is not None for name in settings.COMMANDS)
    assert commands.find(["--web.listen-address=:1"], {}) is None


def test_a_password_in_the_pages_address_is_in_no_message_and_no_label() -> None:
    chosen = settings.load(["--web.external-url=https://me:s3cr3t@alerts.example/"], {})
    assert main._page_url(chosen, encrypted=True) == "https://alerts.example"
