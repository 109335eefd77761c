"""64 nodes under all that may drain them, together: nobody is drained wrongly; whoever was is back after the repair.

On one Slurm, its real scripts and two services of the policy, over a scontrol with a memory; on a real API server, two
services and what `pyrometer-check --kubernetes.node` writes. Checks, Prometheus and the time are simulated.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest
from tests.compose.api_server import ADMINISTRATOR, SERVER, Api, missing
from tests.compose.test_real_kubernetes import add_node, give_rights, wait_for_policy
from tests.compose.test_slurm_brake import Fleet as Scripted
from tests.play import MINUTE, NODES, Fault, Fleet, Time, playing
from tests.waiting import until

from pyrometer_alerting.incidents.storage.actions import COMMON
from pyrometer_alerting.policy.kubernetes import REASON, Kubernetes
from pyrometer_alerting.policy.rules import KubernetesSettings, SlurmSettings
from pyrometer_alerting.policy.schedulers import Scheduler
from pyrometer_alerting.policy.slurm import Slurm
from pyrometer_exporters.commands.check.report import FIT
from pyrometer_exporters.commands.check.standing import node_condition
from pyrometer_exporters.framework.api_server import ApiServer

MISSING = missing(*SERVER)
pytestmark = [pytest.mark.compose, pytest.mark.e2e, pytest.mark.timeout(1800)]

SHARED = {
    "network_mounts": lambda _n: (4, 13),  # the file server restarts
    "gpu_count": lambda _n: (44, 53),  # a file says that every node should have more
    "hca_links": lambda n: (72 + n // 8, 85),  # a bad rollout, eight nodes at once, and eight a minute later
    "shared_memory": lambda n: (100, 109) if n % 4 == 0 else None,  # a job fills /dev/shm of sixteen nodes
}
OWN: Mapping[str, Fault] = {
    "n3": ("gpu_count", 16, 29),
    "n40": ("gpu_count", 124, 137),  # its script hangs: the policy alone sees it
    "n41": ("gpu_count", 124, 137),  # a person takes over
    "n54": ("gpu_count", 128, 141),  # somebody has written DRAIN into its comment
    "n20": ("shared_memory", 148, 165),  # alone
    "n7": ("gpu_count", 0, 999),  # a person's, from the start
}
# Strangers and bad luck bring about: learned of a node (an automounted home that is gone), not to be looked at, and the
# launcher's failure. Nothing follows of them.
LEARNED, UNSEEN, UNLAUNCHED = "n50", "n51", "n52"
RIGHT = {"n3", "n40", "n41", "n54", "n20"}
END = 180


class Site(Protocol):
    """A cluster whose nodes are checked."""

    scheduler: Scheduler

    def check(self, answers: Mapping[str, str], minute: int) -> None:
        """Let the nodes check themselves, and act as they do."""
        ...

    def hold(self, node: str, why: str) -> None:
        """Drain a node by hand."""
        ...

    def retell(self, node: str, more: str) -> None:
        """Write something behind a node's reason, by hand."""
        ...

    def drained(self) -> set[str]:
        """Return which nodes anybody of us has drained, ever."""
        ...


class OfSlurm:
    """The scripts on all nodes, one of which hangs."""

    def __init__(self, folder: Path, clock: Time) -> None:
        self._clock, self._scripted = clock, Scripted(folder, names=NODES)
        self._scripted.seconds = 600.0  # 64 at once
        self._unfit: set[str] = set()
        self.scheduler: Scheduler = Slurm(SlurmSettings(str(folder / "scontrol")))
        # A node waits until all have written what failed, as in 15 s they all have.
        waits = f": >{folder}/waits/$SLURMD_NODENAME; until [ -e {folder}/go ]; do /bin/sleep 0.2; done"
        for name, script in (("date", f"read -r now <{folder}/now; echo $now"), ("sleep", waits)):
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        self._scripted.write("n54", "comment", "do not DRAIN before Friday")

    def check(self, answers: Mapping[str, str], minute: int) -> None:
        if minute % 4:
            return
        (self._scripted.folder / "now").write_text(f"{self._clock.wall():.0f}\n")
        for shared in self._scripted.folder.glob("memory/*/shared"):
            os.utime(shared, (shared.stat().st_mtime - 4 * MINUTE,) * 2)
        self._unfit |= {node for node, answer in answers.items() if answer != FIT}
        for node in self._unfit:
            self._scripted.say([node], answers[node])
        away = self._scripted.folder / "away"
        if minute == 128:  # no call is answered, as the controller restarts
            away.touch()
        self._run(sorted(self._unfit - {"n40"}))
        away.unlink(missing_ok=True)
        self._unfit -= {node for node in self._unfit if answers[node] == FIT and self._is_clean(node)}

    def _run(self, nodes: list[str]) -> None:
        """Run the scripts of these nodes at the same moment."""
        folder = self._scripted.folder
        shutil.rmtree(folder / "waits", ignore_errors=True)
        (folder / "waits").mkdir()
        (folder / "go").unlink(missing_ok=True)
        with ThreadPoolExecutor(len(NODES)) as pool:
            runs = {node: pool.submit(self._scripted.run, node) for node in nodes}
            until(lambda: all(run.done() or (folder / "waits" / node).exists() for node, run in runs.items()), 600)
            (folder / "go").touch()
            assert {run.result().returncode for run in runs.values()} <= {0, 1}

    def _is_clean(self, node: str) -> bool:
        state = self._scripted.folder / "memory" / node / "state"
        return node == "n40" or (state.exists() and state.read_text().strip() == "clean")

    def hold(self, node: str, why: str) -> None:
        self._scripted.write(node, "state", "IDLE+DRAIN")
        self._scripted.write(node, "reason", why)

    def retell(self, node: str, more: str) -> None:
        self._scripted.write(node, "reason", f"{self._scripted.read(node, 'reason')} {more}")

    def drained(self) -> set[str]:
        names = self._scripted.ever_drained()
        assert len(names) == len(set(names)), names
        return set(names)


