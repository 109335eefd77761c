"""The program ``pyrometer-check``: is this node fit? One answer for people, Slurm and Kubernetes.

    pyrometer-check                     # a line for each failure with what to do; exit status 0, 1, 2 or 3
    pyrometer-check --json
    pyrometer-check --only gpu_count,hca_links
    pyrometer-check --every=60 --kubernetes.node=gpu-001    # a node condition, in a DaemonSet

It runs the checks of the node exporter's collector ``checks``, with its configuration, and needs no exporter.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyrometer_exporters.commands.check import report
from pyrometer_exporters.commands.check.standing import Outlet, answer_file, keep_looking, node_condition
from pyrometer_exporters.framework.api_server import ACCOUNT, from_environment
from pyrometer_exporters.node.checks import kept
from pyrometer_exporters.node.checks.check import discover
from pyrometer_exporters.node.checks.config import DEFAULT_FILE, chosen_file
from pyrometer_exporters.node.checks.look import Look, Looker
from pyrometer_exporters.node.checks.node import Paths
from pyrometer_exporters.node.gpu.inventory import Selection
from pyrometer_kit.command_line import add_version_flag
from pyrometer_kit.errors import UsageError, fail
from pyrometer_kit.flags import Flags, number_between, regexp
from pyrometer_kit.statefile import default_folder

PROG = "pyrometer-check"
BACKGROUND_NICE = 10


def main(argv: Sequence[str] | None = None, replaced: Mapping[str, Any] | None = None) -> int:
    """Run the checks; return the exit status. ``replaced`` are fields of the Node that a test sets."""
    flags = make_parser().parse_args(argv)
    try:
        return _run(flags, replaced or {})
    except UsageError as error:
        return fail(PROG, error)


def _run(flags: argparse.Namespace, replaced: Mapping[str, Any]) -> int:
    for name in ("kubernetes.node", "path.answer"):
        if getattr(flags, name) and flags.every is None:
            raise UsageError(f"--{name}: only with --every")
    if flags.list:
        sys.stdout.write("".join(f"{check.name:22} {check.severity:8} {check.title}\n" for check in discover()))
        return 0
    if flags.keep or flags.every is not None:  # in the background: training comes first
        with contextlib.suppress(OSError):
            os.nice(BACKGROUND_NICE)
    state = _state(flags)
    if flags.forget:
        return _forget(state)
    config = chosen_file(getattr(flags, "config.file"))
    looker = Looker(_paths(flags), config, state, _asker(flags, state), replaced=replaced)
    look = partial(_look, flags, looker, _names(flags.only))
    if flags.every is not None:
        keep_looking(lambda: report.reasons(look()), flags.every, _outlets(flags))
        return report.OK
    result = look()
    _say(result, flags)
    return report.status(result, fail_open=flags.fail_open, for_jobs=flags.reasons)


def _look(flags: argparse.Namespace, looker: Looker, only: Sequence[str]) -> Look:
    result = looker.look(keep=flags.keep, ignore=flags.ignore, only=only)
    if flags.confirm is not None and result.of("failed"):
        result = _confirmed(result, looker, flags.confirm)
    return result


def _outlets(flags: argparse.Namespace) -> dict[str, Outlet]:
    """Return where the answers of ``--every`` go besides standard output."""
    node, file = getattr(flags, "kubernetes.node"), getattr(flags, "path.answer")
    outlets: dict[str, Outlet] = {f"can't write {file}": answer_file(file)} if file else {}
    if node:
        server = from_environment("--kubernetes.node", getattr(flags, "kubernetes.account"))
        outlets[f"can't write the condition of {node}"] = node_condition(node, server)
    return outlets


def _say(look: Look, flags: argparse.Namespace) -> None:
    if flags.json:
        sys.stdout.write(report.as_json(look, fail_open=flags.fail_open) + "\n")
        return
    if flags.reasons:
        sys.stdout.write(report.reasons(look) + "\n")
        return
    sys.stdout.write("".join(f"{line}\n" for line in report.lines(look, fail_open=flags.fail_open)))


def _confirmed(first: Look, looker: Looker, seconds: float) -> Look:
    """Look again at what failed, a moment later: one late answer takes no node away."""
    time.sleep(seconds)
    again = looker.look(only=[result.check.name for result in first.of("failed")])
    second = {result.check.name: result for result in again.results}
    results = tuple(second.get(result.check.name, result) for result in first.results)
    return Look(first.node, again.at, results, first.notes)


def _forget(state: Path | None) -> int:
    """Forget what was learned: what there is now is looked at as on the first day."""
    try:
        before = kept.load(state)
        kept.save(state, kept.Kept(stuck=before.stuck))
    except OSError as error:
        raise UsageError(f"can't write to {state}: {error.strerror}") from None
    sys.stdout.write("forgotten: this node's hardware is learned again on its next healthy day\n")
    return 0


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    all_names = {check.name for check in discover()}
    for name in names:
        if name not in all_names:
            raise UsageError(f"--only: unknown check {name}; {PROG} --list shows all")
    return names


def _state(flags: argparse.Namespace) -> Path:
    return Path(getattr(flags, "path.state") or default_folder())


def _paths(flags: argparse.Namespace) -> Paths:
    return Paths(*(getattr(flags, f"path.{name}") for name in ("sysfs", "procfs", "rootfs", "kmsg")))


def _asker(flags: argparse.Namespace, state: Path) -> Any:  # noqa: ANN401  a node.Gpus
    from pyrometer_exporters.node.checks.gpus import DriverAsker, released  # noqa: PLC0415  ctypes and the binding

    include: re.Pattern[str] | None = getattr(flags, "collector.gpu.device-include")
    exclude: re.Pattern[str] | None = getattr(flags, "collector.gpu.device-exclude")
    return DriverAsker(Selection(include, exclude), lambda: released(state))


def make_parser() -> Flags:
    """Return the parser of the command's flags."""
    flags = Flags(
        PROG, "Check whether this node is fit for a job. Exit status: 0 yes, 1 with warnings, 2 no, 3 unknown."
    )
    add_version_flag(flags, "pyrometer-exporters")
    add = flags.add_argument
    add("--json", action="store_true", help="print all results as one JSON object")
    add("--reasons", action="store_true",
        help="print one line for schedulers: the failures that keep jobs away, else `fit` or "
             "`unknown: CHECKS`")  # fmt: skip
    add("--list", action="store_true", help="list all checks and exit")
    add("--only", default="", metavar="NAMES", help="run only these checks, separated by commas")
    add("--ignore", type=regexp, metavar="REGEXP", help="skip the checks whose name matches, such as hca_.*|acs")
    add("--confirm", type=number_between(0, 60, "a number of seconds up to 60"), metavar="SECONDS",
        help="repeat failed checks after this long, and use the second result")  # fmt: skip
    add("--every", type=number_between(1, 86_400, "a number of seconds up to 86400"), metavar="SECONDS",
        help="look again and again, and print the line of --reasons when it changes")  # fmt: skip
    add("--kubernetes.node", dest="kubernetes.node", default="", metavar="NAME",
        help="with --every: keep the condition PyrometerUnfit of this Kubernetes node, from a pod of it")  # fmt: skip
    add("--kubernetes.account", dest="kubernetes.account", type=Path, default=ACCOUNT, metavar="DIR",
        help="the service account's token and ca.crt (default: %(default)s)")  # fmt: skip
    add("--path.answer", dest="path.answer", type=Path, metavar="FILE",
        help="with --every: write the line of --reasons to this file after each look")  # fmt: skip
    policy = flags.add_mutually_exclusive_group()
    policy.add_argument("--fail-closed", dest="fail_open", action="store_false", default=False,
                        help="exit with status 3 if a critical check could not be run (default)")  # fmt: skip
    policy.add_argument("--fail-open", dest="fail_open", action="store_true",
                        help="exit with status 0 if nothing failed, even if checks could not be run")  # fmt: skip
    add("--keep", action="store_true", help="save this node's hardware to --path.state, as the exporter does")
    add(
        "--forget",
        action="store_true",
        help="forget what was learned about this node, because its hardware has changed, and exit",
    )
    add("--config.file", dest="config.file", type=Path, metavar="FILE",
        help=f"YAML file with checks, limits and what is expected (default: {DEFAULT_FILE} if it exists)")  # fmt: skip
    for name, default, what in (
        ("sysfs", "/sys", "where sysfs is mounted"),
        ("procfs", "/proc", "where procfs is mounted"),
        ("rootfs", "/", "path of the host's file systems inside a container"),
        ("kmsg", "/dev/kmsg", "the kernel's log"),
    ):
        add(f"--path.{name}", dest=f"path.{name}", type=Path, default=Path(default), metavar="PATH",
            help=f"{what} (default: %(default)s)")  # fmt: skip
    add("--path.state", dest="path.state", metavar="DIR",
        help="the exporter's state folder (default: $STATE_DIRECTORY, else /var/lib/pyrometer)")  # fmt: skip
    for flag in ("include", "exclude"):
        add(f"--collector.gpu.device-{flag}", dest=f"collector.gpu.device-{flag}", type=regexp, metavar="REGEXP",
            help=f"as the node exporter's flag: GPUs to {flag}")  # fmt: skip
    return flags


if __name__ == "__main__":
    sys.exit(main())
