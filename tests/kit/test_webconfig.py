"""The web configuration file: every legal key, and one line for each way to get it wrong."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import bcrypt
import pytest

from pyrometer_kit.errors import UsageError
from pyrometer_kit.webconfig import load

HASH = bcrypt.hashpw(b"right", b"$2b$04$abcdefghijklmnopqrstuu").decode()  # the same in each process: it is in ids


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
    assert (config.tls is not None, len(config.auth.users)) == GOOD[text]


BAD = {
    "[1, 2]": ":1: expected settings as `name: value`, found a list",
    "just text": ":1: expected settings as `name: value`, found a text",
    "a: [": ":1: not valid YAML",
    "ok: 1\n\tb: 2": ":2: not valid YAML",
    "a: b: c": ":1: not valid YAML",
    "\x00": "not valid YAML",
    "a: 2026-13-45": ":1: unknown setting a;",
    "[" * 5000: "not valid YAML",
    "!!python/object/apply:os.system [id]": ":1: not valid YAML: the tag",
    "{[1]: 2}": ":1: not valid YAML",
    "a: &x {}\nb: *x": "aliases are not supported",
    "basic_auth_users: {}\nbasic_auth_users: {}": ":2: basic_auth_users is given twice",
    "basic_auth_users: {}": ":1: basic_auth_users names nobody, so that everybody would be let in",
    "basic_auth_user: {}": ":1: unknown setting basic_auth_user;",
    "basic_auth_users: [a]": ":1: expected settings",
    "basic_auth_users: []": ":1: expected settings",
    "basic_auth_users: text": ":1: expected settings",
    "basic_auth_users: {a: plaintext}": "basic_auth_users.a is not a bcrypt hash; make one with htpasswd",
    "basic_auth_users: {a: }": "basic_auth_users.a is not a bcrypt hash",
    "basic_auth_users: {a: $2b$10$short}": "basic_auth_users.a is not a bcrypt hash",
    f"basic_auth_users: {{a: {HASH}x}}": "basic_auth_users.a is not a bcrypt hash",
    f"basic_auth_users: {{a: {HASH.replace('$04$', '$99$')}}}": "basic_auth_users.a is not a bcrypt hash",
    f"basic_auth_users: {{a: [{HASH}]}}": "basic_auth_users.a is not a bcrypt hash",
    "tls_server_config: [cert_file, key_file]": ":1: expected settings",
    "tls_server_config: []": ":1: expected settings",
    "tls_server_config: text": ":1: expected settings",
    "tls_server_config: {cert_file: cert.pem}": "tls_server_config needs key_file",
    "tls_server_config: {key_file: key.pem}": "tls_server_config needs cert_file",
    "tls_server_config:\n  certificate: cert.pem": ":2: unknown setting certificate",
    "tls_server_config: {cert_file: [a], key_file: key.pem}": "expected a plain text, found a list",
    "tls_server_config: {cert_file: 5, key_file: key.pem}": "can't load the certificate or key: No such file",
    "tls_server_config: {cert_file: none.pem, key_file: key.pem}": "can't load the certificate or key: No such file",
    "tls_server_config: {cert_file: ., key_file: key.pem}": "can't load the certificate or key",
    "tls_server_config: {cert_file: empty.pem, key_file: key.pem}": "can't load the certificate or key",
    "tls_server_config: {cert_file: cert.pem, key_file: other.pem}": "can't load the certificate or key",
    "tls_server_config: {cert_file: cert.pem, key_file: locked.pem}": "the key is encrypted, and no password can be",
    f"{TLS}, cert: inline}}": "cert and cert_file exclude each other",
    "tls_server_config: {cert: nonsense, key: nonsense}": "can't load the certificate or key",
    f"{TLS}, min_version: TLS10}}": "min_version 'TLS10'; known are TLS12, TLS13",
    f"{TLS}, min_version: [TLS12]}}": "expected a plain text, found a list",
    f"{TLS}, max_version: TLS11}}": "max_version 'TLS11'; known are TLS12, TLS13",
    f"{TLS}, cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}}": "unknown cipher suite TLS_RSA_WITH_RC4_128_SHA; known are",
    f"{TLS}, cipher_suites: TLS_AES_128_GCM_SHA256}}": "expected a list, found a text",
    f"{TLS}, curve_preferences: [secp256k1]}}": "unknown curve secp256k1; known are CurveP256",
    f"{TLS}, prefer_server_cipher_suites: perhaps}}": "prefer_server_cipher_suites 'perhaps'; known are true, false",
    f"{TLS}, client_auth_type: RequestClientCert}}": "client_auth_type 'RequestClientCert'; known are",
    f"{TLS}, client_auth_type: RequireAndVerifyClientCert}}": "needs client_ca_file: no certificate could be verified",
    f"{TLS}, client_auth_type: VerifyClientCertIfGiven}}": "needs client_ca_file",
    f"{TLS}, client_ca_file: cert.pem}}": "the client CA would verify no client: set client_auth_type",
    f"{TLS}, client_ca: text, client_auth_type: NoClientCert}}": "the client CA would verify no client",
    f"{TLS}, client_allowed_sans: [a]}}": "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert",
    f"{TLS}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: empty.pem}}": "can't load the client CA",
    f"{TLS}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: key.pem}}": "can't load the client CA",
    f"{TLS}, client_auth_type: RequireAndVerifyClientCert, client_ca: text}}": "can't load the client CA",
    "http_server_config: {http3: true}": "unknown setting http3",
    "http_server_config: {http2: 2}": "http2 '2'; known are true, false",
    "http_server_config: {headers: {Server: x}}": "unknown setting Server; known are Content-Security-Policy",
    "http_server_config: {headers: {X-Frame-Options: never}}": "X-Frame-Options is 'never'; known are deny, sameorigin",
    'http_server_config: {headers: {X-XSS-Protection: "1\\r\\nSet-Cookie: a"}}': "printable ASCII on one line",
    "rate_limit: {burst: 5}": "rate_limit needs interval, such as 1s",
    "rate_limit: {interval: soon, burst: 5}": "interval is not a duration such as 1s",
    "rate_limit: {interval: 1, burst: 5}": "interval is not a duration such as 1s",
    "rate_limit: {interval: 1s}": "burst must be at least 1",
    "rate_limit: {interval: 1s, burst: 0}": "burst must be at least 1",
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
    assert config.auth.remembers("")
    assert config.auth.allows("anything")


def test_tls_is_1_2_at_least(write: str) -> None:
    Path(write).write_text(f"{TLS}}}")
    tls = load(write).tls
    assert tls is not None
    assert tls.minimum_version == ssl.TLSVersion.TLSv1_2


def test_every_legal_key_is_accepted_at_once(write: str, caplog: pytest.LogCaptureFixture) -> None:
    Path(write).write_text("""\
