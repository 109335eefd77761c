"""Who answers at an address is known from the kernel, and speaks for their own runs and jobs only."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.node.nccl.listener import owner_of_peer
from pyrometer_simulator.nccl.job import Job, layouts
from pyrometer_simulator.nccl.ras_server import RasJob, RasServer


@contextmanager
def connected(family: int, host: str, reached: str) -> Iterator[socket.socket]:
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket(family))
        try:
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            server.bind((host, 0))
        except OSError:
            pytest.skip("no IPv6 here")
        server.listen()
        client = stack.enter_context(socket.create_connection((reached, server.getsockname()[1])))
        stack.enter_context(server.accept()[0])
        yield client


@pytest.mark.parametrize(
    ("family", "host", "reached"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
    ],
)
def test_the_kernel_says_who_has_the_other_end(family: int, host: str, reached: str) -> None:
    with connected(family, host, reached) as client:
        assert owner_of_peer(Path("/proc"), client) == os.geteuid()


def test_a_listener_of_another_machine_has_no_owner_here(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text("  sl  local_address rem_address   st\n  0: garbage\n")
    with connected(socket.AF_INET, "127.0.0.1", "127.0.0.1") as client:
        assert owner_of_peer(tmp_path, client) is None


@pytest.mark.parametrize("is_stranger", [False, True])
def test_a_stranger_who_answers_with_the_processes_of_others_gets_neither_their_run_nor_their_job(
    host: Any, monkeypatch: pytest.MonkeyPatch, *, is_stranger: bool
) -> None:
    host.run_process(4000, "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    host.report_rank(4000, 0, run="llama")
    uid = 65533 if is_stranger else os.geteuid()
    monkeypatch.setattr("pyrometer_exporters.node.nccl.ras_client.owner_of_peer", lambda _procfs, _socket: uid)
    job = Job(layouts(32)[0])
    with RasServer(RasJob(job)) as server:
        watch = host.watch(server.address)
        job.run()
        host.look(watch)
    (labels,) = host.values(watch.latest(), "pyrometer_nccl_job_info")
    assert labels[:2] == (("", "10.0.0.1:4000@65533") if is_stranger else ("llama", "4711"))
