"""Names of pods: asked for once they are needed, from an API server that may be slow, refuse, or send anything."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer_exporters.framework.api_server import ApiServer, from_environment
from pyrometer_exporters.node.gpu.pods import RETRY_SECONDS, UNKNOWN, KubernetesApi, Pod, Pods, pods_of
from pyrometer_kit.errors import UsageError

UID = "2c48913c-b29f-11e7-9350-020968147796"


def metadata(labels: Mapping[str, str] | None = None, **owner: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "uid": UID,
        "name": "llama-8b-worker-3",
        "namespace": "team-a",
        "labels": dict(labels or {}),
    }
    return {**found, "ownerReferences": [{"controller": True, **owner}]} if owner else found


def answer(*each: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "PartialObjectMetadataList", "items": [{"metadata": one} for one in each]}).encode()


@pytest.mark.parametrize(
    ("found", "workload"),
    [
        (metadata(kind="Job", name="llama-8b"), "llama-8b"),
        (metadata({"pod-template-hash": "6d5f"}, kind="ReplicaSet", name="serve-6d5f"), "serve"),
        (metadata({"training.kubeflow.org/job-name": "llama-8b"}, kind="PyTorchJob", name="llama-8b"), "llama-8b"),
        # A JobSet's pods are of its Jobs: the outer name is the one that people know.
        (
            metadata(
                {"jobset.sigs.k8s.io/jobset-name": "llama", "job-name": "llama-w-0"}, kind="Job", name="llama-w-0"
            ),
            "llama",
        ),
        (metadata(), ""),
        ({**metadata(), "labels": None, "ownerReferences": None}, ""),
    ],
)
def test_a_pod_has_the_name_of_its_workload(found: dict[str, Any], workload: str) -> None:
    assert pods_of(answer(found)) == {UID: Pod("team-a", "llama-8b-worker-3", workload)}


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"items": [{}]}', b'{"items": [{"metadata": {"uid": 1}}]}', b"\xff"]
)
def test_what_is_no_list_of_pods_is_an_error_of_one_kind(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  json's own among them
        pods_of(text)


JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.sampled_from(["uid", "name", "namespace", "labels", "ownerReferences"]), JSON))
def test_whatever_the_metadata_hold_it_is_pods_or_that_error(found: dict[str, Any]) -> None:
    with contextlib.suppress(ValueError):
        assert all(isinstance(pod.workload, str) for pod in pods_of(answer(found)).values())


class Source:
    """A source that counts its calls and can be told to fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.known: dict[str, Pod] = {}
        self.error: OSError | None = None

    def pods(self) -> Mapping[str, Pod]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return dict(self.known)


def asked(found: Pods, uid: str) -> Pod:
    """Ask, wait for the thread that asks the source, and ask again."""
    found.of(uid)
    found._worker.start(lambda: None)
    while found._worker.busy:
        threading.Event().wait(0.001)
    return found.of(uid)


def test_the_source_is_asked_when_a_pod_is_new_and_not_more_often_than_every_quarter_of_a_minute() -> None:
    source, now = Source(), [0.0]
    found = Pods(source, lambda: now[0])
    assert source.calls == 0
    source.known = {"a": Pod("n", "a", "w")}
    assert asked(found, "a") == Pod("n", "a", "w")
    assert asked(found, "b") == UNKNOWN
    assert source.calls == 1
    source.known["b"] = Pod("n", "b", "w")
    now[0] = RETRY_SECONDS
    assert asked(found, "b") == Pod("n", "b", "w")
    assert asked(found, "a") == Pod("n", "a", "w")
    assert source.calls == 2


def test_a_source_that_fails_is_logged_once_and_what_is_known_stays(caplog: pytest.LogCaptureFixture) -> None:
    source, now = Source(), [0.0]
    source.known = {"a": Pod("n", "a", "w")}
    found = Pods(source, lambda: now[0])
    asked(found, "a")
    source.error = OSError("refused")
    for _ in range(3):
        now[0] += RETRY_SECONDS
        assert asked(found, "b") == UNKNOWN
    assert found.of("a").name == "a"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HTTPServer]:
    """An API server with TLS, whose account folder is tmp_path; it keeps the requests and answers as told."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
               "-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1",
               "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.crt")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "token").write_text("secret-token\n")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.server.requests.append((self.path, dict(self.headers)))  # type: ignore[attr-defined]
            status, text = self.server.says  # type: ignore[attr-defined]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.crt", tmp_path / "key.pem")

    class Server(HTTPServer):
        def get_request(self) -> Any:
            plain, address = super().get_request()
            return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

        def handle_error(self, *_: Any) -> None:
            pass

    found: Any = Server(("127.0.0.1", 0), Handler)
    found.requests, found.says = [], (200, answer(metadata(kind="Job", name="llama-8b")))
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def test_the_api_is_asked_for_the_metadata_of_this_nodes_pods_alone(server: Any, tmp_path: Path) -> None:
    api = KubernetesApi("gpu-001", ApiServer(server.server_address, tmp_path))
    assert api.pods() == {UID: Pod("team-a", "llama-8b-worker-3", "llama-8b")}
    ((path, headers),) = server.requests
    assert path == "/api/v1/pods?fieldSelector=spec.nodeName%3Dgpu-001&resourceVersion=0"
    assert headers["Authorization"] == "Bearer secret-token"
    assert "PartialObjectMetadataList" in headers["Accept"]


def test_a_refusal_names_the_status_and_not_the_token(server: Any, tmp_path: Path) -> None:
    server.says = (403, b"{}")
    with pytest.raises(ValueError, match="HTTP status 403") as error:
        KubernetesApi("gpu-001", ApiServer(server.server_address, tmp_path)).pods()
    assert "secret" not in str(error.value)


def test_a_server_of_another_authority_is_not_given_the_token(server: Any, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/token").write_text("secret-token")
    certificates = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    other = ["-subj", "/CN=other", "-keyout", str(tmp_path / "other/k"), "-out", str(tmp_path / "other/ca.crt")]
    subprocess.run([*certificates, *other], check=True, capture_output=True)
    with pytest.raises(ssl.SSLError):
        KubernetesApi("gpu-001", ApiServer(server.server_address, tmp_path / "other")).pods()
    assert server.requests == []


def test_outside_a_pod_the_flag_is_one_line() -> None:
    with pytest.raises(UsageError, match="not running in a pod"):
        from_environment("--flag", environment={})
