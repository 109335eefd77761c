"""The collector ``maintenance``: whether somebody has taken this node out of service with a file on it.

``echo "new riser" > /var/lib/pyrometer/maintenance`` before the work, ``rm`` after it: meanwhile no rule pages for the
node.
A sample line: ``pyrometer_node_maintenance{source="file"} 1``. The rules join it with Slurm and Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Family, Sample
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_kit.clock import FileAge
from pyrometer_kit.flags import number_between

MAINTENANCE = Family(
    "pyrometer_node_maintenance",
    "gauge",
    "1 while the node is in maintenance according to this source, else 0: no rule pages for it. "
    "--collector.maintenance.file.",
    ("source",),
)
FILE_FLAG, LIMIT_FLAG = "collector.maintenance.file", "collector.maintenance.limit"
NAME = "maintenance"
# A file that was forgotten must not silence a node for ever.
DEFAULT_LIMIT_SECONDS = 86400.0


class MaintenanceCollector:
    """Looks for the file at every scrape."""

    def __init__(self, context: Context) -> None:
        given: Path | None = getattr(context.flags, FILE_FLAG)
        self._path = given or (context.state / NAME if context.state else None)
        self._limit: float = getattr(context.flags, LIMIT_FLAG)
        self._age = FileAge(context.clock)

    def collect(self, until: float) -> Iterable[Sample | Down]:  # noqa: ARG002  one look
        """Yield the sample; see :class:`~pyrometer_exporters.framework.collector.Collector`."""
        if self._path is None:
            return
        try:
            age = self._age.of(self._path.stat().st_mtime)
        except FileNotFoundError:
            age = math.inf
        except OSError as error:
            yield Down("file", reason_of(error), str(error))
            return
        yield MAINTENANCE.sample(age < self._limit, "file")

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _add_flags(group: FlagGroup) -> None:
    group.add_argument(
        f"--{FILE_FLAG}", dest=FILE_FLAG, type=Path, metavar="FILE",
        help="while this file exists, the node is in maintenance and no rule pages for it (default: maintenance in "
        "--path.state)",
    )  # fmt: skip
    group.add_argument(
        f"--{LIMIT_FLAG}", dest=LIMIT_FLAG, default=DEFAULT_LIMIT_SECONDS, metavar="SECONDS",
        type=number_between(0, 1e9, "a number of seconds"),
        help="ignore the file this long after it was last touched (default: %(default).0f)",
    )  # fmt: skip


COLLECTOR = CollectorSpec(
    name=NAME,
    help="whether the node is in maintenance, marked by a file on it",
    families=(MAINTENANCE,),
    build=MaintenanceCollector,
    add_flags=_add_flags,
)
