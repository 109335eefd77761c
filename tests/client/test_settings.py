"""Settings in a wrong unit are refused with one line that says what to give."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from client_ring_reader import ReadRing

import pyrometer
from pyrometer._settings import StartSettings
from pyrometer.follow.main import main as follow


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"peak_flops": 989.4},
            "peak_flops=989.4 is not plausible for a GPU and is ignored: give FLOP/s, such as 989.4e12",
        ),
        (
            {"peak_flops": "989.4"},
            "peak_flops=989.4 is not plausible for a GPU and is ignored: give FLOP/s, such as 989.4e12",
        ),
        (
            {"peak_flops": 989.4e24},
            "peak_flops=9.894e+26 is not plausible for a GPU and is ignored: give FLOP/s, such as 989.4e12",
        ),
        ({"expected_mfu": 40}, "expected_mfu=40 is ignored: give a share from 0 to 1, such as 0.4"),
    ],
)
def test_a_slip_of_units_is_said_once_and_left_out(
    rings: str, seen: ReadRing, capfd: pytest.CaptureFixture[str], settings: dict[str, Any], line: str
) -> None:
    run = pyrometer.start("r", rings=rings, **settings)
    for _ in range(2):  # at the first step the description is made again
        with run.step():
            pass
    assert capfd.readouterr().err == f"pyrometer: run r: {line}\n"
    assert [getattr(seen(run.path).meta, name) for name in settings] == [None]
    run.close()


@pytest.mark.parametrize(
    "settings", [{"peak_flops": 989.4e12, "expected_mfu": 0.4}, {"peak_flops": "65e12"}, {"peak_flops": 2e7}, {}]
)
def test_what_can_be_meant_is_taken(
    rings: str, seen: ReadRing, capfd: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    run = pyrometer.start("r", rings=rings, **settings)
    assert capfd.readouterr().err == ""
    assert {name: getattr(seen(run.path).meta, name) for name in settings} == {
        name: float(value) for name, value in settings.items()
    }
    run.close()


def test_the_follower_refuses_a_peak_without_its_e12(
    tmp_path: Path, rings: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("")
    assert follow([str(log), "--run=r", f"--rings={rings}", "--peak-flops=989.4"]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == (
        "pyrometer-follow: --peak-flops=989.4 is not plausible for a GPU: give FLOP/s, such as 989.4e12"
    )


@pytest.mark.parametrize("function", [pyrometer.start, pyrometer.auto, pyrometer.watch])
def test_help_and_completion_show_every_setting(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert list(parameters)[-len(StartSettings.__annotations__) :] == list(StartSettings.__annotations__)
    assert (parameters["rank"].annotation, parameters["rank"].kind.name) == ("int | None", "KEYWORD_ONLY")
    assert inspect.unwrap(function).__name__ == function.__name__


def test_every_setting_is_documented() -> None:
    documented = re.findall(r"^    (\w+): ", str(inspect.getdoc(pyrometer.start)), re.MULTILINE)
    assert documented == ["run", *StartSettings.__annotations__]
