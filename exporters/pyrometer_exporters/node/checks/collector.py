"""The collector ``checks``: whether this node is fit, looked at every five minutes by a process of its own.

Sample lines: ``pyrometer_check_ok{check="hca_links"} 0`` and
``pyrometer_check_reason_info{check="hca_links",reason="6 of 8 links are up: mlx5_3/1 DOWN",severity="critical"} 1``.

The process is ``pyrometer-check --json --keep``: the same checks and configuration as by hand. So nothing of it is in
the exporter's memory or in a scrape's time, and a mount or a driver that hangs can't hold the exporter.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyrometer_exporters.framework.collector import CollectorSpec, Context, FlagGroup
from pyrometer_exporters.framework.metrics import Down, Families, Sample
from pyrometer_exporters.framework.outcome import LATE, PartError, reason_of
from pyrometer_exporters.node.checks.config import chosen_file
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import number_between

log = logging.getLogger(__name__)

# fmt: off
_ROWS = Families("check")
OK = _ROWS.gauge("pyrometer_check_ok",
    "1 if the check passed when it last ran, 0 if it failed; absent where it could not be run or doesn't apply here. "
    "docs/checks.md lists them.")
REASON = _ROWS.gauge("pyrometer_check_reason_info",
    "1; why a check failed, or why it could not be run, in words; absent for checks that passed. Severity: critical, "
    "warning, or learned if the only ground is what was learned of the node.", "reason", "severity")
LAST_RUN = _ROWS.gauge("pyrometer_check_last_run_timestamp_seconds",
    "When the check was last run, in s since the epoch, with whatever result.")
# fmt: on
FAMILIES = tuple(_ROWS)

CONFIG_FLAG: Final = "collector.checks.config"
INTERVAL_FLAG: Final = "collector.checks.interval"
ROOTFS_FLAG: Final = "collector.checks.rootfs"
_PASSED_ON: Final = ("collector.gpu.device-include", "collector.gpu.device-exclude")
# Not by -m: whatever Python finds in the folder that somebody starts us in, it would import.
_PROGRAM: Final = "import sys; sys.path[:] = filter(None, sys.path); from {0} import main; sys.exit(main())"
COMMAND: Final = (sys.executable, "-c", _PROGRAM.format("pyrometer_exporters.commands.check.main"))

PART: Final = "look"
FIRST_SECONDS: Final = 5.0
"""How long after the start of the exporter the first look begins: what it compares with is up by then."""
# Three workers of children, each with at most three checks of 4 s that hang.
DEADLINE_SECONDS: Final = 45.0
SPREAD: Final = 0.1
"""Intervals are up to so much longer or shorter, so that a fleet that was started at once doesn't look at once."""
MOST_REASON_CHARACTERS: Final = 300


class Checked(NamedTuple):
    """Hold a check's latest answer: state as in check.py, when, in seconds since the epoch, and how bad it is."""

    name: str
    state: str
    reason: str
    at: float
    severity: str = ""


class Look(NamedTuple):
    """The latest look: its answers, or why there are none."""

    answers: tuple[Checked, ...] = ()
    down: Down | None = None


Ask = Callable[[], Mapping[str, Any]]
"""Runs the checks and returns what ``pyrometer-check --json`` prints; raises PartError."""


class ChecksCollector:
    """Looks in a thread that mostly waits; :meth:`collect` reads only memory."""

    def __init__(self, context: Context, ask: Ask | None = None) -> None:
        self._ask = ask or Asker(arguments_of(context)).ask
        self._interval: float = getattr(context.flags, INTERVAL_FLAG)
        self._look = Look()
        self._closed = threading.Event()
        self._start()

    def collect(self, until: float) -> Iterable[Sample | Down]:  # noqa: ARG002  it is in memory
        """Yield the latest answers; see :class:`~pyrometer_exporters.framework.collector.Collector`."""
        look = self._look
        for answer in look.answers:
            if answer.state in ("ok", "failed"):
                yield OK.sample(int(answer.state == "ok"), answer.name)
            if answer.state in ("failed", "unknown"):
                yield REASON.sample(1, answer.name, answer.reason, answer.severity)
            yield LAST_RUN.sample(answer.at, answer.name)
        if look.down is not None:
            yield look.down

    def close(self) -> None:
        """Stop looking; a look that is under way ends on its own."""
        self._closed.set()

    def look(self) -> None:
        """Run all checks once and keep their answers; without an answer the latest ones go, as they are old."""
        try:
            self._look = Look(tuple(_answers(self._ask())))
        except PartError as error:
            self._look = Look((), Down(PART, error.reason, error.detail))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._look = Look((), Down(PART, reason_of(error), f"{type(error).__name__}: {error}"))

    def _start(self) -> None:
        threading.Thread(target=self._run, name="checks", daemon=True).start()

    def _run(self) -> None:
        wait = FIRST_SECONDS
        while not self._closed.wait(wait):
            self.look()
            wait = self._interval * _spread()


