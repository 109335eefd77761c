"""The web configuration file: what opens the door, and one line for each way to get it wrong."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
from pathlib import Path

import bcrypt
import pytest

from pyrometer_exporters.framework.flags import UsageError
from pyrometer_exporters.framework.webconfig import WebConfig, load

HASH = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.fixture
def write(tmp_path: Path, certificate: tuple[Path, Path]) -> str:
    """The file's path; certificate, key and some wrong files lie beside it."""
    for source, name in zip(certificate, ("cert.pem", "key.pem"), strict=True):
        shutil.copy(source, tmp_path / name)
    (tmp_path / "empty.pem").touch()
    subprocess.run(
        ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", tmp_path / "key.pem",
         "-out", tmp_path / "locked.pem"], check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", tmp_path / "other.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return str(tmp_path / "web.yml")


TLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem"
GOOD = {
    "": (False, 0),
    "{}": (False, 0),
    "# nothing": (False, 0),
    "basic_auth_users:": (False, 0),
    f"basic_auth_users: {{a: {HASH}}}": (False, 1),
    f"basic_auth_users: {{a: {HASH}, 5: {HASH.replace('$2b', '$2y')}, c: {HASH.replace('$2b', '$2a')}}}": (False, 3),
    f"{TLS}}}": (True, 0),
    f"{TLS}, min_version: TLS13}}": (True, 0),
    f"{TLS}, client_auth_type: NoClientCert}}": (True, 0),
    f"{TLS}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: cert.pem}}\n"
    f"basic_auth_users: {{a: {HASH}}}": (True, 1),
}


@pytest.mark.parametrize("text", GOOD)
def test_good_files(text: str, write: str) -> None:
    Path(write).write_text(text)
    config = load(write)
    assert (config.tls is not None, len(config.users)) == GOOD[text]


BAD = {
    "[1, 2]": "found a list",
    "just text": "found a str",
    "a: [": ":1: not valid YAML",
    "ok: 1\n\tb: 2": ":2: not valid YAML",
    "a: b: c": ":1: not valid YAML",
    "\x00": "not valid YAML",
    "a: 2026-13-45": "not valid YAML",
    "[" * 5000: "not valid YAML",
    "!!python/object/apply:os.system [id]": ":1: not valid YAML",
    "{[1]: 2}": ":1: not valid YAML",
    "http_server_config: {http2: false}": "unknown key http_server_config",
    "basic_auth_user: {}": "unknown key basic_auth_user;",
    "basic_auth_users: [a]": "basic_auth_users must hold keys and values",
    "basic_auth_users: text": "basic_auth_users must hold keys and values",
    "basic_auth_users: {a: plaintext}": "basic_auth_users.a is not a bcrypt hash; make one with htpasswd",
    "basic_auth_users: {a: }": "basic_auth_users.a is not a bcrypt hash",
    "basic_auth_users: {a: $2b$10$short}": "basic_auth_users.a is not a bcrypt hash",
    f"basic_auth_users: {{a: {HASH}x}}": "basic_auth_users.a is not a bcrypt hash",
    f"basic_auth_users: {{a: {HASH.replace('$04$', '$99$')}}}": "basic_auth_users.a is not a bcrypt hash",
    f"basic_auth_users: {{a: [{HASH}]}}": "basic_auth_users.a is not a bcrypt hash",
    "tls_server_config: [cert_file, key_file]": "tls_server_config must hold keys and values",
    "tls_server_config: text": "tls_server_config must hold keys and values",
    "tls_server_config: {cert_file: cert.pem}": "tls_server_config needs key_file",
    "tls_server_config: {key_file: key.pem}": "tls_server_config needs cert_file",
    "tls_server_config: {cert_file: 5, key_file: key.pem}": "tls_server_config.cert_file must be a text, found a int",
    "tls_server_config: {cert_file: none.pem, key_file: key.pem}": "can't load the certificate or key: No such file",
    "tls_server_config: {cert_file: ., key_file: key.pem}": "can't load the certificate or key",
    "tls_server_config: {cert_file: empty.pem, key_file: key.pem}": "can't load the certificate or key",
    "tls_server_config: {cert_file: cert.pem, key_file: other.pem}": "can't load the certificate or key",
    "tls_server_config: {cert_file: cert.pem, key_file: locked.pem}": "can't load the certificate or key",
    f"{TLS}, min_version: TLS10}}": "min_version 'TLS10'; known are TLS12 and TLS13",
    f"{TLS}, min_version: [TLS12]}}": "tls_server_config.min_version must be a text",
    f"{TLS}, cipher_suites: []}}": "unknown key tls_server_config.cipher_suites",
    f"{TLS}, client_auth_type: RequestClientCert}}": "client_auth_type 'RequestClientCert'",
    f"{TLS}, client_auth_type: RequireAndVerifyClientCert}}": "go together",
    f"{TLS}, client_ca_file: cert.pem}}": "go together",
    f"{TLS}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: empty.pem}}": "can't load",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:60])
