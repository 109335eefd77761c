"""`pyrometer-alerting drains` against both outlets: what it lists and undoes; and what both write at a node."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import scontrol

from pyrometer_alerting.app import commands, main
from pyrometer_alerting.policy import drains
from pyrometer_alerting.policy.kubernetes import Kubernetes
from pyrometer_alerting.policy.rules import KubernetesSettings, SlurmSettings
from pyrometer_alerting.policy.schedulers import Claim, RefusedError, Scheduler, SchedulerError, checksum
from pyrometer_alerting.policy.slurm import Slurm
from pyrometer_kit.errors import UsageError

MARK = "pyrometer:0123456789ab"
WHY = f"pyrometer: check gpu_count failed [{MARK}]"
CLAIM = Claim(("gpu_count",), 1_795_300_000.0)
NODES = ("n0", "n1", "n2")
# As of Slurm 25.11, whose comment comes behind the reason; `scontrol` of test_slurm_brake.py has the older order.
SHOWN = (
    "Partitions=all AveWatts=n/a"
    " ${reason:+Reason=$reason [root@2026-11-29T03:00:00] }${comment:+Comment=$comment Extra=x}"
)


class Api(Kubernetes):
    """An API server in memory, as far as it is asked: merge patches, and versions that conflict."""

    def __init__(self) -> None:
        super().__init__(KubernetesSettings("https://10.0.0.1", Path("token"), Path("ca")))
        self.items: dict[str, dict[str, Any]] = {
            name: {"metadata": {"name": name, "resourceVersion": "1"}, "spec": {}, "status": {
                "conditions": [{"type": "Ready", "status": "True"}]}}
            for name in NODES
        }  # fmt: skip
        self.meanwhile: Callable[[], None] = lambda: None
        self.more = ""

    def _ask(self, method: str, path: str, document: object = None) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name.startswith("nodes?"):
            more = {"continue": self.more} if self.more else {}
            return {"items": copy.deepcopy(list(self.items.values())), "metadata": more}
        if method == "PATCH":
            assert isinstance(document, dict)
            self.meanwhile()
            item = self.items[name]
            version = item["metadata"]["resourceVersion"]
            if document["metadata"].get("resourceVersion", version) != version:
                raise SchedulerError("Kubernetes: 409")
            merge(item, document)
            item["metadata"]["resourceVersion"] = str(int(version) + 1)
        return copy.deepcopy(self.items[name])


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            merge(target.setdefault(name, {}), value)
        elif value is None:
            target.pop(name, None)
        else:
            target[name] = value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NODES:
        (tmp_path / "nodes" / name).mkdir(parents=True)
        for field, value in (
            ("state", "IDLE"),
            ("comment", "rack Location=B7, Ann's" if name != "n0" else ""),
            ("reason", ""),
        ):
            (tmp_path / "nodes" / name / field).write_text(value)
    scontrol.write(tmp_path, SHOWN)
    return tmp_path


@pytest.fixture(params=["slurm", "kubernetes"])
def scheduler(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made: Scheduler = Slurm(SlurmSettings(str(folder / "scontrol"))) if request.param == "slurm" else Api()
    monkeypatch.setattr("pyrometer_alerting.app.commands.schedulers_of", lambda _clusters: {"c1": made})
    return made


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> list[str]:
    assert main.run(["drains", *arguments], {}) == status
    return capsys.readouterr().out.splitlines()


def drain(scheduler: Scheduler, node: str) -> None:
    scheduler.drain(node, WHY.removesuffix(f" [{MARK}]"), MARK, CLAIM)


@pytest.mark.parametrize(
    "undo",
    [
        ("undo", "--all"),
        ("undo", "n1", "--policy.file={}"),
        ("undo", "--policy.file={}", "n1"),
        ("undo", "--policy.file", "{}", "n1"),
        ("undo", "--policy.file", "{}", "--all"),
    ],
    ids=" ".join,
)
def test_a_drain_is_listed_undone_and_leaves_no_word(
    scheduler: Scheduler, capsys: pytest.CaptureFixture[str], tmp_path: Path, undo: tuple[str, ...]
) -> None:
    (tmp_path / "policy.yaml").write_text("clusters: {c1: {slurm: {}}}\nrules: []\n")
    undo = tuple(word.replace("{}", str(tmp_path / "policy.yaml")) for word in undo)
    assert said(capsys, "list") == ["c1: 0 of 3 nodes are drained by us"]
    drain(scheduler, "n1")
    state = scheduler.nodes()["n1"]
    assert (state.held, state.is_ours, state.why, MARK in state.marks) == (True, True, WHY, True)
    assert state.claim == Claim(("gpu_count",), CLAIM.since, checksum=checksum(WHY))
    assert said(capsys, "list") == [
        f"c1: n1  since 2026-11-21 22:26:40 UTC, {WHY}", "c1: 1 of 3 nodes are drained by us",
    ]  # fmt: skip
    assert said(capsys, *undo) == ["c1: n1 is back in service"]
    state = scheduler.nodes()["n1"]
    assert (state.in_service, state.claim, state.returned_at, state.marks.strip().replace("rack Location=B7, Ann's", "")
            ) == (True, None, 0.0, "")  # fmt: skip


@pytest.mark.parametrize("words", ["undo", "undo n1 --all", "list n1", "stop --all", "start n1 --all"])
def test_only_undo_is_of_named_nodes_or_of_all(words: str) -> None:
    with pytest.raises(UsageError, match="undo needs the names of nodes"):
        commands.drains(words.split(), {})


def test_a_return_is_remembered_at_the_node(scheduler: Scheduler) -> None:
    drain(scheduler, "n1")
    scheduler.resume("n1", MARK, WHY, 1_795_300_100.0)
    state = scheduler.nodes()["n1"]
    assert (state.in_service, state.claim, state.returned_at) == (True, None, 1_795_300_100.0)
    drain(scheduler, "n1")
    assert scheduler.nodes()["n1"].returned_at == 1_795_300_100.0


def test_one_word_at_any_node_stops_and_starts_all(scheduler: Scheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "stop") == ["c1: drains are stopped (at n0)"]
    assert said(capsys, "stop") == ["c1: drains are stopped already"]
    assert said(capsys, "list")[0] == "c1: drains are stopped (at n0)"
    scheduler.stop("n2", on=True)
    assert said(capsys, "start") == ["c1: drains are not stopped"]
    assert not any(state.stops for state in scheduler.nodes().values())


def test_what_was_decided_on_an_older_state_is_refused(scheduler: Scheduler) -> None:
    drain(scheduler, "n1")
    for change in (
        lambda: drain(scheduler, "n1"),  # another service was faster
        lambda: scheduler.resume("n1", MARK, "pyrometer: another"),
        lambda: scheduler.resume("n2", MARK, WHY),
    ):
        with pytest.raises(RefusedError):
            change()
    assert scheduler.nodes()["n1"].is_ours


def test_what_somebody_has_changed_is_not_undone(
    scheduler: Scheduler, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drain(scheduler, "n1")
    if isinstance(scheduler, Api):
        scheduler.items["n1"]["metadata"]["annotations"]["pyrometer.io/policy-reason"] += " RMA 123"
    else:
        (folder / "nodes/n1/reason").write_text(f"{WHY} RMA 123")
    assert said(capsys, "list")[0].endswith("RMA 123 (somebody has changed the reason: undo it by hand)")
    assert said(capsys, "undo", "n1", "n2", "n9", status=1) == [
        f"c1: n1 is left alone: not our reason: {WHY} RMA 123", "c1: n2 is left alone: not drained",
        "n9: no scheduler that answers knows it",
    ]  # fmt: skip
    assert scheduler.nodes()["n1"].held


def test_a_change_in_between_is_a_conflict() -> None:
    api = Api()
    api.meanwhile = lambda: api.items["n1"]["metadata"].update(resourceVersion="7")
    with pytest.raises(SchedulerError, match="409"):
        drain(api, "n1")
    assert api.nodes()["n1"].in_service


def test_a_scheduler_that_is_away_costs_the_others_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "away").touch()
    both = {"c1": Slurm(SlurmSettings(str(folder / "scontrol"))), "c2": Api()}
    monkeypatch.setattr("pyrometer_alerting.app.commands.schedulers_of", lambda _clusters: both)
    assert said(capsys, "stop", status=1) == [
        "c1: stop failed: Slurm: Unable to contact slurm controller", "c2: drains are stopped (at n0)",
    ]  # fmt: skip
    assert said(capsys, "list", "--cluster=c2")[0] == "c2: drains are stopped (at n0)"


def test_people_keep_their_comment_whatever_is_in_it(folder: Path) -> None:
    slurm = Slurm(SlurmSettings(str(folder / "scontrol")))
    comment = folder / "nodes/n1/comment"
    for words, is_touched in (
        (b"Lab \xe9 7, Owner=Bob", True),
        (b"see Comment=7 Reason=fan", False),
        (b"a Reason=fan", False),
    ):
        comment.write_bytes(words)
        drain(slurm, "n1")
        assert (comment.read_bytes() != words) is is_touched
        assert comment.read_bytes().startswith(words)
        assert slurm.nodes()["n1"].held
        slurm.resume("n1", "", slurm.nodes()["n1"].why)
        assert comment.read_bytes() == words


def test_the_scripts_drains_are_listed_and_undone_by_the_sum_of_their_reason(folder: Path) -> None:
    reason = "pyrometer: gpu_count: 7 of 8 GPUs are on the bus"
    sum_of = (
        subprocess.run(["cksum"], input=reason.encode(), capture_output=True, check=True).stdout.split()[0].decode()
    )
    for field, value in (
        ("state", "IDLE+DRAIN"), ("reason", reason),
        ("comment", f"rack 7 pyrometer-back=1795200000 pyrometer-unfit=gpu_count,hca_links@1795300000:again:{sum_of}"),
    ):  # fmt: skip
        (folder / "nodes/n1" / field).write_text(value)
    slurm = Slurm(SlurmSettings(str(folder / "scontrol")))
    state = slurm.nodes()["n1"]
    assert state.claim == Claim(("gpu_count", "hca_links"), 1_795_300_000.0, again=True, checksum=int(sum_of))
    assert state.returned_at == 1_795_200_000.0
    command = drains.Drains({"c1": slurm}, ["n1"])
    assert list(command.run("undo")) == ["c1: n1 is back in service"]
    assert (folder / "nodes/n1/comment").read_text() == "rack 7"


def test_a_list_of_nodes_that_never_ends_is_no_answer() -> None:
    api = Api()
    api.more = "same"  # behind a proxy that drops the rest of a query
    with pytest.raises(SchedulerError, match="has no end"):
        api.nodes()
