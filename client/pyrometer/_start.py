"""``pyrometer.start``: from settings to a run that records into a ring, without ever raising into the job."""

from __future__ import annotations

import os
import sys
import time
import weakref

from pyrometer import _environment, ring
from pyrometer._ranks import move
from pyrometer._ring_file import create_ring, default_folder, remove_stale_rings, safe_name
from pyrometer._run import Run
from pyrometer._settings import WARMUP_STEPS, Settings, describe, slips
from pyrometer._shutdown import close_at_exit
from pyrometer._step import scratch_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Mapping
    from typing import Any, ParamSpec

    P = ParamSpec("P")

_VARIABLE_SETTINGS = 0x08  # inspect.CO_VARKEYWORDS


def forgive_arguments(function: Callable[P, Run]) -> Callable[P, Run]:
    """Have a setting that ``function`` lacks reported and ignored, and one that is missing be None.

    A typing error must not cost a job its start.

    The signature, and with it every type checker, still refuses it.
    """
    code = function.__code__
    positional = code.co_argcount
    required = positional - len(function.__defaults__ or ())
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    takes_any = code.co_flags & _VARIABLE_SETTINGS

    def lenient(*arguments: P.args, **settings: P.kwargs) -> Run:
        given, more = arguments[:positional], arguments[positional:]
        for name in code.co_varnames[: len(given)]:
            settings.pop(name, None)  # given twice
        missing = [name for name in code.co_varnames[len(given) : required] if name not in settings]
        settings.update(dict.fromkeys(missing))
        unknown = [name for name in settings if name not in known and not takes_any]
        for name in unknown:
            del settings[name]
        run = function(*given, **settings)  # type: ignore[arg-type]  # no more than it takes
        if missing:
            _warn(settings.get("local_rank"), "nothing to report: {0} not given", ", ".join(missing))
        if more:
            _warn(settings.get("local_rank"), "settings must be passed by keyword; ignored: {0!r}", more)
        if unknown:
            _warn(settings.get("local_rank"), "unknown settings ignored: {0}", ", ".join(sorted(unknown)))
        return run

    # By hand: importing functools would be the slowest part of `import pyrometer`.
    lenient.__name__, lenient.__qualname__, lenient.__doc__ = function.__name__, function.__qualname__, function.__doc__
    lenient.__wrapped__ = function  # type: ignore[attr-defined]  # help() and inspect.signature follow it
    return lenient


