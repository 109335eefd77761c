"""GPUs that can't reach the peak of their model, on simulated H100."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Bench

_OUT_OF_REACH = "so the peak of NVIDIA H100 80GB HBM3, 989.4 TFLOP/s in BF16 can't be reached"


def notes(bench: Bench) -> list[str]:
    """The doctor's notes about peaks; they are no problem of the node's."""
    status, report = bench.json()
    assert (status, report["problems"]) == (0, [])
    return [note for note in report["notes"] if "peak" in note]


def test_healthy_gpus_reach_their_peak(bench: Bench) -> None:
    bench.make()
    assert notes(bench) == []


def test_a_lowered_power_limit_is_named_with_its_remedy(bench: Bench) -> None:
    gpus = bench.make()
    gpus[0].limit_power(500)
    gpus[2].limit_power(500)
    (note,) = notes(bench)
    limit = "power is limited to 500 W of 700 W (nvidia-smi -pl 700 restores it)"
    assert note.startswith(f"GPU 0, 2: {limit}, {_OUT_OF_REACH}")


def test_clocks_that_somebody_set_are_named(bench: Bench) -> None:
    bench.make()[1].throttle("clocks_setting", sm_clock=1200)
    (note,) = notes(bench)
    held = "clocks are held at 1200 of 1980 MHz by a setting (nvidia-smi -rgc and -rac reset it)"
    assert note.startswith(f"GPU 1: {held}, {_OUT_OF_REACH}")


def test_a_gpu_whose_peak_nobody_knows_has_no_line(bench: Bench) -> None:
    gpus = bench.make(model="NVIDIA Unheard-Of")
    gpus[0].limit_power(500)
    assert notes(bench) == []
