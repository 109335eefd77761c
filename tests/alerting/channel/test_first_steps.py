from __future__ import annotations

import re

import pytest

from pyrometer_alerting.channel import first_steps, runbooks
from pyrometer_alerting.channel.card import MOST_STEP_WORDS, words
from pyrometer_alerting.diagnosis.catalog import load
from pyrometer_alerting.model.alert_names import NAMED_CAUSES, RUN_SYMPTOMS

STEPS = first_steps.steps()
WORDS = {"NODE", "PORT", "GPU", "BMC", "CUDA", "NCCL", "RDMA", "UFM"}
GPU = {"node": "gpu-042", "gpu": "3"}
DRAIN = "`scontrol update NodeName=gpu-042 State=DRAIN Reason=power_brake`"
LEAVE = "restart the run without it after the next checkpoint; then its power supplies."


@pytest.mark.parametrize(
    ("labels", "has_run", "scheduler", "step"),
    [
        (GPU, True, "slurm", f"{DRAIN}, {LEAVE}"),
        ({"node": "gpu-042"}, True, "kubernetes", f"`kubectl cordon gpu-042`, {LEAVE}"),
        (GPU, True, "none", f"take gpu-042 out of service, {LEAVE}"),
        (GPU, False, "slurm", f"{DRAIN}; then its power supplies."),
        (
            {"rack": "r07"}, True, "slurm",
            "call whoever runs the power of the rack: a breaker or a feed is out.",
        ),
        ({"node": "x; rm -rf /", "gpu": "0"}, True, "slurm", f"drain the node, {LEAVE}"),
    ],
    ids=["a GPU", "Kubernetes", "no scheduler", "no run", "a rack", "a name that is no plain word"],
)  # fmt: skip
def test_the_step_is_for_this_cause_on_this_part(
    labels: dict[str, str], *, has_run: bool, scheduler: str, step: str
) -> None:
    found = first_steps.first_step(
        "GpuThrottledPowerBrake", labels, has_run=has_run, scheduler=scheduler, cause="power brake"
    )
    assert found == step


@pytest.mark.parametrize(
    ("heading", "scheduler", "job", "step"),
    [
        ("GpuThrottledPowerBrake", "slurm", "4711", ", `scontrol requeue 4711` after the next checkpoint; then its"),
        ("GpuLost", "slurm", "4711_3", ", `scontrol requeue 4711_3`; then"),
        ("TrainStalled", "slurm", "4711", "; then `scancel 4711` and start it without gpu-042: "),
        ("TrainStalled", "slurm", "", "; then end the job and start it without gpu-042: "),
        ("TrainStalled", "slurm", "1; reboot", "; then end the job and start it without gpu-042: "),
        ("TrainStalled", "kubernetes", "4711", "; then end the job and start it without gpu-042: "),
    ],
)
def test_the_job_is_ended_by_its_id_where_the_command_is_known(
    heading: str, scheduler: str, job: str, step: str
) -> None:
    assert step in first_steps.first_step(heading, GPU, has_run=True, scheduler=scheduler, job=job)


def test_the_switch_port_is_named_where_the_fabric_is_known() -> None:
    port = {"node": "n1", "device": "mlx5_0", "port": "1", "switch": "leaf-3", "switch_port": "17"}
    step = first_steps.first_step("NicLinkFlapping", port, has_run=True, scheduler="slurm")
    assert step.startswith("look at port 17 of switch leaf-3; then clean and reseat the cable.")


@pytest.mark.parametrize(
    ("given", "cluster", "scheduler"),
    [
        ("slurm", "prod-a", "slurm"),
        ("slurm,lab=kubernetes", "lab", "kubernetes"),
        ("slurm, lab=kubernetes", "prod-a", "slurm"),
        ("prod-a=slurm", "prod-b", "none"),
    ],
)
def test_each_cluster_has_its_scheduler_and_none_where_it_is_not_known(
    given: str, cluster: str, scheduler: str
) -> None:
    assert first_steps.scheduler_of(given, cluster) == scheduler


def test_the_gpu_and_the_port_are_filled_in() -> None:
    reset = first_steps.first_step("GpuMemoryRepairPending", GPU, has_run=False, scheduler="slurm")
    assert reset == "at the next pause of the job: `nvidia-smi -r -i 3`."
    port = {"node": "n1", "device": "mlx5_0", "port": "1"}
    step = first_steps.first_step("NicLinkDegraded", port, has_run=True, scheduler="slurm")
    assert step.startswith("disable and enable the switch port of mlx5_0 once; ")


def test_an_alert_of_somebody_elses_has_no_step() -> None:
    assert first_steps.first_step("TheirOwn", GPU, has_run=True, scheduler="slurm") == ""


def test_every_alert_that_is_posted_and_every_kind_of_cause_has_a_step() -> None:
    kinds = {kind.runbook for name, kind in load().kinds.items() if name not in ("alert", "symptom", "celsius")}
    assert (kinds | set(NAMED_CAUSES) | RUN_SYMPTOMS) - set(STEPS) == set()
    silent = {"NodeInMaintenance", "Watchdog"}  # never posted
    named = {name for page in ("alerts.md", "alertmanager.md") for name in runbooks.names(page)}
    assert named - set(STEPS) == silent


@pytest.mark.parametrize("heading", STEPS)
def test_a_step_fits_on_the_card_and_names_only_what_can_be_filled_in(heading: str) -> None:
    for step in STEPS[heading].values():
        assert words(step.replace("drain NODE", "`drain`")) <= MOST_STEP_WORDS
        assert step == "" or step.endswith(".")
        outside = re.sub(r"`[^`]*`", "", step)
        assert set(re.findall(r"\b[A-Z]{3,}\b", outside)) <= WORDS