@forgive_arguments
def start(
    run: str | None = None,
    *,
    flops_per_token: float | None = None,
    tokens_per_step: int | None = None,
    peak_flops: float | None = None,
    expected_mfu: float | None = None,
    model: str = "",
    convention: str = "",
    dtype: str = "",
    gpu_model: str | None = None,
    rank: int | None = None,
    local_rank: int | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    stage: str = "",
    replica: str = "",
    reporting_rank: int = 0,
    global_batch_size: int | None = None,
    micro_batch_size: int | None = None,
    sequence_length: int | None = None,
    recompute: str = "",
    job_id: str | None = None,
    gpu: str | None = None,
    uuid: str | None = None,
    first_step: int = 0,
    warmup_steps: int = WARMUP_STEPS,
    rings: str | None = None,
    group: str | None = None,
    stacks: object = None,
    links: Mapping[str, str] | None = None,
) -> Run:
    """Start reporting; call once per rank, before the loop.

    Never raises: on failure, one rank of the node prints one line and the returned run is disabled. A setting that does
    not exist is reported the same way and ignored.

    Args:
        run: Name of the run, the same over restarts; by default $PYROMETER_RUN, or that of the job in Slurm or
            Kubernetes, or of the script.
        flops_per_token: Model FLOPs per token, forward and backward.
        tokens_per_step: Tokens of the whole global batch.
        peak_flops: Peak dense FLOP/s of one GPU; needed only where the exporter does not know the GPU by its name.
        expected_mfu: MFU that this configuration reaches, 0 to 1; learned from earlier runs if not given.
        model: Name of the model.
        convention: How ``flops_per_token`` was counted: palm, llm_foundry, korthikanti, megatron, bloom_hw or hf.
        dtype: bf16, fp16, fp8, ...
        gpu_model: Name of the GPU; by default torch's, if it is loaded and has initialised CUDA.
        rank: Global rank; this and ``local_rank``, ``world_size``, ``attempt`` and ``job_id`` default to what the
            launcher sets in the environment.
        local_rank: Rank within the node.
        world_size: Number of GPUs that share the FLOPs of a step.
        attempt: How often the run has been restarted.
        stage: Pipeline stage.
        replica: Data-parallel replica.
        reporting_rank: The rank whose batches are served, the same number on all ranks.
        global_batch_size: In sequences; together with the next three it identifies a configuration.
        micro_batch_size: In sequences.
        sequence_length: In tokens.
        recompute: none, selective or full.
        job_id: The scheduler's id of the job.
        gpu: Index of this rank's GPU; by default from CUDA_VISIBLE_DEVICES, or the local rank.
        uuid: UUID of this rank's GPU.
        first_step: Number of the first step, after a restart from a checkpoint.
        warmup_steps: How many of the first steps never alert.
        rings: Folder of the rings; by default $PYROMETER_RINGS, or /dev/shm/pyrometer where root has made that for all,
            or /dev/shm/pyrometer-<uid>.
        group: Name or number of the only group that may read the ring; by default $PYROMETER_GROUP, or everybody on the
            node.
        stacks: True to have the exporter request this rank's stacks when the run hangs, with SIGUSR2; a signal's number
            for another signal; by default on with PYROMETER_STACKS=1. The job must not use that signal itself.
        links: Pages of the run elsewhere, such as ``{"wandb": url}``: http or https, without query; by default those
            of W&B's and MLflow's open runs, where they are loaded.

    Returns:
        The run; its ``disabled`` is None while records are written, else the reason.
    """
    settings = Settings(
        run, flops_per_token=flops_per_token, tokens_per_step=tokens_per_step, peak_flops=peak_flops,
        expected_mfu=expected_mfu, model=model, convention=convention, dtype=dtype, gpu_model=gpu_model, rank=rank,
        local_rank=local_rank, world_size=world_size, attempt=attempt, stage=stage, replica=replica,
        reporting_rank=reporting_rank,
        global_batch_size=global_batch_size, micro_batch_size=micro_batch_size, sequence_length=sequence_length,
        recompute=recompute, job_id=job_id, gpu=gpu, uuid=uuid, first_step=first_step, warmup_steps=warmup_steps,
        rings=rings, group=group, stacks=stacks, links=links,
    )  # fmt: skip
    try:
        return _start(settings)
    except Exception as error:  # noqa: BLE001  the promise of this module
        disabled = Run(scratch_memory(), {})
        disabled.disabled = type(error).__name__
        _warn(
            settings.local_rank,
            "not recording run {0!r}: {1}: {2}",
            "" if run is None else run,
            disabled.disabled,
            error,
        )
        return disabled


def _start(settings: Settings) -> Run:
    description = describe(settings)
    folder = str(settings.rings or os.environ.get("PYROMETER_RINGS") or default_folder())
    mapping, fd, path = _create_ring(folder, settings, description)
    try:
        run = Run(memoryview(mapping), description, fd, path)
    except BaseException:
        os.close(fd)
        os.unlink(path)
        raise
    if close_at_exit(run):
        _warn(
            description["local_rank"],
            "run {0} starts again in this process: the earlier one is closed",
            description["run"],
        )
    for line in slips(settings, description):
        _warn(description["local_rank"], "run {0}: {1}", description["run"], line)
    _enable_stack_dumps(run, settings)
    _detect_waits(run, settings, description)
    _time_on_device(run, description)
    _link(run, settings, description)
    _observe_first_steps(run, settings, description)
    _correct_ranks(run, settings, description)
    try:
        remove_stale_rings(folder)
    except OSError:
        pass  # another rank does it at the same time
    return run


def _create_ring(folder: str, settings: Settings, description: dict[str, Any]) -> tuple[mmap.mmap, int, str]:
    import json  # noqa: PLC0415  would add to what `import pyrometer` costs

    name = f"{safe_name(str(description['run']))}.{description['rank']}.{os.getpid()}.{time.monotonic_ns()}"
    return create_ring(folder, name, json.dumps(description).encode(), _group(settings))


