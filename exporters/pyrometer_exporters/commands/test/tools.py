"""The tools that ``pyrometer-test`` can run, how, and how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyrometer_exporters.commands.test import dcgm, parsers
from pyrometer_exporters.commands.test.reading import Reading

# Documented durations of the levels (DCGM user guide, "DCGM Diagnostics": seconds, 2 min, 30 min, 1 to 2 h), doubled.
_DCGM_SECONDS: Final = {1: 60.0, 2: 600.0, 3: 3600.0, 4: 14400.0}


@dataclass(frozen=True)
class Asked:
    """Hold the choices that the commands depend on."""

    gpus: int
    level: int
    burn_seconds: int
    peer: str
    device: str
    directory: str
    host: str = ""
    command: str = ""


@dataclass(frozen=True)
class Tool:
    """One test.

    Attributes:
        name: as in ``--run`` and in the label ``test``.
        programs: names of its program; the first that is installed is run.
        words: the arguments behind it; None where a choice is missing.
        read: reads its output.
        seconds: after so long it hangs.
        needs: the flags without which it can't run.
        gpus: whether it needs idle GPUs.
        folder: whether it writes into ``Asked.directory``.
        peer: whether it is of two nodes.
        launched: whether ``Asked.command`` starts it on both.
        log: whether NCCL's own log is read, too.
    """

    name: str
    programs: tuple[str, ...]
    words: Callable[[Asked], list[str]]
    read: Callable[[str], Reading]
    seconds: Callable[[Asked], float]
    needs: tuple[str, ...] = ()
    gpus: bool = True
    folder: bool = False
    peer: bool = False
    launched: bool = False
    log: bool = False


_CASES = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce")

TOOLS: Final[tuple[Tool, ...]] = (
    Tool("dcgm", ("dcgmi",), lambda asked: ["diag", "-r", str(asked.level), "-j"], dcgm.read,
         lambda asked: _DCGM_SECONDS[asked.level]),
    Tool("nvbandwidth", ("nvbandwidth",), lambda _: ["-t", *_CASES], parsers.nvbandwidth, lambda _: 600.0),
    Tool("nccl", ("all_reduce_perf",), lambda asked: ["-b", "1G", "-e", "8G", "-f", "2", "-g", str(asked.gpus)],
         parsers.nccl, lambda _: 600.0, log=True),
    Tool("nccl_pair", ("all_reduce_perf_mpi", "all_reduce_perf"),
         lambda _: ["-b", "1G", "-e", "8G", "-f", "2", "-g", "1"], parsers.nccl_pair, lambda _: 900.0,
         needs=("peer", "command"), peer=True, launched=True),
    Tool("burn", ("gpu-fryer", "gpu_burn"), lambda asked: [str(asked.burn_seconds)], parsers.burn,
         lambda asked: asked.burn_seconds + 300.0),
    Tool("ib", ("ib_write_bw",), lambda asked: ["--report_gbits", "-F", "-D", "10",
         *(["-d", asked.device] if asked.device else []), asked.peer], parsers.ib_write_bw, lambda _: 60.0,
         needs=("peer",), gpus=False, peer=True),
    Tool("fio", ("fio",), lambda asked: [
        "--name=pyrometer", f"--directory={asked.directory}", "--rw=rw", "--bs=1M", "--size=4G", "--direct=1",
        "--ioengine=psync", "--numjobs=4", "--group_reporting", "--runtime=60", "--unlink=1", "--output-format=json",
        ], parsers.fio, lambda _: 300.0, needs=("directory",), gpus=False, folder=True),
)  # fmt: skip