tls_server_config:
  cert_file: cert.pem
  key_file: key.pem
  client_ca_file: cert.pem
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [127.0.0.1, prometheus.example]
  min_version: TLS12
  max_version: TLS12
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP384]
http_server_config:
  http2: false
  headers:
    Content-Security-Policy: default-src 'none'
    Strict-Transport-Security: max-age=31536000
    X-Content-Type-Options: nosniff
    X-Frame-Options: DENY
    X-XSS-Protection:
basic_auth_users: {}
rate_limit:
  interval: 1m30s
  burst: 20
""")
    config = load(write)
    assert config.tls is not None
    assert config.tls.verify_mode == ssl.CERT_REQUIRED
    assert config.tls.maximum_version == ssl.TLSVersion.TLSv1_2
    assert not config.tls.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    old = [cipher["name"] for cipher in config.tls.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    assert config.allowed_sans == {"127.0.0.1", "prometheus.example"}
    assert config.headers["X-Frame-Options"] == "DENY"
    assert "X-XSS-Protection" not in config.headers, "blank leaves it unset"
    assert config.rate_limit is not None
    assert (config.rate_limit.interval, config.rate_limit.burst) == (90.0, 20)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("http_server_config:\n  http2: true", ":2: http2 is not supported: HTTP/1.1 is served"),
        (f"{TLS}, curve_preferences: [X25519, CurveP256]}}", "curve_preferences is supported with one curve only"),
    ],
)
def test_a_key_that_cannot_be_honoured_is_one_warning(
    text: str, warning: str, write: str, caplog: pytest.LogCaptureFixture
) -> None:
    Path(write).write_text(text)
    load(write)
    (record,) = caplog.records
    assert warning in record.getMessage()


def test_certificate_and_key_may_stand_in_the_file_itself(write: str) -> None:
    folder = Path(write).parent
    lines = ["tls_server_config:"]
    for name, file in (("cert", "cert.pem"), ("key", "key.pem"), ("client_ca", "cert.pem")):
        lines += [f"  {name}: |", *(f"    {line}" for line in (folder / file).read_text().splitlines())]
    lines.append("  client_auth_type: VerifyClientCertIfGiven")
    Path(write).write_text("\n".join(lines))
    config = load(write)
    assert config.tls is not None
    assert config.tls.verify_mode == ssl.CERT_OPTIONAL
    assert config.files == (Path(write),)


def test_a_rate_limit_of_0_is_none(write: str) -> None:
    Path(write).write_text("rate_limit: {interval: 0, burst: 5}")
    assert load(write).rate_limit is None