def _correct_ranks(run: Run, settings: Settings, description: dict[str, Any]) -> None:
    """Ask at the first step again who this rank is, and go on in a ring that says so if a process group was made."""
    found = weakref.ref(run)

    def correct() -> bool:
        run = found()
        try:
            now = describe(settings)
            if run is None or run.disabled is not None or now["rank"] == now["world_size"] - 1 == 0:
                return False
            if (now["rank"], now["world_size"]) != (description["rank"], description["world_size"]):
                mapping, fd, path = _create_ring(os.path.dirname(run.path), settings, now)
                move(run, memoryview(mapping), fd, path)
                _detect_waits(run, settings, now)
        except Exception as error:  # noqa: BLE001  the promise of this module
            _warn(settings.local_rank, "run {0}: rank and number of ranks are not known: {1}", settings.run, error)
        return False

    run.observe(correct)


def _enable_stack_dumps(run: Run, settings: Settings) -> None:
    stacks = settings.stacks
    try:
        if stacks is None:
            stacks = os.environ.get("PYROMETER_STACKS") == "1"
        if stacks:
            run.dump_stacks(stacks)
    except Exception as error:  # noqa: BLE001  the promise of this module
        _warn(settings.local_rank, "no stack dumps: {0}", error)


def _group(settings: Settings) -> str:
    return str(os.environ.get("PYROMETER_GROUP", "") if settings.group is None else settings.group)


def _observe_first_steps(run: Run, settings: Settings, description: dict[str, Any]) -> None:
    from pyrometer._first_steps import observer  # noqa: PLC0415  would add to what `import pyrometer` costs

    def say(line: str) -> None:
        _warn(description["local_rank"], "run {0}: {1}", description["run"], line)

    def announce(line: str) -> None:
        _write("run {0}: {1}", description["run"], line)

    run.say_through(say)
    detects_links = description["reporting"] and settings.links is None
    try:
        run.observe(observer(run, description, say, announce, links=detects_links))
    except Exception:  # noqa: BLE001  the promise of this module
        pass


def _link(run: Run, settings: Settings, description: dict[str, Any]) -> None:
    if settings.links is None:
        return  # detected at the first steps, when the trackers are open
    try:
        from pyrometer._links import packed  # noqa: PLC0415  needed by few

        text, dropped = packed(settings.links)
        run.write_text(ring.LINKS_SLOT, ring.LINKS_BYTES, text)
        if dropped:
            _warn(
                description["local_rank"],
                "no links to {0}: an address is http or https, names consist of letters and digits, and all "
                "links together have at most {1} bytes",
                ", ".join(dropped),
                ring.LINKS_BYTES,
            )
    except Exception as error:  # noqa: BLE001  the promise of this module
        _warn(description["local_rank"], 'no links: give {{"wandb": address}}: {0}', type(error).__name__)


def _time_on_device(run: Run, description: dict[str, Any]) -> None:
    try:
        if description["reporting"]:  # the times of the others are served as sums, which are right as they are
            run.time_on_device(enabled=os.environ.get("PYROMETER_DEVICE_TIMES") != "0")
    except Exception:  # noqa: BLE001  the promise of this module
        pass


def _detect_waits(run: Run, settings: Settings, description: dict[str, Any]) -> None:
    def unknown() -> None:
        _warn(
            settings.local_rank,
            "run {0}: PyTorch shows no rank waiting for another here, so a slow one can't be named; put "
            'run.part("wait") around the collectives, or run NCCL\'s Inspector: docs/training.md, Waits',
            description["run"],
        )

    try:
        # A run of one rank waits for nobody.
        if description["world_size"] > 1 and os.environ.get("PYROMETER_WAITS") != "0":
            run.detect_waits(unknown)
    except Exception as error:  # noqa: BLE001  the promise of this module
        _warn(settings.local_rank, "no waits: {0}", error)


def _warn(local_rank: object, template: str, *values: object) -> None:
    """Write one line to standard error, from one rank of a node."""
    try:
        silent = bool(local_rank) or _environment.local_rank(os.environ) != 0
    except Exception:  # noqa: BLE001  a value without a truth
        return
    if not silent:
        _write(template, *values)


def _write(template: str, *values: object) -> None:
    try:
        sys.stderr.write(f"pyrometer: {template.format(*values)}\n")
    except Exception:  # noqa: BLE001  a closed or replaced stderr, a run's name that can't be printed
        pass
