"""Situations of jobs as NCCL RAS shows them: 32 ranks on four nodes, a step every 10 s."""

from __future__ import annotations

from collections.abc import Sequence

from pyrometer_simulator.nccl.job import Job, layouts
from pyrometer_simulator.nccl.ras_server import RasJob
from pyrometer_simulator.situations.exported_node import Hardware
from pyrometer_simulator.situations.model import MINUTE, Action, Situation, Step, at, within
from pyrometer_simulator.situations.site import Site

RANKS, NODES = 32, 4
STEP_SECONDS = 10.0
NCCL_ALONE = Hardware(hcas=0, ethernet=0, collectors=("nccl",))
DATA_PARALLEL, TENSOR_PIPELINE_DATA = layouts(RANKS)[0], layouts(RANKS)[5]


def started(site: Site, layout_number: int = 0) -> RasJob:
    """Start a job on all nodes that trains until it can't."""
    job = Job(layouts(RANKS)[layout_number])
    ras = RasJob(job, clock=lambda: site.now, wait=lambda _seconds: None)
    for number, node in enumerate(site.nodes):
        node.join_job(ras, f"10.0.0.{number + 1}")
    site.every(STEP_SECONDS, job.run, int(3600 / STEP_SECONDS))
    return ras


def ras_of(site: Site) -> RasJob:
    """Return the job that runs."""
    if site.node.job is None:
        msg = "no job runs"
        raise LookupError(msg)
    return site.node.job


def stops_at_work(*ranks: int) -> Action:
    """Return a step after which ranks stay in their next forward pass for ever."""

    def stop(site: Site) -> None:
        job = ras_of(site).job
        steps = round(site.now / STEP_SECONDS) + 1
        for rank in ranks:
            place = next(at for at, op in enumerate(job.programs[rank]) if op.do == "compute")
            job.stop(rank, steps * len(job.programs[rank]) + place)

    return stop


def is_killed(ranks: Sequence[int]) -> Action:
    """Return a step in which the processes of ranks end, so that the others wait for them."""

    def kill(site: Site) -> None:
        for rank in ranks:
            ras_of(site).stop(rank)
            stops_at_work(rank)(site)

    return kill


def saves(site: Site) -> None:
    """Let rank 0 save for three minutes, while all others wait in the next step's collective."""
    job = ras_of(site).job
    stops_at_work(0)(site)
    site.after(180.0, job.resume)


def waits_for_one_that_never_comes(site: Site) -> None:
    """Start a job of which one rank never joins its communicators."""
    ras = RasJob(Job(DATA_PARALLEL), clock=lambda: site.now, wait=lambda _seconds: None)
    ras.initialising = {name: set(range(RANKS)) for name in ras.job.groups}
    for number, node in enumerate(site.nodes):
        node.join_job(ras, f"10.0.0.{number + 1}")


def ends(site: Site) -> None:
    """End the job on all nodes at once."""
    for number, node in enumerate(site.nodes):
        node.join_job(None, f"10.0.0.{number + 1}")


def trains(*steps: Step, layout_number: int = 0) -> tuple[Step, ...]:
    """Return the steps of a job that begins at once, and what happens to it."""
    return (at(0, lambda site: started(site, layout_number)), *steps)


def hang(name: str, *ranks: int, layout_number: int = 0) -> Situation:
    """Return a situation in which ranks stay in their forward pass from the tenth minute on."""
    return Situation(
        name,
        steps=trains(at(600, stops_at_work(*ranks)), layout_number=layout_number),
        lasts=15 * MINUTE,
        hardware=NCCL_ALONE,
        nodes=NODES,
        fault_at=600,
        fires={"NcclHang": within(180, not_before=60, series=1)},
    )


SITUATIONS = [
    Situation(
        "a job trains, rank 0 saves for three minutes, and the job ends",
        steps=trains(at(600, saves), at(1200, ends)),
        lasts=25 * MINUTE,
        hardware=NCCL_ALONE,
        nodes=NODES,
    ),
    hang("one of 32 ranks stays in its forward pass", 21),
    hang("one of 32 ranks of tensor, pipeline and data parallel groups stays in its forward pass", 21, layout_number=5),
    hang("all ranks of a node stay in their forward pass", *range(16, 24)),
    hang("two ranks of different tensor-parallel groups stay in their forward pass", 11, 29, layout_number=3),
    Situation(
        "the process of a rank is killed",
        steps=trains(at(600, is_killed([21]))),
        lasts=15 * MINUTE,
        hardware=NCCL_ALONE,
        nodes=NODES,
        fault_at=600,
        fires={"NcclRankMissing": within(120, not_before=30, series=1)},
    ),
    Situation(
        "a job waits for a rank that never comes",
        steps=(at(300, waits_for_one_that_never_comes),),
        lasts=15 * MINUTE,
        hardware=NCCL_ALONE,
        nodes=NODES,
        fires={"NcclJobNotStarted": within(270, not_before=180, series=1)},
    ),
]
