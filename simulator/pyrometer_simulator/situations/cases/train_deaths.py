"""Situations of runs that somebody ends, and of runs that die again and again."""

from __future__ import annotations

from collections.abc import Callable

from pyrometer_simulator.situations.cases.train import of_run
from pyrometer_simulator.situations.model import MINUTE, Action, within
from pyrometer_simulator.situations.site import Site


def loop(*, lives: float, away: float, times: int, same_attempt: bool = False) -> Action:
    """Return a step after which a run dies ``times`` times, each time of rank 11, and is restarted but for the last."""

    def die(site: Site, number: int) -> None:
        site.run.kill(11, "RuntimeError", rest_after=3)
        if number < times:
            site.after(away, lambda: begin(site, number))

    def begin(site: Site, number: int) -> None:
        site.train(attempt=0 if same_attempt else number)
        site.after(lives, lambda: die(site, number + 1))

    return lambda site: die(site, 1)


def restarted_and_mended(site: Site) -> None:
    """Let a run die four times, and live after that."""
    loop(lives=25, away=20, times=4)(site)
    site.after(3 * 45 + 20, lambda: site.train(attempt=4))


def cancelled(*, told: bool, stubborn: int = 0) -> Action:
    """Return a step that ends all ranks by SIGTERM, and ``stubborn`` of them by SIGKILL half a minute later.

    Args:
        told: whether the kernel reports how a process ended (Linux 6.15 and later).
        stubborn: how many ranks do not end when they are asked to.
    """

    def end(site: Site) -> None:
        for rank in site.run.ranks[stubborn:]:
            site.run.kill(rank.number, "SIGTERM" if told else "")
        site.after(30, lambda: site.run.kill_all("SIGKILL" if told else ""))

    return end


def short_runs(site: Site) -> None:
    """Run five short trials of one name, each of which ends well."""

    def trial() -> None:
        site.train()
        site.after(40, site.run.end)

    for number in range(5):
        site.after(60 * number + 10, trial)


def restarted_with(loss: Callable[[int], float]) -> Action:
    """Return a step that ends all ranks and begins the next attempt, with this loss, after 20 seconds."""

    def act(site: Site) -> None:
        site.run.kill_all()
        site.after(20, lambda: site.train(attempt=1, loss=loss))

    return act


SITUATIONS = [
    of_run(
        "a restarted run has a higher loss than before, at the steps where it had been",
        (300, restarted_with(lambda _step: 4.0)),
        lasts=35 * MINUTE,
        fires={"TrainLossAboveEarlier": within(28 * MINUTE, not_before=900, series=1, severity="warning")},
    ),
    of_run(
        "a restarted run goes on with the loss that it had",
        (300, restarted_with(lambda step: 2 + 8 / (1 + step))),
        lasts=35 * MINUTE,
    ),
    of_run(
        "somebody cancels a run of 16 ranks (scancel), and the kernel reports by which signal",
        (300, cancelled(told=True)),
        lasts=25 * MINUTE,
    ),
    of_run(
        "somebody cancels a run, and three ranks end only when Slurm kills them",
        (300, cancelled(told=True, stubborn=3)),
        lasts=25 * MINUTE,
    ),
    of_run(
        "five short runs of one name end well, one after the other",
        (240, lambda site: site.run.end()),
        (300, short_runs),
        lasts=25 * MINUTE,
    ),
    of_run(
        "somebody cancels a run of 16 ranks, and the kernel is older than 6.15: a warning wakes nobody",
        (300, cancelled(told=False)),
        lasts=25 * MINUTE,
        fires={"TrainRunDied": within(120, series=1, severity="warning")},
    ),
    of_run(
        "a rank dies of a signal, and srun ends the rest within a second",
        (300, lambda site: site.run.kill(11, "SIGSEGV", rest_after=1)),
        fires={"TrainRunDied": within(120, series=1, severity="critical", named=("11", "gpu-002"))},
    ),
    of_run(
        "a run dies for good: the alert keeps its name when the exporter forgets the ranks",
        (300, lambda site: site.run.kill(11, "RuntimeError", rest_after=20)),
        lasts=30 * MINUTE,
        fires={"TrainRunDied": within(150, series=1, severity="critical", named=("11", "gpu-002"))},
    ),
    of_run(
        "a run crashes every 45 seconds, and a launcher restarts it each time",
        (300, loop(lives=25, away=20, times=20)),
        lasts=35 * MINUTE,
        fires={"TrainRunDied": within(300, series=1, severity="critical")},
    ),
    of_run(
        "a run crashes after a minute, and is restarted a minute and a half later, eight times",
        (300, loop(lives=60, away=90, times=8)),
        lasts=40 * MINUTE,
        # Three deaths fire for the rank, one message of the service; then it is a loop.
        fires={"TrainRunDied": within(120, series=2, times=3, severity="critical")},
    ),
    of_run(
        "a shell's loop restarts a run that crashes after seconds",
        (300, loop(lives=14, away=7, times=40, same_attempt=True)),
        lasts=30 * MINUTE,
        fires={"TrainRunDied": within(300, series=1, severity="critical")},
    ),
    of_run(
        "a run crashes four times within minutes, and lives after that",
        (300, restarted_and_mended),
        lasts=25 * MINUTE,
        fires={"TrainRunDied": within(300, series=1, ends_within=600)},
    ),
]
