"""GPUs that begin to spin: full utilisation at a fraction of the power that they took before."""

from __future__ import annotations

import pytest

from pyrometer_exporters.framework.gpu_loads import GpuLoads

LIMIT = 700.0


def notes(loads: GpuLoads, now: float, *watts: float, percent: float = 100.0) -> None:
    for number, power in enumerate(watts):
        loads.note(f"gpu-{number}", percent, power, LIMIT, now)


def test_half_of_the_gpus_spin_from_their_second_scrape_on_for_five_minutes() -> None:
    loads = GpuLoads()
    assert not loads.spin(0)
    notes(loads, 0, 650, 650, 650, 650)
    notes(loads, 15, 180, 180, 650, 650)
    assert not loads.spin(15), "it may be a moment"
    notes(loads, 30, 180, 180, 650, 650)
    assert loads.spin(30)
    notes(loads, 320, 180, 180, 650, 650)
    assert not loads.spin(320), "it has been asked about often enough"
    notes(loads, 400, 650, 650, 650, 650)
    notes(loads, 415, 180, 180, 180, 650)
    notes(loads, 430, 180, 180, 180, 650)
    assert loads.spin(430), "another time"


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        ((650, 650, 650, 650), (180, 650, 650, 650), 100),  # one of four
        ((200, 200, 200, 200), (180, 180, 180, 180), 100),  # work that never takes much
        ((650, 650, 650, 650), (350, 350, 350, 350), 100),  # half the limit is work
        ((650, 650, 650, 650), (180, 180, 180, 180), 60),  # they load data
    ],
)
def test_other_loads_are_no_spinning(before: tuple[float, ...], after: tuple[float, ...], percent: float) -> None:
    loads = GpuLoads()
    notes(loads, 0, *before)
    notes(loads, 15, *after, percent=percent)
    notes(loads, 30, *after, percent=percent)
    assert not loads.spin(30)


def test_an_idle_gpu_forgets_what_the_last_job_took() -> None:
    loads = GpuLoads()
    notes(loads, 0, 650, 650)
    notes(loads, 15, 72, 72, percent=0)
    notes(loads, 30, 200, 200)
    notes(loads, 45, 190, 190)
    notes(loads, 60, 190, 190)
    assert not loads.spin(60)


def test_gpus_that_are_read_no_more_do_not_spin() -> None:
    loads = GpuLoads()
    notes(loads, 0, 650, 650)
    notes(loads, 15, 180, 180)
    notes(loads, 30, 180, 180)
    assert not loads.spin(1000)
