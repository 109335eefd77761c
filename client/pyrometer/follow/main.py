"""The command line of ``pyrometer-follow``."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyrometer import _environment, ring
from pyrometer._command_line import add_version_flag, positive, positive_int, ratio
from pyrometer._ring_file import default_folder
from pyrometer._settings import LEAST_PEAK, describe
from pyrometer.flops import CONVENTIONS, has_other_parts, model_flops, read_config, shape_of_config
from pyrometer.follow.follower import LogFollower, report
from pyrometer.follow.formats import all_formats
from pyrometer.follow.log_line import Format
from pyrometer.follow.log_ring import LogRing, active_ring, attempt_of_file, last_recorded_step
from pyrometer.follow.pattern import describe as describe_lines
from pyrometer.follow.pattern import format_of, read_description
from pyrometer.follow.recorder import FirstStep, Recorder
from pyrometer.follow.remarks import about_mfu
from pyrometer.follow.step_reader import JobSize, StepReader
from pyrometer.follow.tail import Tail
from pyrometer.follow.units import VALUES

POLL_SECONDS = 0.5
_AUTO = "auto"


class UsageError(Exception):
    """The command can't do what was asked; the message is one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow a log until SIGTERM, SIGINT or the end of --pid. Return 2, after one line, if that is impossible."""
    options = _parser().parse_args(arguments)
    try:
        _follow(options, _stop_at_signals())
    except UsageError as error:
        report(str(error))
        return 2
    except OSError as error:
        report(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyrometer-follow", description="Report the steps of a trainer's log to this machine's node exporter."
    )
    log = parser.add_argument_group("Log", "which file to read, and how")
    log.add_argument("log", type=Path, help="The trainer's log.")
    log.add_argument("--wait", action="store_true", help="Wait for the log to be created, instead of failing.")
    log.add_argument(
        "--format",
        choices=[_AUTO, *all_formats()],
        default=_AUTO,
        help="Format of the log; auto is the first format that recognises a line (default: auto).",
    )
    log.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="REGEX",
        help="Instead of a format, a regular expression for the line of a step, with named groups: step, and any of "
        f"{', '.join(VALUES)}; checkpoint and eval for lines of pauses. Repeat it for steps of several lines.",
    )
    log.add_argument("--pattern-file", type=Path, help="The same in a YAML file, with units; see docs/training.md.")
    log.add_argument("--from-end", action="store_true", help="Skip what the log already contains.")
    log.add_argument("--pid", type=positive_int, help="Exit when this process, the job's, has ended.")
    log.add_argument(
        "--rings", help=f"Folder of the rings (default: $PYROMETER_RINGS, {ring.DEFAULT_FOLDER} or a user's own)."
    )
    add_version_flag(parser)
    _add_job_flags(parser)
    _add_mfu_flags(parser)
    return parser


def _add_job_flags(parser: argparse.ArgumentParser) -> None:
    job = parser.add_argument_group("Job", "labels of the run")
    job.add_argument("--run", required=True, help="Name of the run, the same over restarts.")
    job.add_argument("--attempt", type=int, help="Number of the first attempt in the log; the next ones count up.")
    job.add_argument("--job-id", help="The scheduler's id of the job (default: $SLURM_JOB_ID).")
    job.add_argument("--model", default="", help="Name of the model.")
    job.add_argument("--dtype", default="", help="bf16, fp16, fp8, ...")
    job.add_argument(
        "--recompute", default="", choices=["", *ring.RECOMPUTE], help="Activations that are computed twice."
    )
    job.add_argument("--micro-batch-size", type=positive_int, help="Sequences per GPU at a time.")