class OfKubernetes:
    """Plays the nodes on a real API server, each with the check's node condition."""

    def __init__(self, folder: Path, clock: Time, api: Api) -> None:
        self._api, self._said, self._drained = api, dict[str, str](), set[str]()
        settings = KubernetesSettings(api.url, api.token, api.certificate, selector="pool")
        self.scheduler: Scheduler = Kubernetes(settings)
        (folder / "token").write_text(ADMINISTRATOR)
        (folder / "ca.crt").write_bytes(api.certificate.read_bytes())
        host, _, port = api.url.removeprefix("https://").partition(":")
        server = ApiServer((host, int(port)), folder)
        self._conditions = {node: node_condition(node, server, clock.wall) for node in NODES}

    def check(self, answers: Mapping[str, str], minute: int) -> None:
        for node, answer in answers.items():
            if self._said.get(node) != answer and node != UNLAUNCHED:
                self._conditions[node](answer)
        self._said = dict(answers)
        self._drained |= {state.name for state in self.scheduler.nodes().values() if state.is_ours}

    def hold(self, node: str, why: str) -> None:
        assert self._api.ask("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})[0] == 200

    def retell(self, node: str, more: str) -> None:
        why = f"{self.scheduler.nodes()[node].why} {more}"
        assert self._api.ask("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": {REASON: why}}})[0] == 200

    def drained(self) -> set[str]:
        return self._drained

    def unfit(self) -> set[str]:
        """Return the nodes whose condition says so."""
        items = self._api.ask("GET", "/api/v1/nodes")[1]["items"]
        said = {
            (each["metadata"]["name"], at["type"], at["status"])
            for each in items
            for at in each["status"]["conditions"]
        }
        return {name for name, kind, status in said if (kind, status) == ("PyrometerUnfit", "True")}


def faults() -> dict[str, list[Fault]]:
    found: dict[str, list[Fault]] = {}
    for n, node in enumerate(NODES):
        spans = [(check, span(n)) for check, span in SHARED.items()]
        found[node] = [(check, *minutes) for check, minutes in spans if minutes is not None]
        found[node] += [OWN[node]] if node in OWN else []
    found[LEARNED].append(("gpu_count", 0, 999))
    return found


def answer(node: str, failing: Mapping[str, list[Fault]], minute: int) -> str:
    """Return what `pyrometer-check --reasons` says on a node."""
    if node in (UNSEEN, UNLAUNCHED):
        return "unknown: gpu_count, network_mounts" if node == UNSEEN else "OCI runtime exec failed: no such container"
    found = {check for check, since, until in failing[node] if since <= minute < until}
    found -= {"gpu_count"} if node == LEARNED else set()
    return "; ".join(f"{check}: as planned" for check in sorted(found)) or FIT


@pytest.fixture(params=["slurm", "kubernetes"])
def site(request: pytest.FixtureRequest, tmp_path: Path, clock: Time) -> Iterator[Site]:
    if request.param == "slurm":
        yield OfSlurm(tmp_path, clock)
        return
    if MISSING:
        pytest.skip(MISSING)
    (tmp_path / "server").mkdir()
    with Api.running(tmp_path / "server") as api:
        give_rights(api)
        for node in NODES:
            add_node(api, node)
        wait_for_policy(api)
        yield OfKubernetes(tmp_path, clock, api)


@pytest.fixture
def clock() -> Time:
    return Time()


def test_nobody_is_drained_wrongly_and_whoever_was_is_back_after_the_repair(
    site: Site, clock: Time, tmp_path: Path
) -> None:
    fleet = Fleet(clock, clock.wall(), faults(), learned=frozenset({LEARNED}), unseen=frozenset({UNSEEN, UNLAUNCHED}))
    site.hold("n7", "RMA 7")
    theirs = site.scheduler.nodes()["n7"].why
    most = 0

    def check(minute: int) -> None:
        nonlocal most
        answers = {node: answer(node, fleet.faults, minute) for node in NODES}
        site.check(answers, minute)
        fleet.passed |= {node: clock.wall() for node in RIGHT | {"n7"} if answers[node] == FIT}
        if minute == 136:
            site.retell("n41", "RMA 41")
        most = max(most, sum(state.held for state in site.scheduler.nodes().values()))

    with playing(tmp_path, fleet, {"c1": site.scheduler}) as play:
        play.run(END, check)
        with play.stores[0].snapshot() as tx:
            reasons = [action.reason for action in tx.actions.newest(1000) if action.kind == COMMON]
        assert site.drained() - RIGHT == set()
        assert site.drained() == RIGHT
        assert play.held() == {"n7", "n41"}
        assert site.scheduler.nodes()["n7"].why == theirs
        assert sorted(re.findall(r"the check (\w+)", " ".join(reasons))) == sorted(SHARED)  # each once
        assert most <= 4  # of ours three at once, and the person's
    if isinstance(site, OfKubernetes):
        assert site.unfit() == {"n7"}