def test_bad_files_end_in_one_line_with_file_and_place(text: str, write: str) -> None:
    Path(write).write_text(text)
    with pytest.raises(UsageError) as caught:
        load(write)
    line = str(caught.value)
    assert line.startswith(f"--web.config.file: {write}") or f"{write}:" in line
    assert BAD[text] in line
    assert "\n" not in line
    assert "secret" not in line


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin1").write_bytes(b"a: \xe9")
    for path, why in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "latin1", "UTF-8"),
    ):
        with pytest.raises(UsageError, match=why):
            load(str(path))


def test_no_file_is_plain_http_without_users() -> None:
    config = load(None)
    assert config.tls is None
    assert config.remembers("")
    assert config.allows("anything")


def test_tls_is_1_2_at_least(write: str) -> None:
    Path(write).write_text(f"{TLS}}}")
    tls = load(write).tls
    assert tls is not None
    assert tls.minimum_version == ssl.TLSVersion.TLSv1_2


USERS = WebConfig(users={"prom": HASH.encode(), "7": HASH.encode()})


@pytest.mark.parametrize(
    "header", [basic("prom:right"), basic("7:right"), basic("prom:right").replace("Basic", "bAsIc")]
)
def test_the_right_password_opens_and_is_remembered(header: str) -> None:
    config = WebConfig(users=USERS.users)
    assert not config.remembers(header)
    assert config.allows(header)
    assert config.remembers(header)


@pytest.mark.parametrize(
    "header",
    [
        "", "Basic", "Basic ", "Bearer x", "Basic !!!", "Basic é", "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        basic("prom"), basic("prom:wrong"), basic("prom:"), basic(":right"), basic("nobody:right"), basic("PROM:right"),
        basic("prom:right\0"), basic("prom:" + "x" * 10_000), basic("prom:rightx"), basic("pro:mright"), "Basic 🔥",
        HASH, basic(f"prom:{HASH}"),
    ],
)  # fmt: skip
def test_anything_else_does_not(header: str) -> None:
    config = WebConfig(users=USERS.users)
    assert not config.allows(header)
    assert not config.remembers(header)


def test_what_is_remembered_is_no_key_for_others() -> None:
    """CVE-2022-46146: a cache key that two pairs can spell."""
    config = WebConfig(users={"a": HASH.encode(), "a:right": HASH.encode()})
    assert config.allows(basic("a:right"))
    assert not config.remembers(basic("a:right:right"))
    assert not config.remembers(basic("nobody:right"))


def test_what_is_remembered_is_bounded() -> None:
    long = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4))
    config = WebConfig(users={"a": long})
    config._accepted.update(bytes([n % 256, n // 256]) for n in range(1000))
    assert config.allows(basic("a:" + "x" * 80))
    assert len(config._accepted) == 1000


def test_an_unknown_user_takes_as_long_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    real = bcrypt.checkpw

    def checkpw(password: bytes, hashed: bytes) -> bool:
        checked.append(hashed)
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    assert not WebConfig(users=USERS.users).allows(basic("nobody:x"))
    assert checked[0].startswith(b"$2b$10$")
