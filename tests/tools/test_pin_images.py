"""Images are pinned to the digests that a registry gives: a stand-in on loopback, with tokens as at Docker Hub."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tools import pin_images as tool

ROOT = Path(__file__).resolve().parents[2]
DIGESTS = {"prom/prometheus:v3": "sha256:" + "a" * 64, "library/python:3.13": "sha256:" + "b" * 64}


class Registry(ThreadingHTTPServer):
    """Knows DIGESTS, and gives them to whoever brings the token that anybody gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.digests, self.login = dict(DIGESTS), False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        assert self.path == "/token?service=here&scope=repository%3Apull"
        self._answer(200, {}, json.dumps({"token": "for-anybody"}).encode())

    def do_HEAD(self) -> None:
        realm = f'Bearer realm="http://{self.server.address}/token",service="here",scope="repository:pull"'
        if self.headers.get("Authorization") != "Bearer for-anybody":
            self._answer(401, {"WWW-Authenticate": "Basic realm=x" if self.server.login else realm})
            return
        assert "image.index" in self.headers["Accept"]
        repository, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
        digest = self.server.digests.get(f"{repository}:{tag}")
        self._answer(404 if digest is None else 200, {"Docker-Content-Digest": digest or ""})

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def images(tmp_path: Path, registry: Registry) -> Path:
    file = tmp_path / "images"
    file.write_text(
        f"#PROMETHEUS_IMAGE={registry.address}/prom/prometheus:v3\n#PYTHON_IMAGE={registry.address}/library/python:3.13\n"
        "#PYROMETER_DEMO_IMAGE=pyrometer-demo:0.2.0\n"
    )
    return file


def run(*arguments: str | Path) -> int:
    return int(tool.main([*map(str, arguments)], scheme="http"))


@pytest.mark.parametrize(("name", "parts"), [
    ("python:3.13", ("docker.io", "library/python", "3.13")),
    ("prom/prometheus:v3", ("docker.io", "prom/prometheus", "v3")),
    ("registry.example.org/x/y:1@sha256:0", ("registry.example.org", "x/y", "1")),
    ("localhost:5000/x:1", ("localhost:5000", "x", "1")),
])  # fmt: skip
def test_names_are_taken_apart_as_docker_does(name: str, parts: tuple[str, str, str]) -> None:
    image = tool.Image.parsed(name)
    assert (image.registry, image.repository, image.tag) == parts


def test_every_image_of_compose_is_asked_for_and_none_of_ours() -> None:
    names = dict(tool.settings((ROOT / "compose/.env.example").read_text(encoding="utf-8")))
    assert {"PROMETHEUS_IMAGE", "ALERTMANAGER_IMAGE", "GRAFANA_IMAGE", "NODE_EXPORTER_IMAGE", "PYTHON_IMAGE"} <= set(
        names
    )
    assert not [name for name in names if name.startswith("PYROMETER")]
    assert all(tool.Image.parsed(image).tag for image in names.values())


def test_pins_are_written_and_what_else_is_in_the_file_stays(images: Path, registry: Registry, tmp_path: Path) -> None:
    env = tmp_path / ".env"
    env.write_text(f"SLACK_CHANNEL=C1\nPROMETHEUS_IMAGE={registry.address}/prom/prometheus:v3\nX=1\n")
    assert run("--images", images, "--write", env) == 0
    assert env.read_text().splitlines() == [
        "SLACK_CHANNEL=C1", f"PROMETHEUS_IMAGE={registry.address}/prom/prometheus:v3@sha256:{'a' * 64}", "X=1",
        f"PYTHON_IMAGE={registry.address}/library/python:3.13@sha256:{'b' * 64}",
    ]  # fmt: skip
    assert run("--images", images, "--check", env) == 0


def test_every_image_that_the_tree_starts_is_a_setting_that_can_be_pinned() -> None:
    """A name in a file and not in .env.example would be left out of all this."""
    known = {image for _, image in tool.settings((ROOT / "compose/.env.example").read_text(encoding="utf-8"))}
    for path in sorted((ROOT / "compose").glob("*.yaml")):
        for image in re.findall(r"image:\s*\$\{\w+:-([^}]+)\}", path.read_text(encoding="utf-8")):
            assert image in known or image.startswith("pyrometer-"), f"{path.name}: {image}"
        assert not re.search(r"image:\s*[^\s$]", path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize("trouble", ["login", "gone", "nonsense", "away"])
def test_a_registry_without_an_answer_is_one_line_and_nothing_is_written(
    trouble: str, images: Path, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.login = trouble == "login"
    if trouble == "gone":
        registry.digests.clear()
    if trouble == "nonsense":
        registry.digests["prom/prometheus:v3"] = "sha256:short\r\nX: y".replace("\r\n", "")
    if trouble == "away":
        images.write_text("PROMETHEUS_IMAGE=127.0.0.1:1/prom/prometheus:v3\n")
    env = tmp_path / ".env"
    assert run("--images", images, "--write", env) == 2
    assert not env.exists()
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("pin_images: http://")
