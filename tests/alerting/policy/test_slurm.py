"""Nodes as `scontrol` shows them: which of them get jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_alerting.policy.rules import SlurmSettings
from pyrometer_alerting.policy.slurm import Slurm

STATES = {
    "IDLE": True, "MIXED+PLANNED": True, "ALLOCATED+REBOOT_CANCELED": True, "IDLE+EXTERNAL": True,
    "IDLE+MAINTENANCE": False, "ALLOCATED+MAINTENANCE+RESERVED": False, "MAINT": False, "IDLE+REBOOT_ISSUED": False,
    "MIXED+REBOOT_REQUESTED": False, "IDLE*": False, "IDLE+NOT_RESPONDING": False, "DOWN+POWERED_DOWN": False,
    "IDLE+CLOUD+POWER_DOWN": False, "IDLE+INVALID_REG": False, "ERROR": False, "IDLE+DRAIN": False,
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_a_node_gets_jobs_in_these_states_of_node_flag_string_in_slurms_sources(tmp_path: Path, state: str) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho 'NodeName=n0 Arch=x86_64 State={state} Partitions=gpu Comment=(null)'\n")
    scontrol.chmod(0o755)
    (node,) = Slurm(SlurmSettings(str(scontrol))).nodes().values()
    assert (node.in_service, node.held) == (STATES[state], "DRAIN" in state)
