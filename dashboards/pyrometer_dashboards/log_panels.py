"""Logs of nodes and trainers from a Loki, in a folded row: where Grafana has none, nobody asks for it.

Log lines need the labels ``cluster``, ``node`` and ``source``, which is ``kernel`` or ``trainer``; a trainer's also
``job_id``. docs/dashboards.md shows how they come there.
"""

from __future__ import annotations

from pyrometer_dashboards.common import CLUSTER, NODE_IS
from pyrometer_dashboards.model import Panel, Query, Reading, Row, Variable

_TITLE = "Logs, where Grafana has a Loki"
# The nodes of the chosen job, all of them at once.
NODES_OF_JOB = Variable(
    "nodes",
    "Its nodes",
    'label_values(gpu:pyrometer_gpu_job:member{cluster="$cluster", job_id="$job"}, node)',
    every=True,
    hidden=True,
)


def of_node() -> Row:
    """Return the logs of the board's node, in the board's time range."""
    return _row(f'{NODE_IS}, source="kernel"', f'{NODE_IS}, source="trainer"')


def of_job() -> Row:
    """Return the logs of the board's job and of its nodes; the board has the variable NODES_OF_JOB."""
    return _row(f'{CLUSTER}, node=~"$nodes", source="kernel"', f'{CLUSTER}, job_id="$job", source="trainer"')


def _row(kernel: str, trainer: str) -> Row:
    shown = (
        _logs(
            "Kernel's log",
            Reading(
                "The kernel's lines of the time range, the newest first.",
                "no line of NVRM, mlx5_core, Out of memory, or I/O error.",
                "Choose the minute of the event in a panel above: this one follows. Xids are explained in the manual.",
                "GpuXidCritical",
            ),
            kernel,
        ),
        _logs(
            "Trainer's log",
            Reading(
                "The lines of the training processes in the time range, the newest first.",
                "a line for each step.",
                "The first exception counts, on the rank that failed first; the others follow from it.",
                "TrainRunDied",
            ),
            trainer,
        ),
    )
    return Row(shown, height=12, title=_TITLE, collapsed=True)


def _logs(title: str, reading: Reading, which: str) -> Panel:
    return Panel(title, "logs", reading, [Query(f"{{{which}}}")], span=12, source="loki")