def _add_mfu_flags(parser: argparse.ArgumentParser) -> None:
    mfu = parser.add_argument_group("MFU", "sizes that the log may lack, and the peak")
    mfu.add_argument("--gpus", type=positive_int, help="Number of GPUs of the job, if the log doesn't print it.")
    mfu.add_argument("--flops-per-token", type=positive, help="Model FLOPs per token, forward and backward.")
    mfu.add_argument(
        "--model-config", type=Path, help="The model's config.json, instead; needs --sequence-length as well."
    )
    mfu.add_argument(
        "--convention", choices=list(CONVENTIONS), default="megatron", help="How FLOPs are counted (default: megatron)."
    )
    mfu.add_argument("--tokens-per-step", type=positive, help="Tokens per step, if the log doesn't print the batch.")
    mfu.add_argument("--global-batch-size", type=positive, help="Sequences per step, if the log doesn't print them.")
    mfu.add_argument("--sequence-length", type=positive_int, help="Tokens per sequence.")
    mfu.add_argument("--peak-flops", type=positive, help="Peak dense FLOP/s of one GPU, such as 989.4e12.")
    mfu.add_argument("--gpu-model", default="", help="Exact name of the GPU as nvidia-smi prints it, instead.")
    mfu.add_argument("--expected-mfu", type=ratio, help="MFU that this configuration reaches, 0 to 1.")


def _follow(options: argparse.Namespace, stop: threading.Event) -> None:
    folder = options.rings or os.environ.get("PYROMETER_RINGS") or default_folder()
    _check_log(options)
    _refuse_second_follower(folder, options.run)
    description, size = _description(options), _job_size(options)
    formats = _formats(options)
    steps = StepReader(formats, size)
    attempt = _environment.attempt(os.environ) if options.attempt is None else options.attempt

    def open_ring(of_attempt: Mapping[str, Any]) -> LogRing:
        _refuse_second_follower(folder, options.run)  # one that waited for the first step at the same time
        if options.gpus and steps.gpu_count.gpus not in (0, options.gpus):
            report(f"the log prints {steps.gpu_count.gpus} GPUs, --gpus is {options.gpus}: using --gpus")
        return LogRing(folder, of_attempt)

    def first_attempt(file: str) -> int:
        return attempt if options.attempt is not None else attempt_of_file(folder, options.run, file, attempt)

    recorder = Recorder(
        description, size, attempt, open_ring, lambda number: last_recorded_step(folder, options.run, number)
    )
    tail = Tail(options.log, from_end=options.from_end)
    absent = "" if options.log.exists() else ", which does not exist yet: waiting for it"
    report(f"following {options.log} as run {options.run}{absent}")
    follower = LogFollower(tail, steps, recorder, folder, first_attempt)

    def report_first() -> bool:
        if recorder.first is not None:
            _report_mfu(options, description, recorder.first)
        return recorder.first is not None

    try:
        _poll(options, stop, follower, report_first)
    finally:
        # Whoever ends the follower ends the run with it: its silence is no hang.
        recorder.close(ended_well=True)
        tail.close()
    _report_omissions(options, tail, steps, recorder)


def _formats(options: argparse.Namespace) -> Mapping[str, Format]:
    """Return the formats to try.

    Raises:
        UsageError: the user's own patterns can't be used.
        OSError: their file can't be read.
    """
    if options.pattern or options.pattern_file:
        if options.format != _AUTO or (options.pattern and options.pattern_file):
            raise UsageError("--format, --pattern and --pattern-file exclude each other: give one of them")
        return _own_format(options)
    formats = all_formats()
    return formats if options.format == _AUTO else {options.format: formats[options.format]}


def _own_format(options: argparse.Namespace) -> Mapping[str, Format]:
    try:
        description = (
            read_description(options.pattern_file) if options.pattern_file else describe_lines(options.pattern)
        )
    except ValueError as error:
        raise UsageError(f"{options.pattern_file or '--pattern'}: {error}") from None
    if description.convention and description.convention not in CONVENTIONS:
        raise UsageError(
            f"{options.pattern_file}: unknown convention {description.convention}; known are {', '.join(CONVENTIONS)}"
        )
    return {description.name: format_of(description)}


