"""A delivery costs in proportion to its alerts, whatever they are about: work is counted, as times vary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from alerting_fakes import START, FakeClock, body, raw_alert

from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.messages import ThreadReplies
from pyrometer_alerting.incidents.alertmanager_payload import Delivery, parse
from pyrometer_alerting.incidents.intake import Intake
from pyrometer_alerting.incidents.lifecycle import REOPEN_SECONDS
from pyrometer_alerting.incidents.metrics import Metrics
from pyrometer_alerting.incidents.storage.store import Store

FEW, TIMES = 40, 8
STEPS = 20  # instructions of SQLite's machine from one call of the handler to the next
DAY = 86400.0
# When alerts of a delivery begin, and when they end; a day later they are other incidents than those of before.
DELIVERIES = (
    (0.0, None),
    (0.0, 100.0),
    (200.0, None),
    (200.0, 300.0),
    (300.0 + 2 * REOPEN_SECONDS, None),
    (DAY, None),
)

Labels = dict[str, str]
SHAPES: dict[str, Callable[[int], tuple[str, Labels]]] = {
    "nodes": lambda i: ("GpuLost", {"node": f"n{i}"}),
    "clusters": lambda i: ("GpuLost", {"node": f"n{i}", "cluster": f"c{i}"}),
    "a run in each cluster": lambda i: ("TrainMfuDropped", {"run": f"r{i}", "component": "train", "cluster": f"c{i}"}),
    "runs": lambda i: ("TrainMfuDropped", {"run": f"r{i}", "component": "train"}),
    "ranks of a run": lambda i: ("TrainStraggler", {"run": "r", "component": "train", "rank": str(i)}),
    "rules about a run": lambda i: (f"Odd{i}", {"run": "r"}),
    "rules about a node": lambda i: (f"Odd{i}", {"node": "n"}),
    "ports of switches": lambda i: ("NicLinkDown", {"node": f"n{i}", "device": "mlx5_0", "switch": f"s{i // 4}"}),
    "no part at all": lambda i: ("Odd", {"number": str(i)}),
}


class Work:
    """Counts calls of Python functions, and instructions of SQLite by the STEPS."""

    def __init__(self) -> None:
        self.calls = self.instructions = 0

    def called(self, _frame: FrameType, event: str, _: object) -> None:
        self.calls += event == "call"

    def ran(self) -> int:
        self.instructions += 1
        return 0


@contextmanager
def counted(store: Store) -> Iterator[Work]:
    work, before = Work(), sys.getprofile()
    store._database.writer.set_progress_handler(work.ran, STEPS)
    sys.setprofile(work.called)
    try:
        yield work
    finally:
        sys.setprofile(before)
        store._database.writer.set_progress_handler(None, 0)


def delivery(shape: Callable[[int], tuple[str, Labels]], count: int, begins: float, ends: float | None) -> Delivery:
    alerts = []
    for name, labels in map(shape, range(count)):
        at = START + begins, None if ends is None else START + ends
        alerts.append(raw_alert(name, starts_at=at[0], ends_at=at[1], firing=ends is None, **labels))
    return parse(body(*alerts))


def work_of(shape: Callable[[int], tuple[str, Labels]], count: int, folder: Path) -> list[Work]:
    store = Store(folder)
    try:
        intake = Intake(store, replies=ThreadReplies(Style()), clock=FakeClock(), metrics=Metrics(), diagnoses=True)
        found = []
        for begins, ends in DELIVERIES:
            made = delivery(shape, count, begins, ends)
            with counted(store) as work:
                intake.apply(made, START + (begins if ends is None else ends) + 1)
            found.append(work)
        return found
    finally:
        store.close()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda name: name.replace(" ", "_"))
def test_eight_times_the_alerts_cost_eight_times_as_much(shape: str, tmp_path: Path) -> None:
    few, many = (work_of(SHAPES[shape], count, tmp_path / str(count)) for count in (FEW, FEW * TIMES))
    for number, (less, more) in enumerate(zip(few, many, strict=True)):
        assert more.calls <= 1.5 * TIMES * less.calls, f"delivery {number}: calls"
        assert more.instructions <= 1.5 * TIMES * less.instructions, f"delivery {number}: the database"
