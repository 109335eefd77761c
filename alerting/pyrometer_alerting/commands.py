"""The small commands beside the service: `pyrometer-alerting replay` and `check-config`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pyrometer_alerting import routing, settings, webconfig
from pyrometer_alerting.clock import SystemClock
from pyrometer_alerting.store import Store
from pyrometer_alerting.yamlfile import SettingsError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message}; see {self.prog} --help")


def replay(arguments: Sequence[str]) -> int:
    """List or try again what Slack refused for good. Works while the service runs, which notices within 15 s."""
    parser = _Parser(prog="pyrometer-alerting replay", allow_abbrev=False, description=replay.__doc__)
    parser.add_argument("--storage.path", dest="storage", default="./pyrometer-alerting", metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="only show what there is")
    parser.add_argument("operation", nargs="*", help="operations to try again, as listed; without one all of them")
    given = parser.parse_args(list(arguments))
    store = Store(Path(given.storage), alone=False)
    try:
        with store.transaction() as tx:
            dead = tx.outbox.dead()
            wanted = given.operation or [operation.op_id for operation in dead]
            if given.list:
                _say(f"{one.op_id}  {one.kind:5}  {one.error}" for one in dead)
                return 0
            unknown = [op_id for op_id in wanted if not tx.outbox.replay(op_id, SystemClock().now())]
    finally:
        store.close()
    if unknown:
        raise SettingsError(f"no dead operation {unknown[0]}: see pyrometer-alerting replay --list")
    _say([f"{len(wanted)} operations will be tried again"])
    return 0


def check_config(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check flags and configuration file as the service does at its start, and start nothing."""
    chosen = settings.load(arguments, environment)
    if chosen.web_config is not None:
        webconfig.load(chosen.web_config)
    if chosen.bearer_file is not None:
        settings.bearer_tokens(chosen.bearer_file)
    routing.load(chosen.config_file, chosen.slack_channel)
    routing.load_users(chosen.config_file)
    _say(["the configuration is good"])
    return 0


def _say(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def find(arguments: Sequence[str], environment: Mapping[str, str]) -> Callable[[], int] | None:
    """The command that these arguments name; None for the service itself."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    if name == "replay":
        return lambda: replay(rest)
    return (lambda: check_config(rest, environment)) if name == "check-config" else None