def _report_mfu(options: argparse.Namespace, description: Mapping[str, Any], first: FirstStep) -> None:
    """Say at what speed the run goes, and why it has no MFU."""
    has_peak = bool(options.gpu_model or options.peak_flops)
    remark = about_mfu(first, flops_per_token=description["flops_per_token"], has_peak=has_peak)
    if remark is not None:
        report(remark)


def _check_log(options: argparse.Namespace) -> None:
    if options.log.is_dir():
        raise UsageError(f"{options.log} is a directory: give the log file")
    if not options.wait and not options.log.exists():
        raise UsageError(f"{options.log} does not exist: check the path, or give --wait if the job creates it later")


def _refuse_second_follower(folder: str, run: str) -> None:
    other = active_ring(folder, run)
    if other is not None:
        raise UsageError(f"run {run} is already being followed ({other}): only one follower per run")


def _poll(
    options: argparse.Namespace, stop: threading.Event, follower: LogFollower, report_first: Callable[[], bool]
) -> None:
    arrived, reported = time.monotonic(), False
    while True:
        ending = stop.is_set() or not _is_alive(options.pid)
        more = follower.read(arrived)
        reported = reported or report_first()
        if ending and not more:
            return
        if not (ending or follower.has_more):
            stop.wait(POLL_SECONDS)
            arrived = time.monotonic()


def _is_alive(pid: int | None) -> bool:
    if pid is None:
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's process
    return True


def _description(options: argparse.Namespace) -> Mapping[str, Any]:
    """Return the run's description, built by the client's own code; one pseudo-rank stands for all ranks."""
    if options.peak_flops is not None and options.peak_flops < LEAST_PEAK:
        raise UsageError(
            f"--peak-flops={options.peak_flops:g} is not plausible for a GPU: give FLOP/s, such as 989.4e12"
        )
    given = ("run", "model", "convention", "dtype", "recompute", "gpu_model", "job_id", "peak_flops", "expected_mfu",
             "global_batch_size", "micro_batch_size", "sequence_length")  # fmt: skip
    settings = {
        "flops_per_token": _flops_per_token(options),
        "rank": 0,
        "local_rank": 0,
        "world_size": options.gpus or 0,
        "warmup_steps": 0,
        "gpu": "",
        "uuid": "",
    }
    return describe({**settings, **{name: getattr(options, name) for name in given}})


def _flops_per_token(options: argparse.Namespace) -> float | None:
    if options.model_config is None or options.flops_per_token is not None:
        return None if options.flops_per_token is None else float(options.flops_per_token)
    if options.sequence_length is None:
        raise UsageError("--model-config needs --sequence-length: the FLOPs of attention grow with it")
    try:
        config = read_config(options.model_config)
        shape = shape_of_config(config)
    except ValueError as error:
        raise UsageError(f"{options.model_config}: {error}") from None
    if has_other_parts(config):
        report(f"{options.model_config}: only the language part is counted, not the encoders for images or sound")
    return model_flops(shape, options.sequence_length, options.convention)


def _job_size(options: argparse.Namespace) -> JobSize:
    return JobSize(
        gpus=options.gpus or 0,
        samples=options.global_batch_size or 0,
        sequence=options.sequence_length or 0,
        tokens=options.tokens_per_step or 0,
    )


def _report_omissions(options: argparse.Namespace, tail: Tail, steps: StepReader, recorder: Recorder) -> None:
    if steps.format is None:
        report(f"no training step found in {options.log}: see --format and --pattern")
    if recorder.untimed:
        report(f"left out {recorder.untimed} lines without a step time: give --tokens-per-step and --gpus")
    if recorder.too_old:
        report(f"left out {recorder.too_old} lines that are too old for Prometheus")
    if tail.dropped_bytes:
        report(f"left out {tail.dropped_bytes} bytes in overlong lines")


def _stop_at_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
