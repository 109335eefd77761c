"""`--storage.url` and its password: bad ones are one line without a secret, good ones reach the server's library."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from pyrometer_alerting.app import main, settings, shared
from pyrometer_alerting.app.shared import check_address

URL = "--storage.url=postgresql://pyrometer@db/alerting"
SECRET = "s3cr3t"
EXPECTED = "--storage.url: expected an address such as postgresql://user@host/database"
SEEN = "a password in it is seen by all who list processes: write it into a file for --storage.password-file"


@pytest.fixture
def password(tmp_path: Path) -> Callable[..., str]:
    def written(content: str = SECRET, mode: int = 0o600) -> str:
        file = tmp_path / "password"
        file.write_text(content)
        file.chmod(mode)
        return f"--storage.password-file={file}"

    return written


def said(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    assert main.run(arguments, {}) == status
    captured = capsys.readouterr()
    assert SECRET not in captured.err + captured.out
    assert captured.err.count("\n") == (status != 0)
    return captured.err or captured.out


@pytest.mark.parametrize("command", [[], ["check-config"], ["digest"], ["replay"], ["explain"]], ids=str)
@pytest.mark.parametrize(
    "url",
    [
        f"mysql://me:{SECRET}@db/alerting",
        f"me:{SECRET}@db/alerting",
        f"host=db password={SECRET}",
        f"http://me:{SECRET}@db",
    ],
)
def test_an_address_of_something_else_is_refused(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXPECTED in said([*command, f"--storage.url={url}"], capsys)


@pytest.mark.skipif(find_spec("psycopg") is None, reason="psycopg is not installed")
@pytest.mark.parametrize("command", [[], ["check-config"], ["digest"], ["replay"], ["explain"]], ids=str)
@pytest.mark.parametrize("url", ["postgresql://me@[db/alerting", f"postgresql://me@db/alerting?colour={SECRET}"])
def test_an_address_that_the_library_cannot_read_is_refused(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXPECTED in said([*command, f"--storage.url={url}"], capsys)


@pytest.mark.parametrize("command", [[], ["check-config"], ["digest"], ["replay"], ["explain"]], ids=str)
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@db/alerting",
        f"postgres://me:{SECRET}@db-1,db-2:5433/alerting?sslmode=require",
        f"postgresql://me:{SECRET}@/alerting?host=%2Frun",
        f"postgresql://me@db/alerting?password={SECRET}",
        f"postgresql://me@db/alerting?sslmode=require&p%61ssword={SECRET}",
        f"postgresql://db?sslpassword={SECRET}",
        f"postgresql://me:{SECRET}@[db/alerting",
    ],
)
def test_a_password_in_the_address_is_refused(command: list[str], url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert SEEN in said([*command, f"--storage.url={url}"], capsys)


def test_an_address_without_a_password_is_none_with_one() -> None:
    for url in ("postgresql://me@db/a", "postgresql://db:5432/a", "postgresql://me:@db/a", "postgresql://db/a?host=x:y@z",
                "postgresql://me@db/a?password=", "postgresql://me@db/a?passfile=/etc/x"):  # fmt: skip
        check_address(url)


@pytest.mark.parametrize("command", [[], ["check-config"], ["replay"], ["explain"]], ids=str)
def test_a_password_that_cannot_be_used_is_refused(
    command: list[str], password: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "it is for --storage.url, which is missing" in said([*command, password()], capsys)
    assert "the file is empty" in said([*command, URL, password("\n")], capsys)
    assert "everyone on this machine can read it: chmod 600" in said([*command, URL, password(mode=0o644)], capsys)
    missing = "--storage.password-file=/nonexistent"
    assert "/nonexistent: No such file or directory" in said([*command, URL, missing], capsys)


@pytest.mark.skipif(find_spec("psycopg") is None, reason="psycopg is not installed")
def test_check_config_reads_them_and_asks_no_server(
    password: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(["check-config", URL, password()], capsys, status=0) == "the configuration is valid\n"


def test_both_may_be_in_the_configuration_file(password: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "alerting.yaml"
    at = password().partition("=")[2]
    file.write_text(f"storage:\n  url: postgresql://pyrometer@db/alerting\n  password-file: {at}\n")
    chosen = settings.load([f"--config.file={file}"], {})
    assert (chosen.storage_url, chosen.storage_password) == ("postgresql://pyrometer@db/alerting", SECRET)
    assert SECRET not in repr(chosen)
    assert (settings.load([], {}).storage_url, settings.load([], {}).storage_password) == ("", "")


@pytest.mark.parametrize("command", [[], ["check-config"], ["digest"], ["replay"], ["explain"]], ids=str)
def test_without_psycopg_the_way_out_is_one_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(shared, "_module", missing)
    assert "needs pip install 'pyrometer-alerting[postgresql]'" in said([*command, URL], capsys)


@pytest.mark.skipif(find_spec("psycopg") is None, reason="psycopg is not installed")
@pytest.mark.parametrize("command", ["digest", "replay", "explain"])
def test_a_server_that_is_away_is_one_line_for_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = said([command, "--storage.url=postgresql://me@127.0.0.1:1/alerting"], capsys)
    assert "postgresql://127.0.0.1/alerting: connection failed" in line
    assert line.endswith("see --storage.url and the server's log\n")


def test_a_folder_that_is_none_is_still_the_folders_matter(capsys: pytest.CaptureFixture[str]) -> None:
    assert "choose another --storage.path" in said(["--storage.path=/dev/null"], capsys)
