"""Debian's Alertmanager outside /usr: the copy that is relocated, and a real one that renders its templates."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer_simulator.http_call import call
from pyrometer_simulator.http_server import HttpServer, Request, Response
from pyrometer_simulator.ports import serving
from pyrometer_simulator.stack import StackError, alertmanager, find_stack
from pyrometer_simulator.stack.cache import cache_folder

FOLDER = alertmanager.DEBIAN_FOLDER
OTHERS = b"a string" + FOLDER + b"/ui/" + b"newline" + FOLDER + b"/no-uiMapIter"


def test_the_replaced_path_is_as_long_and_leads_to_the_descriptors_folder(tmp_path: Path) -> None:
    binary = OTHERS + FOLDER + b"failed to apply"
    replaced = alertmanager.replace_folder(binary)
    assert len(replaced) == len(binary)
    assert FOLDER not in replaced
    path = replaced[len(OTHERS) : -len(b"failed to apply")].decode()
    assert os.path.normpath(path) == "/proc/self/fd/9"
    assert replaced.startswith(b"a string" + path.encode() + b"/ui/newline")


@pytest.mark.parametrize("times", [0, 2])
def test_a_binary_that_names_the_folder_otherwise_is_refused_in_one_line(times: int) -> None:
    with pytest.raises(StackError, match=rf"{times} times instead of once.*install Prometheus"):
        alertmanager.replace_folder(OTHERS + times * (FOLDER + b"and so on"))


def unpacked(folder: Path, binary: bytes) -> Path:
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/bin" / alertmanager.PACKAGE).write_bytes(binary)
    return folder


def test_a_relocated_copy_is_written_once_beside_the_original(tmp_path: Path) -> None:
    package = unpacked(tmp_path, OTHERS + FOLDER)
    alertmanager.relocate(package)
    copy = alertmanager.relocated(package)
    written = copy.stat().st_mtime_ns
    alertmanager.relocate(package)
    assert copy.stat().st_mtime_ns == written
    assert os.access(copy, os.X_OK)
    assert (package / "usr/bin" / alertmanager.PACKAGE).read_bytes() == OTHERS + FOLDER
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_a_cache_that_cannot_be_written_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    package = unpacked(tmp_path, OTHERS + FOLDER)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StackError, match="Read-only file system; set XDG_CACHE_HOME"):
        alertmanager.relocate(package)
    assert list(alertmanager.relocated(package).parent.iterdir()) == []


CONFIG = """
route: {{receiver: slack, group_wait: 0s}}
receivers:
  - name: slack
    slack_configs: [{{api_url: "http://127.0.0.1:{port}/", channel: c, send_resolved: false}}]
"""


@contextlib.contextmanager
def receiver() -> Iterator[tuple[int, list[dict[str, object]], threading.Event]]:
    """A web server that takes what Alertmanager posts."""
    posted: list[dict[str, object]] = []
    arrived = threading.Event()

    def take(request: Request) -> Response:
        posted.append(json.loads(request.body))
        arrived.set()
        return Response(b"ok")

    with HttpServer(take) as server:
        yield server.server_port, posted, arrived


@contextlib.contextmanager
def running(folder: Path, receiver_port: int = 9) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A real Alertmanager that runs in `folder`, ready, with its address."""
    (folder / "alertmanager.yaml").write_text(CONFIG.format(port=receiver_port), encoding="utf-8")

    def start(port: int) -> subprocess.Popen[bytes]:
        command = [
            *find_stack().alertmanager_command, "--config.file=alertmanager.yaml", "--storage.path=data",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ]  # fmt: skip
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)

    process, port = serving(start)
    with process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def test_a_real_notification_is_rendered_by_the_packages_templates(tmp_path: Path) -> None:
    with receiver() as (port, posted, arrived), running(tmp_path, port) as (_, url):
        alert = json.dumps([{"labels": {"alertname": "GpuHot", "node": "gpu-003"}}]).encode()
        assert call(f"{url}/api/v2/alerts", alert, Content_Type="application/json").status == 200
        assert arrived.wait(30), (tmp_path / "log").read_text()
        assert call(url).status == 200
    (attachment,) = posted[0]["attachments"]  # type: ignore[misc, attr-defined]
    assert attachment["title"] == "[FIRING:1]  (GpuHot gpu-003)"  # from default.tmpl


def test_killing_the_started_process_ends_alertmanager_itself(tmp_path: Path) -> None:
    with running(tmp_path) as (process, _):
        comm = Path(f"/proc/{process.pid}/comm").read_text(encoding="utf-8")
        process.send_signal(signal.SIGTERM)
        # The signal itself ends it where it comes before Alertmanager has begun to listen for signals.
        assert process.wait(60) in {0, -signal.SIGTERM}
    assert comm.startswith(("prometheus-aler", "alertmanager"))


def test_the_started_process_is_in_the_namespaces_of_its_parent(tmp_path: Path) -> None:
    with running(tmp_path) as (process, _):
        for namespace in ("mnt", "user"):
            theirs = Path(f"/proc/{process.pid}/ns/{namespace}").readlink()
            assert theirs == Path(f"/proc/self/ns/{namespace}").readlink()


def test_a_cache_filled_by_an_earlier_version_gets_its_relocated_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for package in ("prometheus", "promtool"):
        (cache_folder() / package).mkdir(parents=True)
    package = unpacked(cache_folder() / alertmanager.PACKAGE, OTHERS + FOLDER)
    find_stack(lambda _: None)
    assert alertmanager.relocated(package).exists()
