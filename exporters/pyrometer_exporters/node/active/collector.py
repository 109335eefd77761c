"""The collector ``active``: the latest results of ``pyrometer-test``, from the state folder.

Sample lines: ``pyrometer_active_test_ok{test="nccl"} 1`` and
``pyrometer_active_test_result{test="nccl_all_reduce",unit="GB/s"} 470.73``. No test is started here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyrometer_exporters.framework.collector import CollectorSpec, Context
from pyrometer_exporters.framework.metrics import Down, Families, Sample
from pyrometer_exporters.framework.outcome import reason_of
from pyrometer_exporters.node.active import kept

# fmt: off
_ROWS = Families("test")
OK = _ROWS.gauge("pyrometer_active_test_ok",
    "1 if the active test passed when it last ran, 0 if it failed and has not passed since; absent where it gave no "
    "verdict. docs/active-tests.md.", "peer")
RESULT = _ROWS.gauge("pyrometer_active_test_result",
    "The latest measured value of an active test, in the unit of its label: the slowest GPU or link of this node.",
    "unit", "peer")
LAST_RUN = _ROWS.gauge("pyrometer_active_test_timestamp_seconds",
    "When the active test last passed or failed, in s since the epoch; while it has done neither, when it was first "
    "run.", "peer")
REASON = _ROWS.gauge("pyrometer_active_test_reason_info",
    "1; why the active test did not pass, in the words of its tool, and the part that it named. state: failed, "
    "not_measured (its answer covers nothing or not all), unknown (it could not be run); absent where it passed.",
    "peer", "state", "tool", "part", "reason")
# fmt: on


MOST_REASON_CHARACTERS: Final = 300


class ActiveCollector:
    """Reads the file of ``pyrometer-test`` again when it has been replaced."""

    def __init__(self, context: Context) -> None:
        self._state = context.state
        self._stamp: tuple[int, ...] | None = None
        self._items: list[Sample | Down] = []

    def collect(self, until: float) -> Iterable[Sample | Down]:  # noqa: ARG002  one short file
        """Yield the latest results; see :class:`~pyrometer_exporters.framework.collector.Collector`."""
        try:
            stamp = self._file_stamp()
            if stamp != self._stamp:
                self._stamp, self._items = stamp, list(self._read())
        except PermissionError as error:
            yield _down(error)
            return
        yield from self._items

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _file_stamp(self) -> tuple[int, ...] | None:
        if self._state is None:
            return None
        try:
            stat = (self._state / kept.FILE).stat()
        except PermissionError:
            raise
        except OSError:
            return None
        return stat.st_ctime_ns, stat.st_ino  # the time of a chmod too

    def _read(self) -> Iterable[Sample | Down]:
        values = {}
        try:
            runs = kept.load(self._state)
        except PermissionError as error:
            yield _down(error)
            return
        for (name, peer), tried in runs.items():
            verdict = tried.verdict
            if verdict is not None and kept.FAILED in (tried.state, verdict.state):
                yield OK.sample(0, name, peer)
            elif tried.state == kept.OK:
                yield OK.sample(1, name, peer)
            yield LAST_RUN.sample((verdict or tried.before or tried).at, name, peer)
            reasons = {run.state: run for run in (verdict, tried) if run is not None and run.state != kept.OK}
            for state, run in reasons.items():
                yield REASON.sample(1, name, peer, state, run.tool, run.part, _label(run.reason))
            values.update({(result.test, result.unit, peer): result.value for result in (verdict or tried).results})
        for labels, value in values.items():
            yield RESULT.sample(value, *labels)


def _label(text: str) -> str:
    return " ".join(text.split())[:MOST_REASON_CHARACTERS]


def _down(error: OSError) -> Down:
    return Down("file", reason_of(error), str(error))


COLLECTOR = CollectorSpec(
    name="active",
    help="the latest results of pyrometer-test",
    families=tuple(_ROWS),
    build=ActiveCollector,
)
