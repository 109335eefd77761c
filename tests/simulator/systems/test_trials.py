"""Trials with commands that need no chroot: what counts as what, what is kept, and what is never skipped unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyrometer_simulator.stack.errors import StackError
from pyrometer_simulator.systems import chroots, inside, trials
from pyrometer_simulator.systems.profiles import PROFILES, Profile
from pyrometer_simulator.systems.releases import RELEASES
from pyrometer_simulator.systems.trials import Plan, Result, ResultBook

PLAN = Plan(["ordinary"], [profile for profile in PROFILES if profile.name == "forbidden"], ["demo", "smoke"])


class Chroot:
    """In place of a chroot: what the probe prints, and a script for each command."""

    def __init__(self) -> None:
        self.state: dict[str, object] = {"log": "forbidden", "namespaces": False}
        self.scripts = {trials.COMMANDS["demo"]: "echo all right", trials.COMMANDS["smoke"]: "echo fine"}

    def command(self, _root: Path, _profile: Profile, _user: str, script: str) -> list[str]:
        known = self.scripts.get(script)
        return ["sh", "-c", known] if known else ["echo", json.dumps(self.state)]


@pytest.fixture
def chroot(monkeypatch: pytest.MonkeyPatch) -> Chroot:
    fake = Chroot()
    monkeypatch.setattr(inside, "command", fake.command)
    monkeypatch.setattr(chroots, "lay_out_project", lambda *_: None)
    return fake


def run(folder: Path) -> list[Result]:
    return list(trials.run_all(RELEASES[0], folder / "bookworm", PLAN, folder / "logs", lambda _: None))


def test_a_command_that_ends_well_is_ok_and_its_output_is_kept(chroot: Chroot, tmp_path: Path) -> None:
    assert [(each.command, each.outcome) for each in run(tmp_path)] == [("demo", "ok"), ("smoke", "ok")]
    assert (tmp_path / "logs/bookworm-ordinary-forbidden-demo.log").read_text() == "all right\n"


@pytest.mark.parametrize(
    ("output", "note"),
    [
        (
            "06:22:16 WRONG: 3 messages for 2 faults\nmake: *** [demo] Error 1",
            "06:22:16 WRONG: 3 messages for 2 faults",
        ),
        ("stack: reading\nstack: not signed\nmake: *** [stack] Error 2", "stack: not signed"),
        ("FAILED tests/a.py::test_b - x\n1 failed", "FAILED tests/a.py::test_b - x"),
        ("first\nlast", "last"),
        ("", "no output"),
    ],
)
def test_a_failure_is_told_by_its_most_telling_line(chroot: Chroot, tmp_path: Path, output: str, note: str) -> None:
    (tmp_path / "output").write_text(output)
    chroot.scripts[trials.COMMANDS["demo"]] = f"cat {tmp_path}/output; exit 2"
    demo, smoke = run(tmp_path)
    assert (demo.outcome, demo.note) == ("failed", f"status 2: {note}")
    assert smoke.outcome == "ok"


def test_a_command_without_an_end_is_ended(chroot: Chroot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "LIMIT_SECONDS", 0.2)
    chroot.scripts[trials.COMMANDS["demo"]] = "echo begun; exec sleep 60"
    assert run(tmp_path)[0].note.startswith("no end after 0 s: ")


@pytest.mark.parametrize(("reuse", "times"), [(False, 4), (True, 1)])
def test_each_profile_is_tried_from_nothing_unless_a_checkout_is_reused(
    reuse: bool, times: int, chroot: Chroot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[object] = []
    monkeypatch.setattr(chroots, "lay_out_project", lambda *who: laid_out.append(who))
    monkeypatch.setattr(trials, "probe", lambda *_: "")
    plan = Plan(["ordinary"], PROFILES, ["demo"], reuse)
    results = list(trials.run_all(RELEASES[0], tmp_path / "bookworm", plan, tmp_path / "logs", lambda _: None))
    assert len(laid_out) == times
    assert [each.note for each in results] == (["", *["set up before"] * 3] if reuse else [""] * 4)


def test_a_profile_that_could_not_be_brought_about_is_no_success(chroot: Chroot, tmp_path: Path) -> None:
    chroot.state["log"] = "readable"
    assert {(each.outcome, each.note) for each in run(tmp_path)} == {
        ("not run", "the kernel log is readable and not forbidden")
    }


def test_a_chroot_that_cannot_be_entered_is_no_success(
    chroot: Chroot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(inside, "command", lambda *_: ["sh", "-c", "echo unshare: not permitted >&2; exit 1"])
    assert {each.note for each in run(tmp_path)} == {"cannot enter the chroot: unshare: not permitted"}


def test_what_is_not_run_has_a_result_for_each_trial() -> None:
    results = list(Plan(["root", "ordinary"], PROFILES, ["demo"]).not_run("Ubuntu 24.04", "archive not reachable"))
    assert len(results) == 2 * len(PROFILES)
    assert {each.outcome for each in results} == {"not run"}


def test_a_later_result_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    book = ResultBook(tmp_path / "folder/results.json")
    book.add(Result("Debian 12", "root", "absent", "demo", "failed"))
    book.add(Result("Debian 13", "root", "absent", "demo", "ok"))
    book.add(Result("Debian 12", "root", "absent", "demo", "ok"))
    assert [(each.system, each.outcome) for each in book.load()] == [("Debian 12", "ok"), ("Debian 13", "ok")]


def test_a_damaged_book_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[{")
    with pytest.raises(StackError, match="is damaged: remove it"):
        ResultBook(tmp_path / "results.json").load()
