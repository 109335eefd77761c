"""Write the page docs/on-a-gpu.md: expected against measured, as recorded on a GPU and on the stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyrometer_exporters.commands.gpu_check import main as command
from pyrometer_exporters.commands.gpu_check.check import RESULTS, Experiment, Result, append, machine, results
from pyrometer_exporters.commands.gpu_check.main import EXPERIMENTS, folder_of, make_parser
from pyrometer_exporters.commands.gpu_check.place import Place

RECORDED = Path(__file__).parent / "gpu_results"
STAND_IN, GPU = "stand-in", "gpu"
_HEAD = """# On a GPU

`make gpu-check` runs the experiments below on the GPU that is at hand: unattended, without a network, in at most nine
minutes, from a checkout, and without changing a setting of the GPU. It prints the same table and leaves all raw data in
one folder of at most eight files, among them a field report with the tape of the driver's answers. Where the exporters
are installed beside PyTorch, `python -m pyrometer_exporters.commands.gpu_check` does the same.

This page is generated from recorded results: `make gpu-page` writes it again, and `make gpu-check FLAGS=--record`
records a run.
"""
_EMPTY = """
**The column *measured* is still empty: nothing here has met a GPU yet.** The last column is the same code on the
project's stand-in, a simulated driver and PyTorch's CPU build. It shows that the experiments work, and nothing about a
GPU: its figures are those of a simulation on a small shared machine.
"""
_FULL = """
The column *measured* is from a GPU; the last one is the same code on the project's stand-in, a simulated driver and
PyTorch's CPU build, whose figures say nothing about a GPU.
"""


def main() -> int:
    """Run the check or write the page, as the command line asks for; return the exit status."""
    parser = make_parser()
    add = parser.add_argument
    add("--stand-in", action="store_true", help="run on the simulated driver and on torch's CPU build")
    add("--record", action="store_true", help="keep the results as those that docs/on-a-gpu.md shows")
    add("--page", type=Path, metavar="FILE", help="only write the page of the recorded results")
    flags = parser.parse_args()
    if flags.page:
        flags.page.write_text(text(EXPERIMENTS), encoding="utf-8")
        return 0
    flags.out = folder_of(flags)
    status = command.check(flags, _stand_in() if flags.stand_in else Place)
    if flags.record:
        record(flags.out)
    return status


def _stand_in() -> type[Place]:
    from pyrometer_simulator.gpu_check import StandIn  # noqa: PLC0415  it needs more than a GPU's machine has

    return StandIn


def record(folder: Path) -> None:
    """Keep a run's results as those that the page shows; of experiments that it left out, the earlier ones stay."""
    described, new = machine(folder), results(folder)
    target = RECORDED / (STAND_IN if described.get("stand_in") else GPU)
    run = {result.experiment for result in new}
    earlier = [result for result in results(target) if result.experiment not in run]
    target.mkdir(parents=True, exist_ok=True)
    (target / RESULTS).unlink(missing_ok=True)
    append(target / RESULTS, {"machine": described})
    for result in sorted([*earlier, *new], key=lambda one: one.experiment):
        append(target / RESULTS, vars(result))


def text(experiments: Sequence[Experiment]) -> str:
    """Return the page."""
    runs = {name: results(RECORDED / name) for name in (GPU, STAND_IN)}
    parts = [_HEAD, _FULL if runs[GPU] else _EMPTY, *_machines()]
    parts += ["\n".join(_table(one, runs)) for one in sorted(experiments, key=lambda one: one.letter)]
    return "\n".join(parts) + "\n"


def _machines() -> Iterator[str]:
    yield "\n## Where\n"
    yield "| | GPU | driver | machine | date |\n|---|---|---|---|---|"
    for name, title in ((GPU, "measured"), (STAND_IN, "stand-in")):
        found = machine(RECORDED / name)
        yield f"| {title} | " + " | ".join(_machine_cells(found)) + " |"


def _machine_cells(found: dict[str, Any]) -> tuple[str, ...]:
    if not found:
        return ("none yet", "", "", "")
    packages = found.get("packages", {})
    software = f"Python {found['python']}, PyTorch {packages.get('torch') or 'none'}"
    place = f"{found['processors']} processors, kernel {found['kernel']}, {software}"
    gpu = f"simulated {found['gpu']}" if found["stand_in"] else found["gpu"]
    return gpu, str(found.get("driver") or ""), place, found["date"]


def _table(experiment: Experiment, runs: dict[str, list[Result]]) -> Iterator[str]:
    yield f"\n## {experiment.letter}. {experiment.title}\n"
    yield "| check | expected | measured | on the stand-in |"
    yield "|---|---|---|---|"
    for check in experiment.checks:
        cells = [_cell(runs[name], experiment.letter, check.name) for name in (GPU, STAND_IN)]
        yield f"| {_escaped(check.what)} | {_escaped(check.expected)} | {cells[0]} | {cells[1]} |"


def _cell(found: list[Result], letter: str, check: str) -> str:
    result = next((one for one in found if (one.experiment, one.check) == (letter, check)), None)
    if result is None:
        return ""
    if result.passed is None:
        return f"not measured: {_escaped(result.note)}"
    note = f" ({_escaped(result.note)})" if result.note and not result.passed else ""
    return f"{_escaped(result.measured)}: **{result.verdict}**{note}"


def _escaped(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)[1:-1].replace("|", "\\|").replace('\\"', '"').replace("<", "&lt;")
