"""``pyrometer.start``: from settings to a run that records into a ring, without ever raising into the job."""

from __future__ import annotations

import os
import sys
import time
import weakref

from pyrometer import _environment, ring
from pyrometer._children import imports_script_again, parent_process
from pyrometer._ranks import move, process_group
from pyrometer._ring_file import GroupError, create_ring, default_folder, remove_stale_rings, safe_name
from pyrometer._run import Run
from pyrometer._settings import StartSettings, describe
from pyrometer._shutdown import close_at_exit
from pyrometer._step import scratch_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Mapping
    from inspect import Signature
    from typing import Any, ParamSpec

    from typing_extensions import Unpack

    from pyrometer._settings import RunSettings

    P = ParamSpec("P")
    Extra = Callable[[Run, RunSettings, dict[str, Any]], None]


def forgive_arguments(function: Callable[P, Run]) -> Callable[P, Run]:
    """Have a setting that does not exist reported and ignored, and an argument that is missing be None.

    A typing error must not cost a job its start. The signature, and with it every type checker, still refuses it.
    """
    code = function.__code__
    positional = code.co_argcount
    required = positional - len(function.__defaults__ or ())
    names = {*code.co_varnames[: positional + code.co_kwonlyargcount], *StartSettings.__annotations__}

    def lenient(*arguments: P.args, **settings: P.kwargs) -> Run:
        given, more = arguments[:positional], arguments[positional:]
        for name in code.co_varnames[: len(given)]:
            settings.pop(name, None)  # given twice
        missing = [name for name in code.co_varnames[len(given) : required] if name not in settings]
        settings.update(dict.fromkeys(missing))
        unknown = sorted(settings.keys() - names)
        for name in unknown:
            del settings[name]
        run = function(*given, **settings)  # type: ignore[arg-type]  # no more than it takes
        local_rank = settings.get("local_rank")
        if missing:
            _warn(local_rank, "nothing to report: {0} not given", ", ".join(missing))
        if more:
            _warn(local_rank, "settings must be passed by keyword; ignored: {0!r}", more)
        if unknown:
            _warn(local_rank, "unknown settings ignored: {0}", ", ".join(unknown))
        return run

    # By hand: importing functools would be the slowest part of `import pyrometer`.
    lenient.__name__, lenient.__qualname__, lenient.__doc__ = function.__name__, function.__qualname__, function.__doc__
    lenient.__wrapped__ = _Signature(function)  # type: ignore[attr-defined]  # help() and inspect.signature follow it
    return lenient


class _Signature:
    """A function's signature with the settings by their names, made for those who ask: inspect is slow to import."""

    def __init__(self, function: Callable[..., Run]) -> None:
        self.__wrapped__ = function

    @property
    def __signature__(self) -> Signature:
        import inspect  # noqa: PLC0415  as above

        signature = inspect.signature(self.__wrapped__)
        *own, _settings = signature.parameters.values()
        settings = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in StartSettings.__annotations__.items()
        ]
        return signature.replace(parameters=[*own, *settings])


@forgive_arguments
def start(run: str | None = None, **settings: Unpack[StartSettings]) -> Run:
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
        job_id: What all ranks of this job share, and no other job has; by default the scheduler's id of the job.
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
    given: RunSettings = {"run": run, **settings}
    try:
        return _start(given)
    except Exception as error:  # noqa: BLE001  the promise of this module
        disabled = Run(scratch_memory(), {})
        disabled.disabled = type(error).__name__
        name = "" if run is None else run
        _warn(given.get("local_rank"), "not recording run {0!r}: {1}: {2}", name, disabled.disabled, error)
        return disabled


def _start(settings: RunSettings) -> Run:
    lines: list[str] = []
    description = describe(settings, lines)
    if _is_known_to_train(settings):
        mapping, fd, path = _create_ring(_folder(settings), settings, description)
        try:
            run = Run(memoryview(mapping), description, fd, path)
        except BaseException:
            os.close(fd)
            os.unlink(path)
            raise
        _add_all(run, settings, description, lines)
    else:
        run = Run(scratch_memory(), description)
        run.observe(_open_at_first_step(run, settings))
    return run


def _is_known_to_train(settings: RunSettings) -> bool:
    """Return False for a child of multiprocessing that may be a helper, or a rank that has no number yet.

    A child that calls ``start`` itself is a rank. Only its process group says which one: its environment is that
    of the process that started it.
    """
    if imports_script_again():
        return False
    told = settings.get("rank") is not None or process_group() is not None or "torch.distributed" not in sys.modules
    return told or not parent_process()


def _open_at_first_step(run: Run, settings: RunSettings) -> Callable[[], bool]:
    reference = weakref.ref(run)

    def open_ring() -> bool:
        run = reference()
        if run is None or run.disabled is not None:
            return False
        lines: list[str] = []
        description = describe(settings, lines)
        try:
            mapping, fd, path = _create_ring(_folder(settings), settings, description)
            move(run, memoryview(mapping), fd, path)
            run.identify(path, description)
            _add_all(run, settings, description, lines)
        except Exception as error:  # noqa: BLE001  the promise of this module
            run.disabled = type(error).__name__
            _sayer(description)(f"not recorded: {run.disabled}: {error}")
        return False

    return open_ring


def _add_all(run: Run, settings: RunSettings, description: dict[str, Any], lines: list[str]) -> None:
    """Complete a run that has a ring, and say what of its settings can't be used."""
    say = _sayer(description)
    if close_at_exit(run):
        name = description["run"]
        _warn(description["local_rank"], "run {0} starts again in this process: the earlier one is closed", name)
    for line in lines:
        say(line)
    for extra in _EXTRAS:
        _add(extra, run, settings, description)
    try:
        remove_stale_rings(os.path.dirname(run.path))
    except OSError:
        pass  # another rank does it at the same time


