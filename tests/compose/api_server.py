"""A Kubernetes of its own for tests: kube-apiserver over etcd on loopback, and its controllers on demand.

No kubelet and no scheduler: objects are accepted, replaced and collected as in a cluster, and their pods never run.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from tools import chart

from pyrometer_simulator.ports import free_port

ADMINISTRATOR = "administrator"
MERGE = "application/merge-patch+json"
SERVER = ("kube-apiserver", "etcd", "openssl")
# The node exporter's pods ask for it; the GPU operator makes it.
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia",
}  # fmt: skip


def missing(*names: str) -> str:
    """Return why a test that needs these programs is skipped; empty where all are there."""
    absent = [name for name in names if chart.program(name) is None]
    hint = "`make chart-programs cluster-programs`, and the packages etcd-server and openssl"
    return f"no {', '.join(absent)}: {hint}" if absent else ""


class Api:
    """Runs an API server, and makes an administrator's calls."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, list[subprocess.Popen[bytes]]()
        self.url = f"https://127.0.0.1:{free_port()}"
        self.certificate, self.token = folder / "server.crt", folder / "token"
        self.config = folder / "kubeconfig"

    @classmethod
    @contextmanager
    def running(cls, folder: Path, *, controllers: bool = False) -> Iterator[Api]:
        """Start a server for the length of the block; on demand, with its controllers."""
        server = cls(folder)
        try:
            server.start()
            if controllers:
                server.start_controllers()
            yield server
        finally:
            server.stop()

    def start(self) -> None:
        folder, port = self._folder, free_port()
        self._make_keys()
        etcd = f"http://127.0.0.1:{port}"
        self._start(
            "etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
        )  # fmt: skip
        self._start(
            "kube-apiserver", f"--etcd-servers={etcd}", f"--secure-port={self.url.rpartition(':')[2]}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={folder}/server.key", f"--service-account-key-file={folder}/account.key",
            f"--service-account-signing-key-file={folder}/account.key", f"--service-account-issuer={self.url}",
            "--authorization-mode=RBAC", f"--token-auth-file={folder}/tokens.csv",
            "--service-cluster-ip-range=10.0.0.0/24",
        )  # fmt: skip
        self._until_ready()

    def start_controllers(self) -> None:
        """Start what makes pods of Deployments and DaemonSets, and collects what belongs to nobody any more."""
        self._start(
            "kube-controller-manager", f"--kubeconfig={self.config}", "--leader-elect=false",
            "--bind-address=127.0.0.1", f"--secure-port={free_port()}", f"--cert-dir={self._folder}",
            f"--service-account-private-key-file={self._folder}/account.key",
            "--node-monitor-grace-period=1h",  # no kubelet reports, and none is missed
        )  # fmt: skip

    def _make_keys(self) -> None:
        folder = self._folder
        subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
        for command in (
            [*new, "-keyout", f"{folder}/server.key", "-out", str(self.certificate)],
            ["openssl", "genrsa", "-out", f"{folder}/account.key", "2048"],
        ):
            subprocess.run(command, check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{ADMINISTRATOR},admin,1,system:masters\n")
        named = {"name": "test"}
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        self.config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{**named, "cluster": cluster}], "users": [{**named, "user": {"token": ADMINISTRATOR}}],
            "contexts": [{**named, "context": {"cluster": "test", "user": "test"}}],
        }))  # fmt: skip

    def _start(self, name: str, *flags: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._started.append(subprocess.Popen([str(chart.program(name)), *flags], stdout=log, stderr=log))

    def _until_ready(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except requests.RequestException:
                pass
            assert time.monotonic() < deadline, (self._folder / "kube-apiserver.log").read_text()[-2000:]
            time.sleep(0.5)

    def ask(
        self, method: str, path: str, body: Any = None, token: str = ADMINISTRATOR, *, kind: str = MERGE
    ) -> tuple[int, Any]:
        """Return status and answer; ``kind`` is a patch's."""
        kind = kind if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        answer = requests.request(
            method, self.url + path, json=body, headers=headers, verify=str(self.certificate), timeout=10
        )
        return answer.status_code, answer.json() if answer.text.startswith("{") else answer.text

    def stop(self) -> None:
        for process in reversed(self._started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
