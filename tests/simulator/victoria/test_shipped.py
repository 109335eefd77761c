"""The services of the cluster version, as compose.scale.yaml has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.victoria import shipped


def test_the_flags_are_those_of_the_compose_file() -> None:
    commands = shipped.commands({"VICTORIA_REPLICATION": "2", **shipped.addresses()})
    kinds = [shipped.program_of(name) for name in commands]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "vmagent": 2, "vmstorage": 3, "vminsert": 2, "vmselect": 2, "vmauth": 1, "vmalert": 2,
    }  # fmt: skip
    assert "-replicationFactor=2" in commands["vminsert-1"]
    # The smallest there is: a larger one drops batches that are closer to each other.
    for name in ("vmstorage-0", "vmstorage-2", "vmselect", "vmselect-1"):
        assert [flag for flag in commands[name] if flag.startswith("-dedup")] == ["-dedup.minScrapeInterval=1ms"]
    assert not any("${" in flag for flags in commands.values() for flag in flags)
    numbers = [[flag[-1] for flag in commands[name] if "memberNum" in flag] for name in ("vmagent-0", "vmagent-1")]
    assert numbers == [["0"], ["1"]]


def test_what_is_missing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(shipped, "cache_folder", lambda: Path("/nowhere"))
    assert shipped.programs() == {}
    assert shipped.missing().startswith("no vmstorage, vminsert, vmselect, vmauth, vmagent, vmalert: go build ./app/")