def _spread() -> float:
    """Return a factor from 0.9 to 1.1, another one each time; without ``random``, which takes memory."""
    return 1 - SPREAD + 2 * SPREAD * int.from_bytes(os.urandom(2), "big") / 0xFFFF


def _answers(report: Mapping[str, Any]) -> Iterable[Checked]:
    for note in report["notes"]:
        log.warning("checks: %s", note)
    at = float(report["at"])
    for check in report["checks"]:
        if check["state"] != "absent":
            reason = str(check["reason"]).replace("\n", " ")[:MOST_REASON_CHARACTERS]
            severity = "learned" if check.get("learned") else str(check.get("severity", ""))
            yield Checked(str(check["check"]), str(check["state"]), reason, at, severity)


class Asker:
    """Runs ``pyrometer-check``; one at a time, also where one that was killed does not end."""

    def __init__(self, arguments: Sequence[str], deadline: float = DEADLINE_SECONDS) -> None:
        self._command = [*COMMAND, *arguments]
        self._deadline = deadline
        self._left: subprocess.Popen[bytes] | None = None

    def ask(self) -> Mapping[str, Any]:
        """Return what it prints.

        Raises:
            PartError: it can't be started, says nothing in time, or ends without an answer.
        """
        if self._left is not None and self._left.poll() is None:
            raise PartError(LATE, "the process of an earlier run has not exited")
        try:
            # A session of its own, so that a signal for the exporter's group doesn't end a look half-way.
            process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise PartError(reason_of(error), f"{self._command[0]}: {error.strerror}") from None
        self._left = process
        try:
            out, err = process.communicate(timeout=self._deadline)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            raise PartError(LATE, f"no answer in {self._deadline:.0f} s") from None
        try:
            report: Mapping[str, Any] = json.loads(out)
        except ValueError:
            words = err.decode(errors="replace").strip().splitlines()
            raise PartError("failed", words[-1] if words else f"ended with status {process.returncode}") from None
        return report


def arguments_of(context: Context) -> list[str]:
    """Return the flags of ``pyrometer-check`` for this exporter's own.

    Raises:
        UsageError: the configuration can't be used.
    """
    flags = context.flags
    paths = {"sysfs": context.sysfs, "procfs": context.procfs, "kmsg": context.kmsg, "state": context.state}
    arguments = ["--json", "--keep", *(f"--path.{name}={path}" for name, path in paths.items() if path is not None)]
    rootfs: Path = getattr(flags, ROOTFS_FLAG)
    arguments.append(f"--path.rootfs={rootfs}")
    config = chosen_file(getattr(flags, CONFIG_FLAG))
    if config is not None:
        _refuse_mistakes(config)
        arguments.append(f"--config.file={config}")
    for flag in _PASSED_ON:
        pattern: re.Pattern[str] | None = getattr(flags, flag, None)
        if pattern is not None:
            arguments.append(f"--{flag}={pattern.pattern}")
    return arguments


def _refuse_mistakes(config: Path) -> None:
    """Read the configuration once, in another process: what reads YAML need not stay in this one's memory."""
    check = [*COMMAND, f"--config.file={config}", "--only=uptime", "--json"]
    try:
        trial = subprocess.run(check, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):  # each look will say so
        return
    if not trial.stdout and trial.stderr:
        raise UsageError(f"--{CONFIG_FLAG}: {trial.stderr.strip().splitlines()[-1].partition(': ')[2]}")


def _add_flags(group: FlagGroup) -> None:
    group.add_argument(
        f"--{CONFIG_FLAG}", dest=CONFIG_FLAG, type=Path, metavar="FILE",
        help="YAML file with the checks to run, their limits and what is expected of this node; docs/checks.md "
             "(default: "
        "/etc/pyrometer/checks.yaml if it exists)",
    )  # fmt: skip
    group.add_argument(
        f"--{INTERVAL_FLAG}", dest=INTERVAL_FLAG, default=300.0, metavar="SECONDS",
        type=number_between(10, 86400, "a number of seconds from 10 to 86400"),
        help="how often the checks run, in their own process (default: %(default).0f)",
    )  # fmt: skip
    group.add_argument(
        f"--{ROOTFS_FLAG}", dest=ROOTFS_FLAG, type=Path, default=Path("/"), metavar="DIR",
        help="path of the host's file systems inside a container (default: %(default)s)",
    )  # fmt: skip


COLLECTOR = CollectorSpec(
    name="checks",
    help="whether the node is fit for a job",
    families=FAMILIES,
    build=ChecksCollector,
    add_flags=_add_flags,
)
