"""Play a machine: a week on a moved clock, in which no check may fail, and then each of its losses."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyrometer_exporters.commands.check import report
from pyrometer_exporters.node.checks.look import Look
from pyrometer_simulator.situations.verdict import Case, Fired, Rules, evaluate
from pyrometer_simulator.zoo.acts import LOSSES, act
from pyrometer_simulator.zoo.exported import SCRAPE_SECONDS, ExportedMachine
from pyrometer_simulator.zoo.machine import DAY, Description, Machine, seconds

ZOO: Final = Path(__file__).resolve().parents[3] / "tests/zoo/machines"
FASTEST_FOLDER: Final = Path("/dev/shm")  # noqa: S108  a machine has a thousand small files
# The collector looks every five minutes. The last look before an event and the first after it say what all those in
# between say, as nothing changes there.
_LOOK_SECONDS: Final = 300.0
# Prometheus sees this much before and after each event: longer than any rule waits.
_BEFORE_SECONDS: Final = 180.0
_SETTLED_SECONDS: Final = 1200.0
# A check that fails has 20 minutes to pass again before anybody is told.
_LOSS_SECONDS: Final = 1800.0
_NO_ACCUSATION: Final = ("NodeInMaintenance",)
MOST_EVENTS: Final = 60
# promtool evaluates no rule over more than 10,000 samples.
_MOST_SERIES: Final = 4000
TOLD_BY_ALERTS: Final = ("interface",)
"""Losses that no check looks for: an alert reports them."""


@dataclass
class Loss:
    """Holds a planted loss, and what was reported of it.

    Attributes:
        verb: its kind.
        part: what was lost, in the words of the machine's description.
        names: whoever reports it has to use one of these.
        told: the checks that failed with its name.
        said: all that the checks said.
        case: what Prometheus would have stored from just before it until it was settled; None where not recorded.
        alerts: the names of the alerts that fired.
        alerted: whether one of them named it.
        evaluated: whether the alert rules were evaluated.
    """

    verb: str
    part: str
    names: tuple[str, ...]
    told: tuple[str, ...]
    said: tuple[str, ...]
    case: Case | None = None
    alerts: tuple[str, ...] = ()
    alerted: bool = False
    evaluated: bool = False

    @property
    def what(self) -> str:
        """Return the loss in words."""
        return f"{self.verb.replace('_', ' ')} {self.part}"

    @property
    def named(self) -> bool:
        """Return whether a check or an alert named it."""
        return bool(self.told) or self.alerted

    def take(self, fired: Sequence[Fired]) -> None:
        """Note the alerts that fired."""
        self.evaluated = True
        self.alerts = tuple(dict.fromkeys(alert.name for alert in fired))
        self.alerted = any(_is_named(self.names, alert.where) for alert in fired)


@dataclass
class Played:
    """Holds the outcome of a machine's week and its losses.

    Attributes:
        machine: its description.
        wrong: each verdict against the healthy machine, in words.
        losses: the planted ones.
        evaluated: whether the alert rules were evaluated, too.
        case: what Prometheus would have stored of the week; None where that was not recorded.
    """

    machine: Description
    wrong: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    evaluated: bool = False
    case: Case | None = None

    def take(self, fired: Sequence[Fired]) -> None:
        """Note the alerts that fired in the week."""
        self.evaluated = True
        accusing = [alert for alert in fired if alert.name not in _NO_ACCUSATION]
        self.wrong += [f"{alert.name} after {alert.first / 3600:.1f} h: {alert.where}" for alert in accusing]

    @property
    def missed(self) -> list[Loss]:
        """Return the losses that nothing named."""
        return [loss for loss in self.losses if not loss.named]


def take_alerts(promtool: Path, rules: Rules, every: Sequence[Played]) -> None:
    """Evaluate the rules over the weeks, in which none may fire, and over the losses; in one run of promtool."""
    takers: list[tuple[Case, Callable[[Sequence[Fired]], None]]] = []
    for played in every:
        takers += [(played.case, played.take)] if played.case is not None else []
        takers += [(loss.case, loss.take) for loss in played.losses if loss.case is not None]
    answers = evaluate(promtool, rules, [case for case, _ in takers], _MOST_SERIES)
    for (_, take), fired in zip(takers, answers, strict=True):
        take(fired)


def descriptions() -> list[Description]:
    """Return all machines, by name."""
    return [Description.read(path) for path in sorted(ZOO.iterdir()) if path.is_dir()]


@contextmanager
def at_work(description: Description) -> Iterator[Machine]:
    """Make a machine's files for as long as it is played."""
    parent = FASTEST_FOLDER if FASTEST_FOLDER.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="pyrometer-zoo-", dir=parent) as folder:
        machine = Machine(description, Path(folder) / "machine")
        try:
            yield machine
        finally:
            machine.close()