def _folder(settings: RunSettings) -> str:
    return str(settings.get("rings") or os.environ.get("PYROMETER_RINGS") or default_folder())


def _create_ring(folder: str, settings: RunSettings, description: dict[str, Any]) -> tuple[mmap.mmap, int, str]:
    name = f"{safe_name(str(description['run']))}.{description['rank']}.{os.getpid()}.{time.monotonic_ns()}"
    group = settings.get("group")
    group = os.environ.get("PYROMETER_GROUP", "") if group is None else group
    packed = _packed(description)
    try:
        return create_ring(folder, name, packed, str(group))
    except GroupError as error:
        _sayer(description)(f"{error}: nobody but you and root can read it")
    except OSError:
        raise
    except Exception:  # noqa: BLE001  a group that can't be printed
        _sayer(description)("group is ignored: nobody but you and root can read the ring")
    return create_ring(folder, name, packed, None)


def _packed(description: dict[str, Any]) -> bytes:
    """Return the description as the ring's JSON, with texts cut where it would be too long."""
    import json  # noqa: PLC0415  would add to what `import pyrometer` costs

    packed = b""
    for most in (ring.MOST_TEXT, 64, 16, 4):
        cut = {name: value[:most] if isinstance(value, str) else value for name, value in description.items()}
        packed = json.dumps(cut).encode()
        if len(packed) <= ring.META_BYTES:
            break
    return packed


def _enable_stack_dumps(run: Run, settings: RunSettings, _description: dict[str, Any]) -> None:
    stacks = settings.get("stacks")
    if stacks is None:
        stacks = os.environ.get("PYROMETER_STACKS") == "1"
    if stacks:
        run.dump_stacks(stacks)


def _detect_waits(run: Run, _settings: RunSettings, description: dict[str, Any]) -> None:
    def unknown() -> None:
        _sayer(description)(
            "PyTorch shows no rank waiting for another here, so a slow one can't be named; put "
            'run.part("wait") around the collectives, or run NCCL\'s Inspector: docs/training.md, Waits'
        )

    # A run of one rank waits for nobody.
    if description["world_size"] > 1 and os.environ.get("PYROMETER_WAITS") != "0":
        run.detect_waits(unknown)


def _time_on_device(run: Run, _settings: RunSettings, description: dict[str, Any]) -> None:
    if description["reporting"]:  # the times of the others are served as sums, which are right as they are
        run.time_on_device(enabled=os.environ.get("PYROMETER_DEVICE_TIMES") != "0")


def _link(run: Run, settings: RunSettings, description: dict[str, Any]) -> None:
    links = settings.get("links")
    if links is None:
        return  # detected at the first steps, when the trackers are open
    from pyrometer._links import packed  # noqa: PLC0415  needed by few

    text, dropped = packed(links)
    run.write_text(ring.LINKS_SLOT, ring.LINKS_BYTES, text)
    if dropped:
        _warn(
            description["local_rank"],
            "no links to {0}: an address is http or https, names consist of letters and digits, and all "
            "links together have at most {1} bytes",
            ", ".join(dropped),
            ring.LINKS_BYTES,
        )


def _observe_first_steps(run: Run, settings: RunSettings, description: dict[str, Any]) -> None:
    from pyrometer._first_steps import observer  # noqa: PLC0415  would add to what `import pyrometer` costs

    say = _sayer(description)

    def announce(line: str) -> None:
        _write("run {0}: {1}", description["run"], line)

    run.say_through(say)
    detects_links = description["reporting"] and settings.get("links") is None
    run.observe(observer(run, description, say, announce, links=detects_links))


def _correct_ranks(run: Run, settings: RunSettings, description: dict[str, Any]) -> None:
    """Ask at the first step again who this rank is, and go on in a ring that says so if a process group was made."""
    reference = weakref.ref(run)

    def correct() -> bool:
        run = reference()
        try:
            now = describe(settings)
            if run is None or run.disabled is not None or now["rank"] == now["world_size"] - 1 == 0:
                return False
            if (now["rank"], now["world_size"]) != (description["rank"], description["world_size"]):
                mapping, fd, path = _create_ring(os.path.dirname(run.path), settings, now)
                move(run, memoryview(mapping), fd, path)
                _add(_detect_waits, run, settings, now)
        except Exception as error:  # noqa: BLE001  the promise of this module
            _sayer(description)(f"rank and number of ranks are not known: {error}")
        return False

    run.observe(correct)


# The line about each where it fails: {0} is the error, {1} its kind.
_EXTRAS: dict[Extra, str] = {
    _enable_stack_dumps: "no stack dumps: {0}",
    _detect_waits: "no waits: {0}",
    _time_on_device: "",
    _link: 'no links: give {{"wandb": address}}: {1}',
    _observe_first_steps: "",
    _correct_ranks: "",
}


def _add(extra: Extra, run: Run, settings: RunSettings, description: dict[str, Any]) -> None:
    try:
        extra(run, settings, description)
    except Exception as error:  # noqa: BLE001  the promise of this module
        if _EXTRAS[extra]:
            _warn(description["local_rank"], _EXTRAS[extra], error, type(error).__name__)


def _sayer(description: Mapping[str, Any]) -> Callable[[str], None]:
    """Return what writes one line about the run, from one rank of a node."""
    return lambda line: _warn(description["local_rank"], "run {0}: {1}", description["run"], line)


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
