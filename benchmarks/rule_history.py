"""The past that rules look back on, for a Prometheus that has just started: blocks made by promtool.

Only the families that a rule reads further back than a benchmark runs, each as far and as often as it would be there.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recorded_cluster import GPUS, targets

HOUR = 3600


@dataclass(frozen=True)
class Past:
    """So many seconds of the families whose name matches, a sample every ``step`` seconds.

    Where a rule records it, ``recorded`` is its name and ``labels`` what it keeps; then it has no target labels beyond.
    """

    families: str
    seconds: int
    step: int
    recorded: str = ""
    labels: tuple[str, ...] = ()


# Between the samples of an offset nobody looks: 4 minutes are within the lookback.
PAST = [
    Past("pyrometer_nic_symbol_error_total", 125 * 60, 15),
    Past("pyrometer_gpu_nvlinks_up", HOUR, 15),
    Past("pyrometer_train_rank_up", 2 * HOUR, 240),
    Past("pyrometer_train_step(?:s|_seconds|_part_seconds)_total", HOUR, 240),
    Past("pyrometer_gpu_up", 6 * HOUR, 60, "gpu:pyrometer_gpu:expected", ("gpu",)),
    Past(
        "pyrometer_nic_link_down_events_total",
        24 * HOUR,
        600,
        "port:pyrometer_nic_link_down_events:look",
        ("device", "port"),
    ),
]


def make_blocks(text: str, nodes: int, folder: Path, promtool: Path) -> int:
    """Blocks in ``folder`` of the past of all nodes, up to now; how many samples."""
    path, end, written = folder.with_name("past.om"), time.time(), 0
    with path.open("w") as file:
        for lines in _past(text, nodes, end):
            file.writelines(lines)
            written += len(lines)
        file.write("# EOF\n")
    command: list[str | Path] = [
        promtool,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "--max-block-duration=24h",
        path,
        folder,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    path.unlink()
    return written


def _past(text: str, nodes: int, end: float) -> Iterator[list[str]]:
    """Every series with its samples, in order of families, as OpenMetrics wants it."""
    for past in PAST:
        times = [f"{end - past.seconds + n * past.step:.3f}\n" for n in range(past.seconds // past.step)]
        found = re.findall(rf"^({past.families})\{{(.*)\}} (\S+)$", text, re.MULTILINE)
        for node, target in enumerate(targets(nodes)):
            for name, labels, value in found:
                series = f"{past.recorded or name}{{{_labels(past, labels, node, target)}}} {value} "
                yield [series + at for at in times]


def _labels(past: Past, labels: str, node: int, target: dict[str, str]) -> str:
    if past.recorded:
        kept = re.findall(rf'\b((?:{"|".join(past.labels)})="[^"]*")', labels)
        return ",".join([f'cluster="{target["cluster"]}",node="{target["node"]}"', *kept])
    own = ",".join(f'{name}="{value}"' for name, value in target.items())
    return f'{own},job="node",' + re.sub(r'\brank="(\d+)"', lambda rank: f'rank="{node * GPUS + int(rank[1])}"', labels)
