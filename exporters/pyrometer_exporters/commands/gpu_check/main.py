"""The check of a GPU: everything that Pyrometer says about the one that is here, unattended, in at most nine minutes.

    python -m pyrometer_exporters.commands.gpu_check [--out FOLDER] [--only abc]

Needs torch beside the exporters, and no network; changes no setting of the GPU. Prints expected, measured and verdict
of each check, and leaves all raw data in one folder. Each experiment runs in a process of its own with a deadline.
Ends with 1 if a check failed, with 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyrometer_exporters.commands.gpu_check import (
    activity,
    clock_events,
    collectives,
    cost,
    jobs,
    load,
    machine,
    mfu,
    plausibility,
    poller,
    values,
    xid,
)  # fmt: skip
from pyrometer_exporters.commands.gpu_check.check import RAW, RESULTS, Experiment, Report, append, results
from pyrometer_exporters.commands.gpu_check.place import Place

TOTAL_SECONDS = 540.0
# In this order the GPU is idle where it has to be, what matters most comes first, and the faulty program last.
EXPERIMENTS: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT for module in (values, clock_events, activity, jobs, collectives, plausibility, mfu, cost, xid)
)
CHILDREN: dict[str, Callable[..., None]] = {
    "machine": machine.describe, "load": load.main, "poller": poller.main, "fault": xid.fault,
    "rank": collectives.rank, "hang": collectives.hang,
}  # fmt: skip
LOG = "log.txt"
_RESERVED_SECONDS = 35.0  # of the whole time, for the last experiment
_MACHINE_SECONDS = 60.0
_SHORT = 0.06


def main(argv: Sequence[str] | None = None, kind: type[Place] = Place) -> int:
    """Run what the command line asks for; return the exit status."""
    flags = make_parser().parse_args(argv)
    if flags.child:
        name, place, settings = flags.child
        {**CHILDREN, **kind.children}[name](kind.parse(place), **json.loads(settings))
        return 0
    if flags.experiment:
        letter, place = flags.experiment
        return _run_here(letter, kind.parse(place))
    return check(flags, kind)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's flags."""
    parser = argparse.ArgumentParser(prog="gpu-check", description="Check what we say about this machine's GPU.")
    add = parser.add_argument
    add("--out", type=Path, metavar="FOLDER", help="where the raw data goes (default: $OUT, else a new folder in /tmp)")
    add("--only", default="", metavar="LETTERS", help="only these experiments, such as abc")
    add("--short", action="store_true", help="take seconds instead of minutes: for the tests, not for figures")
    add("--child", nargs=3, help=argparse.SUPPRESS)
    add("--experiment", nargs=2, help=argparse.SUPPRESS)
    return parser


def folder_of(flags: argparse.Namespace) -> Path:
    """Return the folder of the raw data, made where the flags name none."""
    out = flags.out or (Path(os.environ["OUT"]) / "gpu-check" if os.environ.get("OUT") else None)
    return out or Path(tempfile.mkdtemp(prefix="gpu-check-"))


def check(flags: argparse.Namespace, kind: type[Place]) -> int:
    """Run the experiments that the flags name and print their results; return the exit status."""
    begin = time.monotonic()
    # One GPU, the one that NVML counts first: a trainer would spread over all that it sees.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    folder = folder_of(flags)
    folder.mkdir(parents=True, exist_ok=True)
    for old in (RESULTS, RAW, LOG):
        (folder / old).unlink(missing_ok=True)
    with kind.made(folder, _SHORT if flags.short else 1.0) as place:
        _run_all(
            place,
            [experiment for experiment in EXPERIMENTS if not flags.only or experiment.letter in flags.only],
            begin,
        )
    every = results(folder)
    measured = [result for result in every if result.passed is not None]
    failed = [result for result in measured if not result.passed]
    sys.stdout.write(
        f"{len(measured) - len(failed)} passed, {len(failed)} failed, {len(every) - len(measured)} not measured, in"
        f" {time.monotonic() - begin:.0f} s; raw data: {folder}\n"
    )
    return 2 if not measured else int(bool(failed))


def _run_all(place: Place, experiments: Sequence[Experiment], begin: float) -> None:
    described = _machine(place)
    place = replace(place, cuda=bool(described.get("cuda")))
    append(place.folder / RESULTS, {"machine": described})
    kind = "the stand-in for a GPU" if place.stand_in else described.get("gpu") or "no GPU"
    sys.stdout.write(f"on {kind}, {described.get('driver') or described.get('no_gpu', '')}\n")
    for experiment in experiments:
        report = Report(place.folder, experiment)
        left = TOTAL_SECONDS - (time.monotonic() - begin) - (0 if experiment is experiments[-1] else _RESERVED_SECONDS)
        if not described.get("gpu"):
            report.skipped_rest("no GPU")
        elif left < 5:
            report.skipped_rest("no time left")
        else:
            _run_apart(place, experiment, report, min(left, experiment.seconds))
        _print(place, experiment, time.monotonic() - begin)


def _machine(place: Place) -> dict[str, Any]:
    """Return the machine's description, asked in a process of its own: a driver can hang."""
    with place.child("machine") as child:
        status = child.wait(_MACHINE_SECONDS)
        if status is None:
            return {"gpu": "", "no_gpu": f"the driver gave no answer in {_MACHINE_SECONDS:.0f} s"}
        return child.line() if status == 0 else {"gpu": "", "no_gpu": f"status {status}"}


def _run_apart(place: Place, experiment: Experiment, report: Report, seconds: float) -> None:
    """Run an experiment in a process group of its own, which is ended with all that it has started."""
    until = time.monotonic() + seconds
    described = replace(place, deadline=until).text()
    command = [sys.executable, *place.program, "--experiment", experiment.letter, described]
    with (place.folder / LOG).open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status: int | str = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = f"not finished within {seconds:.0f} s"
        finally:
            _end_group(process)
    if status != 0:
        report.skipped_rest(status if isinstance(status, str) else f"ended with status {status}: see {LOG}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the group of a process that we started as its leader, and wait for it for a moment."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(2)
        except (ProcessLookupError, PermissionError):
            return
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.2)


def _run_here(letter: str, place: Place) -> int:
    """Run one experiment in this process."""
    experiment = next(listed for listed in EXPERIMENTS if listed.letter == letter)
    report = Report(place.folder, experiment)
    try:
        experiment.run(place, report)
    except Exception as error:  # noqa: BLE001  what it has found so far is kept
        traceback.print_exc()
        report.skipped_rest(f"{type(error).__name__}: {str(error)[:300]}")
        return 0
    report.skipped_rest("not measured")
    return 0


def _print(place: Place, experiment: Experiment, passed: float) -> None:
    by_check = {result.check: result for result in results(place.folder) if result.experiment == experiment.letter}
    sys.stdout.write(f"\n{experiment.letter}  {experiment.title}, done after {passed:.0f} s\n")
    for check in experiment.checks:
        result = by_check[check.name]
        sys.stdout.write(f"   {check.what}\n     expected {check.expected}\n")
        if result.passed is not None:
            sys.stdout.write(f"     measured {result.measured}\n")
        sys.stdout.write(f"     {result.verdict}{f' ({result.note})' if result.note else ''}\n")
    sys.stdout.flush()