def play(description: Description, *, wanted: Collection[str] | None = None) -> Played:
    """Play a machine's week, and then its losses.

    Args:
        description: the machine.
        wanted: the names of the metrics that rules use, to record them; None for the checks alone, and the losses that
            these can name.
    """
    played = Played(description)
    with at_work(description) as machine:
        exported = None if wanted is None else ExportedMachine(machine, wanted)
        played.wrong += week(machine, exported)
        if exported is not None:
            played.case = exported.case()
            exported.close()
        for verb, argument in losses(description):
            if verb not in TOLD_BY_ALERTS or wanted is not None:
                played.losses += lose(machine, verb, argument, wanted)
    return played


def losses(description: Description) -> Iterator[tuple[str, Any]]:
    """Yield the losses to be planted: verb and argument."""
    for entry in description.losses:
        yield from entry.items()


def week(machine: Machine, exported: ExportedMachine | None = None) -> list[str]:
    """Play the week; return each verdict against the machine once, in words, with when it was first said."""
    first: dict[str, str] = {}
    for when, what in _week(machine, exported):
        first.setdefault(what, when)
    return [f"{when}: {what}" for what, when in first.items()]


def _week(machine: Machine, exported: ExportedMachine | None) -> Iterator[tuple[str, str]]:
    began = machine.wall
    yield from _objections("on the first look", machine.look())
    _pass(machine, _SETTLED_SECONDS, exported)
    for event in machine.description.week:
        pause = seconds(event["after"])
        machine.wall += max(0.0, pause - _BEFORE_SECONDS)
        _pass(machine, min(pause, _BEFORE_SECONDS), exported)
        yield from _objections("before", machine.look())
        act(machine, event)
        if "reboot" in event and exported is not None:
            exported.stop_exporter()
        what = event.get("what") or ", ".join(verb for verb in event if verb != "after")
        machine.wall += _LOOK_SECONDS
        yield from _objections(f"after: {what}", machine.look())
        _pass(machine, _SETTLED_SECONDS, exported)
    machine.wall = max(machine.wall, began + 7 * DAY)
    yield from _objections("at the end", machine.look())


def _pass(machine: Machine, length: float, exported: ExportedMachine | None) -> None:
    """Let time pass, with a scrape each minute where the machine is exported."""
    if exported is None:
        machine.wall += length
        return
    for _ in range(int(length // SCRAPE_SECONDS)):
        machine.wall += SCRAPE_SECONDS
        exported.scrape()


def lose(
    machine: Machine,
    verb: str,
    argument: Any,  # noqa: ANN401  as the verb takes it
    wanted: Collection[str] | None = None,
) -> Iterator[Loss]:
    """Plant a loss, and what a reboot makes of it; yield what is told of each, and mend it."""
    for name in (verb, f"{verb}_after_reboot"):
        if name not in LOSSES:
            continue
        back = machine.mark()
        exported = None if wanted is None else ExportedMachine(machine, wanted, SCRAPE_SECONDS)
        _pass(machine, _BEFORE_SECONDS, exported)
        booted = machine.booted
        names = tuple(LOSSES[name](machine, argument))
        if exported is not None and machine.booted != booted:
            exported.stop_exporter()
        machine.wall += _LOOK_SECONDS
        failed = machine.look().of("failed")
        told = tuple(result.check.name for result in failed if _is_named(names, result.verdict.reason))
        said = tuple(f"{result.check.name}: {result.verdict.reason}" for result in failed)
        loss = Loss(name, str(argument), names, told, said)
        if exported is not None:
            _pass(machine, _LOSS_SECONDS, exported)
            loss.case = exported.case()
            exported.close()
        yield loss
        back()


def _objections(when: str, look: Look) -> Iterator[tuple[str, str]]:
    for result in look.of("failed"):
        yield when, f"{result.severity} {result.check.name}: {result.verdict.reason}"
    if report.status(look, fail_open=False) == report.UNKNOWN:
        for result in look.of("unknown"):
            if result.severity == "critical":
                yield when, f"unknown {result.check.name}: {result.verdict.reason}"
    yield from ((when, f"note: {note}") for note in look.notes)


def _is_named(names: Any, reason: str) -> bool:  # noqa: ANN401
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", reason) for name in names)
