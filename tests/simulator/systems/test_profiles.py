"""The rights that each profile takes from a command, as flags of setpriv."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyrometer_simulator.systems import profiles
from pyrometer_simulator.systems.profiles import PROFILES, Profile

NAMED = {profile.name: profile for profile in PROFILES}
SYSLOG, SYS_ADMIN, CHOWN = 34, 21, 0

needs_root = pytest.mark.usefixtures("whole_root")


def capabilities(profile: Profile, uid: int) -> int:
    """The effective capabilities of a command in a profile, as bits."""
    command = ["setpriv", *profile.setpriv_flags(uid), "grep", "CapEff", "/proc/self/status"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1], 16)


@needs_root
@pytest.mark.parametrize(
    ("name", "uid", "may_read"),
    [("readable", 0, True), ("readable", 4711, True), ("forbidden", 0, False), ("forbidden", 4711, False)],
)
def test_the_kernels_log_is_a_matter_of_capabilities(name: str, uid: int, may_read: bool) -> None:
    assert bool(capabilities(NAMED[name], uid) >> SYSLOG & 1) is may_read


@needs_root
def test_an_ordinary_user_gets_nothing_else() -> None:
    assert capabilities(NAMED["readable"], 4711) == 1 << SYSLOG
    assert capabilities(NAMED["container"], 4711) == 0


@needs_root
def test_a_default_container_has_dockers_capabilities() -> None:
    # As printed by `docker run --rm debian grep CapEff /proc/self/status`.
    assert capabilities(NAMED["container"], 0) == 0xA80425FB


@pytest.mark.parametrize(("setting", "closed"), [("0\n", True), ("1\n", False)])
def test_where_the_kernel_lets_everybody_read_the_device_is_closed(
    setting: str, closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dmesg_restrict"
    path.write_text(setting)
    monkeypatch.setattr(profiles, "_DMESG_RESTRICT", path)
    assert NAMED["forbidden"].needs_closed_node is closed
    assert NAMED["absent"].needs_closed_node is False
