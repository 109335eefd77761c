"""The check of a GPU, on the stand-in: each experiment that needs no PyTorch measures, and nothing is lost."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrometer_exporters.commands.gpu_check import check, clock_events, collectives, load, main, poller, xid
from pyrometer_exporters.node.gpu.sampler import Stretches
from pyrometer_simulator import gpu_check as stand_in
from pyrometer_simulator.gpu_check import StandIn

LAUNCHER = Path(__file__).resolve().parents[4] / "tools" / "gpu_check.py"


def started(*flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(LAUNCHER), *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OUT": ""})


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """Results by experiment and check, of two runs side by side."""
    folder = tmp_path_factory.mktemp("checked")
    runs = [
        started("--stand-in", "--short", f"--only={letters}", f"--out={folder / letters}") for letters in ("ah", "bcgi")
    ]
    for run in runs:
        said, _ = run.communicate(timeout=200)
        assert run.returncode in (0, 1), said
    lines = [json.loads(line) for path in folder.glob("*/results.jsonl") for line in path.read_text().splitlines()]
    assert all(len(list(path.iterdir())) <= 8 for path in folder.iterdir())
    return {(line["experiment"], line["check"]): line for line in lines if "check" in line}


# Figures of cost say nothing on a machine that runs tests beside, so only that they were measured is looked at.
EXACT = (
    "a idle", "a load", "a report", "b counters", "c sm", "c tensor", "c dram_duty", "c dram", "c pcie", "h process",
    "h job", "h ended", "i xid", "i process", "g awake", "g event_wait",
)  # fmt: skip
MEASURED = (
    "b poller",
    "b elapsed",
    "g scrape_1s",
    "g scrape_15s",
    "g scrape_busy",
    "g training",
    "g memory",
)


@pytest.mark.parametrize("name", EXACT)
def test_the_simulated_gpu_is_what_we_say(checked: dict[tuple[str, str], Any], name: str) -> None:
    letter, _, check = name.partition(" ")
    result = checked[letter, check]
    assert result["passed"], result


@pytest.mark.parametrize("name", MEASURED)
def test_figures_are_measured(checked: dict[tuple[str, str], Any], name: str) -> None:
    letter, _, check = name.partition(" ")
    result = checked[letter, check]
    assert result["passed"] is not None or result["note"].startswith("undecided"), result


def test_the_samplers_cost_on_a_simulated_driver_is_told_but_not_judged(checked: dict[tuple[str, str], Any]) -> None:
    result = checked["g", "sampler"]
    assert result["passed"] is None
    assert re.match(
        r"\d\.\d\d / (\d\.\d\d|not measured) % of a core, most of it the simulated driver's", result["note"]
    )


def test_a_load_leaves_the_gpu_when_it_is_asked_to_end_while_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.make(tmp_path)
    place = StandIn(str(tmp_path), files=str(tmp_path))
    held: list[bool] = []

    def asked_again(_number: int, handler: object) -> None:
        if handler is signal.SIG_IGN:
            held.append(str(os.getpid()).encode() in place.gpus.read_bytes())
            sys.exit(0)  # as SIGTERM's handler does when the signal comes between the last phase and this call

    monkeypatch.setattr(load.signal, "signal", asked_again)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit):
        stand_in.run_load(place, phases=[{"name": "hold", "kind": load.IDLE, "seconds": 60}])
    assert held == [True]
    assert str(os.getpid()).encode() not in place.gpus.read_bytes()


def test_without_a_gpu_each_experiment_says_so(tmp_path: Path) -> None:
    run = started(f"--out={tmp_path}")
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 2
    assert said.count("not measured (no GPU)") == said.count("expected ") > 30
    assert "0 passed, 0 failed" in said


def test_an_experiment_that_hangs_or_dies_costs_itself_alone(
    tmp_path: Path,
) -> None:
    experiment = next(one for one in main.EXPERIMENTS if one.letter == "g")
    place = StandIn(str(tmp_path), files=str(tmp_path))
    (tmp_path / "gpus").write_bytes(b"")  # no simulated GPU: the experiment fails at once
    main._run_apart(place, experiment, check.Report(tmp_path, experiment), 60)
    results = check.results(tmp_path)
    assert {result.check for result in results} == {one.name for one in experiment.checks}
    assert all(result.passed is None and "no simulated GPUs" in result.note for result in results)
    # And one that has no time: what it started is ended with it.
    (tmp_path / "results.jsonl").unlink()
    stand_in.make(tmp_path)
    main._run_apart(place, experiment, check.Report(tmp_path, experiment), 1.0)
    assert {result.note for result in check.results(tmp_path)} == {"not finished within 1 s"}


def test_a_torn_line_of_results_costs_itself_alone(tmp_path: Path) -> None:
    report = check.Report(tmp_path, xid.EXPERIMENT)
    report.passed("xid", "one", ok=True)
    with (tmp_path / check.RESULTS).open("a") as file:
        file.write('{"experiment": "i", "che')
    assert [result.measured for result in check.results(tmp_path)] == ["one"]


@pytest.mark.parametrize(
    ("changes", "window", "found"),
    [
        ([(0.0, 4)], (1.0, 3.0), {4: 2.0}),
        ([(0.0, 4), (2.0, 0), (3.0, 12)], (1.0, 4.0), {4: 2.0, 8: 1.0}),
        ([(5.0, 1)], (1.0, 4.0), {}),
        ([], (0.0, 1.0), {}),
    ],
)
def test_the_poller_sums_up_each_bit_within_the_window(
    changes: list[tuple[float, int]], window: tuple[float, float], found: dict[int, float]
) -> None:
    assert poller.seconds_by_bit(changes, *window) == pytest.approx(found)


def test_the_changes_of_each_bit_are_counted() -> None:
    changes = [(0.0, 4), (2.0, 0), (3.0, 12), (4.0, 8)]
    assert poller.changes_by_bit(changes) == {4: 3, 8: 1}
    assert poller.changes_by_bit([]) == {}


def test_a_sampled_reason_scatters_as_its_check_allows() -> None:
    """60 s of pulses of 0.3 s every 1.1 s, as the load on the stand-in has them, sampled 300 times over."""
    chance = random.Random(7).random  # noqa: S311  no secret
    period, pulse, end = 1.1, 0.3, 60.5
    apart = []
    for _ in range(300):
        stretches, begins, counted, phase = Stretches(1 / 20, 1 / 20, chance), 0.0, 0.0, chance()
        while begins < end:
            read = stretches.begin(begins, busy=True)
            counted += (stretches.ends - begins) * ((read + phase) % period < pulse)
            begins = stretches.ends
        apart.append(counted - end / period * pulse)
    expected = clock_events.sampling_scatter(2 * int(end / period))
    assert abs(statistics.fmean(apart)) < 3 * expected / math.sqrt(len(apart))
    assert statistics.stdev(apart) == pytest.approx(expected, rel=0.15)


def test_a_dump_with_more_than_plain_values_is_refused() -> None:
    assert collectives.load_dump(pickle.dumps({"entries": [1, "a", None]})) == {"entries": [1, "a", None]}
    with pytest.raises(pickle.UnpicklingError, match=r"(os|posix)\.system"):
        collectives.load_dump(pickle.dumps(os.system))
