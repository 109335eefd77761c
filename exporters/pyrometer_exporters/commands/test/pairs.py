"""Launch a test on this node and a peer, through what starts programs on both: srun, mpirun, kubectl exec.

The launcher is the user's own, as in ``pyrometer-bisect --command``. It is asked twice more before the test, for the
peer's GPUs: nothing runs unless those of both nodes are idle.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyrometer_exporters.commands.test.parsers import RANK
from pyrometer_exporters.commands.test.reading import NotMeasuredError
from pyrometer_exporters.node.nic.parse import rate
from pyrometer_kit.errors import UsageError

LINKS, LINK_BITS = 8, 400_000_000_000
LEAST: Final = 46.0 * LINKS
"""GB/s of a pair of eight GPUs and eight links of 400 Gb/s each.

46 to 48 GB/s of each such link are to be expected with NCCL_ALGO=RING, by a developer of NCCL
(https://github.com/NVIDIA/nccl-tests/issues/290). Trees show more than the links carry, never less.
"""


def launched(command: str, hosts: Sequence[str], tasks: int, test: Sequence[str]) -> list[str]:
    """Return the words of the launcher with the test in them.

    ``{hosts}`` becomes the names with commas, ``{count}`` their number, ``{tasks}`` the processes on each, ``{slots}``
    the names as mpirun wants them (``a:8,b:8``), and ``{test}`` the program with its arguments.
    """
    values = {
        "{hosts}": ",".join(hosts), "{count}": str(len(hosts)), "{tasks}": str(tasks),
        "{slots}": ",".join(f"{host}:{tasks}" for host in hosts),
    }  # fmt: skip
    words: list[str] = []
    for word in shlex.split(command):
        for mark, value in values.items():
            word = word.replace(mark, value)  # noqa: PLW2901  one mark after the other
        words += test if word == "{test}" else [word.replace("{test}", shlex.join(test))]
    return words


def check_command(command: str) -> None:
    """Refuse a launcher that can't do.

    Raises:
        UsageError: It lacks the hosts or the test, or has a quote too many.
    """
    try:
        shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command: {str(error).lower()}") from None
    if "{test}" not in command:
        raise UsageError("--command: it has no {test}, which is replaced by the program and its arguments")
    if "{hosts}" not in command and "{slots}" not in command:
        raise UsageError(
            "--command: it has no {hosts} and no {slots}, which are replaced by the names of the two nodes"
        )


def check_ranks(text: str, gpus: int) -> None:
    """Refuse an output that is none of all GPUs of two nodes together: it says nothing about the link between them.

    Raises:
        NotMeasuredError: It isn't.
    """
    ranks = RANK.findall(text)
    if len({number for number, _ in ranks}) < len(ranks):
        raise NotMeasuredError(
            "its processes did not form one job; nccl-tests must be built with MPI=1 for this launcher"
        )
    on = Counter(host for _, host in ranks)
    if len(on) != 2 or set(on.values()) != {gpus}:
        seen = ", ".join(f"{count} on {host}" for host, count in sorted(on.items())) or "none"
        raise NotMeasuredError(f"{gpus} GPUs on each of two nodes are to take part: {seen}")


def least(gpus: int, links: Path) -> dict[str, float]:
    """Return the least bandwidth between this node and another one like it; nothing where its fabric is another one.

    ``links`` is ``/sys/class/infiniband``.
    """
    fast = sum(_is_fast(port) for port in links.glob("*/ports/*"))
    return {"nccl_all_reduce_pair": LEAST} if gpus == LINKS and fast >= LINKS else {}


def _is_fast(port: Path) -> bool:
    try:
        up = "ACTIVE" in (port / "state").read_text()
        return up and rate((port / "rate").read_text()) == LINK_BITS
    except OSError:
        return False
