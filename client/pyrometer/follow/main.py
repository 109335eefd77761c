"""The command line of ``pyrometer-follow``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyrometer import _environment, ring
from pyrometer.flops import CONVENTIONS, model_flops, read_config, shape_of_config
from pyrometer.flops.arguments import positive, positive_int, ratio
from pyrometer.follow.following import Following, say
from pyrometer.follow.formats import all_formats
from pyrometer.follow.logged_ring import LoggedRing, attempt_at, being_written, last_step
from pyrometer.follow.recorder import Recorder
from pyrometer.follow.steps import Sizes, Steps
from pyrometer.follow.tail import Tail

POLL_SECONDS = 0.5
_AUTO = "auto"
_PLAIN = (
    "run", "model", "convention", "dtype", "recompute", "gpu_model", "job_id", "peak_flops", "expected_mfu",
    "global_batch_size", "micro_batch_size", "sequence_length",
)  # fmt: skip


class UsageError(Exception):
    """What can't be done as asked; one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow a log until SIGTERM, SIGINT or the end of --pid; 2 and one line where that can't begin."""
    asked = _parser().parse_args(arguments)
    try:
        _follow(asked, _stop_at_signals())
    except (UsageError, OSError) as error:
        sys.stderr.write(f"pyrometer-follow: {error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyrometer-follow", description="Report the steps of a trainer's log to the node exporter of this machine."
    )
    formats = [_AUTO, *all_formats()]
    parser.add_argument("log", type=Path, help="the trainer's log; it may come into being later")
    parser.add_argument("--run", required=True, help="name of the run; the same over restarts")
    parser.add_argument("--format", choices=formats, default=_AUTO, help="auto: the first that understands a line")
    parser.add_argument("--gpus", type=positive_int, help="GPUs of the job, where the log doesn't say")
    parser.add_argument("--flops-per-token", type=positive, help="model FLOPs per token, forward and backward")
    parser.add_argument("--model-config", type=Path, help="the model's config.json instead: needs --sequence-length")
    parser.add_argument("--convention", choices=list(CONVENTIONS), default="megatron", help="of --flops-per-token")
    parser.add_argument("--tokens-per-step", type=positive, help="where the log doesn't give the batch")
    parser.add_argument("--global-batch-size", type=positive, help="sequences per step, where the log doesn't say")
    parser.add_argument("--sequence-length", type=positive_int, help="in tokens")
    parser.add_argument("--micro-batch-size", type=positive_int, help="with the rest it tells configurations apart")
    parser.add_argument("--peak-flops", type=positive, help="dense FLOP/s of one GPU, such as 989.4e12")
    parser.add_argument("--gpu-model", default="", help="its exact name instead, as nvidia-smi has it")
    parser.add_argument("--expected-mfu", type=ratio, help="what this configuration reaches, 0 to 1")
    parser.add_argument("--dtype", default="", help="bf16, fp16, fp8, ...")
    parser.add_argument("--model", default="", help="the model's name")
    parser.add_argument("--recompute", default="", choices=["", *ring.RECOMPUTE], help="of activations")
    parser.add_argument("--job-id", help="the scheduler's ($SLURM_JOB_ID)")
    parser.add_argument("--attempt", type=int, help="of the first attempt in the log; the next ones count up")
    parser.add_argument("--from-end", action="store_true", help="leave out what the log holds already")
    parser.add_argument("--pid", type=positive_int, help="end with this process: the job's")
    parser.add_argument("--rings", help=f"folder of the rings ($PYROMETER_RINGS, {ring.DEFAULT_FOLDER})")
    return parser


def _follow(asked: argparse.Namespace, stop: threading.Event) -> None:
    folder = asked.rings or os.environ.get("PYROMETER_RINGS") or ring.DEFAULT_FOLDER
    _refuse_a_second_follower(folder, asked.run)
    meta, sizes = _meta(asked), _sizes(asked)
    formats = all_formats()
    steps = Steps(formats if asked.format == _AUTO else {asked.format: formats[asked.format]}, sizes)
    attempt = _environment.attempt(os.environ) if asked.attempt is None else asked.attempt

    def open_ring(of: Mapping[str, Any]) -> LoggedRing:
        _refuse_a_second_follower(folder, asked.run)  # that waited for the log's first step beside us
        _say_who_shares_the_work(asked, of, steps.world.gpus)
        return LoggedRing(folder, of)

    def first_attempt(file: str) -> int:
        return attempt if asked.attempt is not None else attempt_at(folder, asked.run, file, attempt)

    recorder = Recorder(meta, sizes, attempt, open_ring, lambda number: last_step(folder, asked.run, number))
    tail = Tail(asked.log, from_end=asked.from_end)
    say(f"following {asked.log} as run {asked.run}")
    try:
        _loop(asked, stop, Following(tail, steps, recorder, folder, first_attempt))
    finally:
        # Whoever ends the follower ends the run with it: its silence is no hang.
        recorder.close(well=True)
        tail.close()
    _say_what_was_missed(asked, tail, steps, recorder)


def _refuse_a_second_follower(folder: str, run: str) -> None:
    other = being_written(folder, run)
    if other is not None:
        raise UsageError(f"run {run} is followed already ({other}): one follower per run")


def _loop(asked: argparse.Namespace, stop: threading.Event, following: Following) -> None:
    arrived = time.monotonic()
    while True:
        ending = stop.is_set() or not _alive(asked.pid)
        more = following.read(arrived)
        if ending and not more:
            return
        if not (ending or following.behind):
            stop.wait(POLL_SECONDS)
            arrived = time.monotonic()


def _alive(pid: int | None) -> bool:
    if pid is None:
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's, and there
    return True


def _meta(asked: argparse.Namespace) -> Mapping[str, Any]:
    """The run's description, by the same hand as a rank's own; one rank that stands for all."""
    given: dict[str, Any] = dict.fromkeys(("uuid", "gpu", "stage", "replica"), "")
    given.update((name, getattr(asked, name)) for name in _PLAIN)
    given.update(
        rank=0,
        local_rank=0,
        world_size=asked.gpus or 0,
        attempt=None,
        tokens_per_step=None,
        first_step=0,
        warmup_steps=0,
    )
    given["flops_per_token"] = _flops_per_token(asked)
    return _environment.describe(given, 0)


def _flops_per_token(asked: argparse.Namespace) -> float | None:
    if asked.model_config is None or asked.flops_per_token is not None:
        return None if asked.flops_per_token is None else float(asked.flops_per_token)
    if asked.sequence_length is None:
        raise UsageError("--model-config needs --sequence-length: attention grows with it")
    try:
        shape = shape_of_config(read_config(asked.model_config))
    except ValueError as error:
        raise UsageError(f"{asked.model_config}: {error}") from None
    return model_flops(shape, asked.sequence_length, asked.convention)


def _say_who_shares_the_work(asked: argparse.Namespace, meta: Mapping[str, Any], logged: int) -> None:
    if not meta["world_size"] and meta["flops_per_token"] is not None:
        say("no line of the log says how many GPUs share the work, so there is no MFU: give --gpus")
    elif asked.gpus and logged and logged != asked.gpus:
        say(f"the log says {logged} GPUs, --gpus says {asked.gpus}: the latter counts")


def _sizes(asked: argparse.Namespace) -> Sizes:
    return Sizes(
        gpus=asked.gpus or 0,
        samples=asked.global_batch_size or 0,
        sequence=asked.sequence_length or 0,
        tokens=asked.tokens_per_step or 0,
    )


def _say_what_was_missed(asked: argparse.Namespace, tail: Tail, steps: Steps, recorder: Recorder) -> None:
    if steps.format is None:
        say(f"no line of {asked.log} was a training step of any known format: see --format")
    if recorder.untimed:
        say(f"{recorder.untimed} lines don't tell how long a step took: give --tokens-per-step and --gpus")
    if recorder.too_old:
        say(f"{recorder.too_old} lines were too old for Prometheus and were left out")
    if tail.dropped:
        say(f"{tail.dropped} bytes in overlong lines were not read")


def _stop_at_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
