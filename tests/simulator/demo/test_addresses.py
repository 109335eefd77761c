"""Ports that somebody gives: what is taken is said before anything starts."""

from __future__ import annotations

import argparse
import os
import re
import socket
from collections.abc import Iterator

import pytest

from pyrometer_simulator.demo import addresses, main
from pyrometer_simulator.demo.addresses import Addresses
from pyrometer_simulator.demo.processes import DemoError
from pyrometer_simulator.ports import free_port


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def chosen(*given: str) -> Addresses:
    parser = argparse.ArgumentParser()
    addresses.add_flags(parser)
    return addresses.chosen(parser.parse_args(given))


def test_given_ports_are_used_and_the_others_are_free() -> None:
    port = free_port()
    found = chosen(f"--grafana.port={port}")
    assert found.grafana == port
    ports = [found.prometheus, found.alertmanager, found.alerting, found.slack, found.ras, *found.nodes.values(), port]
    assert len(set(ports)) == len(ports)


def test_a_taken_port_is_said_with_the_program_that_has_it(taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([f"--prometheus.port={taken}"]) == 2
    line = capsys.readouterr().err
    assert re.fullmatch(
        rf"pyrometer-demo: --prometheus.port={taken}: .+ \(process {os.getpid()}\) listens on it; "
        "give another port, or none for a free one\n",
        line,
    )


def test_two_programs_cannot_have_one_port() -> None:
    port = free_port()
    with pytest.raises(DemoError, match=rf"--\w+.port={port}: --\w+.port is the same"):
        chosen(f"--slack.port={port}", f"--grafana.port={port}")


@pytest.mark.parametrize("text", ["0", "65536", "http", "-1", ""])
def test_what_is_no_port_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chosen(f"--slack.port={text}")
    assert f"{text!r} is not a port" in capsys.readouterr().err


def test_the_ssh_line_forwards_every_page_to_the_same_port() -> None:
    where = Addresses(prometheus=1, alertmanager=2, alerting=3, grafana=4, slack=5, queries=6)
    assert re.findall(r"-L (\d):127.0.0.1:(\d)", where.ssh_line()) == [(n, n) for n in "543612"]
    assert "-L 4:" not in where.ssh_line(without=["grafana"])
    assert where.ssh_line().startswith("ssh -N -L ")
    assert where.ssh_line().endswith(f"@{socket.gethostname()}")
