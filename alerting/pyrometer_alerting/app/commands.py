"""The commands beside the service, such as `pyrometer-alerting replay` and `check-slack`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources

from pyrometer_alerting.app import outlet_settings, settings, shared
from pyrometer_alerting.app.settings import DIGEST_SECONDS
from pyrometer_alerting.channel import slack_check, terminal
from pyrometer_alerting.channel.blocks import Style
from pyrometer_alerting.channel.digest.digest_message import build_digest
from pyrometer_alerting.channel.digest.scheduler import Digests, DigestScheduler
from pyrometer_alerting.channel.outlets import check as outlet_check
from pyrometer_alerting.channel.slack import WebSlack
from pyrometer_alerting.diagnosis import account
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model import routing
from pyrometer_alerting.policy import rules
from pyrometer_alerting.policy.drains import ACTIONS, Drains, schedulers_of
from pyrometer_kit import webconfig
from pyrometer_kit.clock import SystemClock
from pyrometer_kit.errors import UsageError
from pyrometer_kit.flags import Flags
from pyrometer_kit.prometheus import HttpPrometheus

_REPLAY = (
    "List or retry messages that Slack or an outlet refused for good. Works while the service runs, which picks"
    "the retry up"
    " within 15 s."
)
_EXPLAIN = "Print every fact, weight and query behind a diagnosis. Sends nothing; works while the service runs."
_CHECK_SLACK = (
    "Ask Slack about token, scopes, channels and Socket Mode, with the service's own flags, and report what is missing."
    " Posts nothing without --post."
)
_CHECK_OUTLETS = (
    "Send a test incident, opened and resolved, to the outlets of the configuration file, and say which took it."
    " PagerDuty and Opsgenie get it with the lowest urgency."
)
_DRAINS = (
    "List what the policy and the Slurm scripts have drained, and why; undo it (only where the reason is still ours,"
    " unchanged); stop all drains at once; start them again. Asks the schedulers of --policy.file, or scontrol without"
    " one; works without the service."
)
_DIGEST = "Print the digest of the last day or week as of now. Sends nothing; works while the service runs."


def replay(arguments: Sequence[str]) -> int:
    """List or retry messages that Slack refused for good; return the exit status.

    Raises:
        UsageError: an argument is wrong; the message explains it.
        StoreError: the store cannot be opened.
    """
    parser = Flags("pyrometer-alerting replay", _REPLAY)
    _add_storage(parser)
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("operation", nargs="*", help="operations to retry, as listed (default: all)")
    options = parser.parse_args(list(arguments))
    store = _opened(options)
    try:
        with store.transaction() as tx:
            dead = tx.outbox.dead()
            op_ids = options.operation or [operation.op_id for operation in dead]
            if options.list:
                _say(f"{one.op_id}  {one.kind:5}  {f'{one.outlet}: ' if one.outlet else ''}{one.error}" for one in dead)
                return 0
            unknown = [op_id for op_id in op_ids if not tx.outbox.replay(op_id, SystemClock().wall())]
    finally:
        store.close()
    if unknown:
        raise UsageError(f"no dead operation {unknown[0]}: see pyrometer-alerting replay --list")
    _say([f"{len(op_ids)} operations will be retried"])
    return 0


def check_config(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check flags and configuration file as the service does at its start, without starting it.

    Raises:
        UsageError: a setting is wrong; the message explains it.
    """
    chosen = settings.load(arguments, environment)
    if chosen.storage_url:
        shared.server_of(chosen.storage_url, chosen.storage_password)
    webconfig.load(chosen.web_config)
    if chosen.bearer_file is not None:
        settings.bearer_tokens(chosen.bearer_file)
    routing.load(chosen.config_file, chosen.slack_channel)
    routing.load_users(chosen.config_file)
    outlet_settings.load(chosen.config_file)
    rules.load(chosen.policy_file)
    _say(["the configuration is valid"])
    return 0


def digest(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print the digest of the last day or week as of now; return the exit status.

    Raises:
        UsageError: an argument or setting is wrong; the message explains it.
        StoreError: the store cannot be opened.
    """
    parser = Flags("pyrometer-alerting digest", _DIGEST)
    parser.add_argument("--weekly", action="store_true", help="the last week instead of the last day")
    parser.add_argument("--cluster", action="append", default=[], help="of this cluster alone; may be repeated")
    parser.add_argument("--print", action="store_true", help="print the digest (the default and only action)")
    options, rest = parser.parse_known_args(list(arguments))
    chosen = settings.load(rest, environment)
    prometheus = HttpPrometheus(chosen.prometheus_url, DIGEST_SECONDS) if chosen.prometheus_url else None
    style = Style(notice=chosen.notice)
    store = shared.command_store(chosen.storage_path, chosen.storage_url, chosen.storage_password)
    try:
        digests = Digests(chosen.schedules, chosen.zone, prometheus)
        digest_scheduler = DigestScheduler(store, digests, style=style, clock=SystemClock(), changed=lambda: None)
        kind = "weekly" if options.weekly else "daily"
        report = digest_scheduler.report(kind, SystemClock().wall(), options.cluster)
    finally:
        store.close()
    _say([terminal.render(build_digest(report, style, chosen.zone), colour=sys.stdout.isatty())])
    return 0


def drains(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """List, undo, stop or start the drains; return 1 if something was not done.

    Raises:
        UsageError: an argument or setting is wrong; the message explains it.
    """
    parser = Flags("pyrometer-alerting drains", _DRAINS)
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("node", nargs="*", help="of undo: the nodes to return")
    parser.add_argument("--all", action="store_true", help="of undo: all nodes of ours")
    parser.add_argument("--cluster", action="append", default=[], help="in this cluster alone; may be repeated")
    parser.add_argument("--policy.file", dest="policy", metavar="FILE", help="the service's own")
    options, rest = parser.parse_known_args(list(arguments))
    options.node += [word for word in rest if not word.startswith("-")]  # argparse leaves what follows a flag
    rest = [word for word in rest if word.startswith("-")]
    rest += [f"--policy.file={options.policy}"] if options.policy else []
    named = bool(options.node)
    if (named is options.all) if options.action == "undo" else (named or options.all):
        raise UsageError("undo needs the names of nodes, or --all; the other actions are of all nodes")
    chosen = settings.load(rest, environment)
    policy = rules.load(chosen.policy_file)
    schedulers = schedulers_of(policy.clusters or {"slurm": rules.SlurmSettings()})
    unknown = [name for name in options.cluster if name not in schedulers]
    if unknown:
        raise UsageError(f"no cluster {unknown[0]!r} in the policy: known are {', '.join(schedulers)}")
    command = Drains({name: schedulers[name] for name in options.cluster or schedulers}, options.node)
    _say(command.run(options.action))
    return int(command.failed)


def explain(arguments: Sequence[str]) -> int:
    """Print every fact, weight and query behind the diagnosis of an incident; return the exit status.

    Raises:
        UsageError: no such incident is known.
        StoreError: the store cannot be opened.
    """
    parser = Flags("pyrometer-alerting explain", _EXPLAIN)
    _add_storage(parser)
    parser.add_argument("incident", nargs="?", default="", help="its id, a prefix of it, or a run (default: newest)")
    options = parser.parse_args(list(arguments))
    store = _opened(options)
    try:
        with store.transaction() as tx:
            known = [one for one in tx.incidents() if one.wants_diagnosis and not one.joined_into]
    finally:
        store.close()
    newest = sorted(known, key=lambda one: -one.received_at)
    wanted = options.incident
    named = [one for one in newest if one.run == wanted or one.id.startswith(wanted)]
    if not named:
        several = ", ".join(f"{one.id[:8]} ({one.run})" for one in newest[:5])
        raise UsageError(f"no incident {wanted!r} of a run: known runs: {several or 'none'}")
    _say(account.lines(named[0]))
    return 0


def check_slack(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check that Slack will accept the service's messages; return 1 if something is missing.

    Raises:
        UsageError: a setting is wrong, or there is no token; the message explains it.
    """
    parser = Flags("pyrometer-alerting check-slack", _CHECK_SLACK)
    parser.add_argument("--post", action="store_true", help="also post a message, find, edit and delete it")
    parser.add_argument("--manifest", action="store_true", help="print the app's manifest, to paste in Slack, and exit")
    options, flags = parser.parse_known_args(list(arguments))
    if options.manifest:
        sys.stdout.write(resources.files("pyrometer_alerting.channel").joinpath("slack_app.yaml").read_text("utf-8"))
        return 0
    chosen = settings.load(flags, environment)
    if not chosen.slack_token:
        raise UsageError(f"no bot token: give --slack.bot-token-file or set {settings.TOKEN_VARIABLE}")
    routes = routing.load(chosen.config_file, chosen.slack_channel)
    channels = dict.fromkeys([chosen.slack_channel, *(route.channel for route in routes.routes)])
    wanted = slack_check.Wanted(
        list(channels), chosen.slack_app_token, pictures=chosen.charts != "off", post=options.post
    )
    slack = WebSlack(chosen.slack_token, chosen.slack_api_url)
    # The findings report it, one line each, without a traceback.
    logging.getLogger("pyrometer_alerting.slack_sdk").setLevel(logging.CRITICAL)
    missing = False
    for finding in slack_check.check(slack, wanted):
        missing |= finding.level == "missing"
        _say([str(finding)])
    return int(missing)


def check_outlets(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Send a test incident to the outlets; return 1 if one did not accept it.

    Raises:
        UsageError: a setting is wrong, or there is no such outlet; the message explains it.
    """
    parser = Flags("pyrometer-alerting check-outlets", _CHECK_OUTLETS)
    parser.add_argument("--outlet", action="append", default=[], metavar="NAME", help="only this one (repeatable)")
    options, flags = parser.parse_known_args(list(arguments))
    chosen = settings.load(flags, environment)
    entries = {entry.name: entry for entry in outlet_settings.load(chosen.config_file)}
    unknown = [name for name in options.outlet if name not in entries]
    if unknown or not entries:
        known = ", ".join(entries) or "none: --config.file needs a section `outlets`"
        raise UsageError(f"no outlet {unknown[0]!r}: known are {known}" if unknown else f"outlets: {known}")
    wanted = [entries[name] for name in options.outlet] or list(entries.values())
    # The findings report it, one line each.
    logging.getLogger("pyrometer_alerting.channel.outlets").setLevel(logging.CRITICAL)
    missing = False
    for finding in outlet_check.check(wanted, Style(notice=chosen.notice), SystemClock().wall()):
        missing |= finding.level == "missing"
        _say([str(finding)])
    return int(missing)


def _add_storage(parser: Flags) -> None:
    default = "./pyrometer-alerting"
    parser.add_argument("--storage.path", dest="storage", default=default, metavar="FOLDER", help="the service's own")
    parser.add_argument("--storage.url", dest="url", default="", metavar="URL", help="PostgreSQL's address instead")
    parser.add_argument(
        "--storage.password-file", dest="password_file", default="", metavar="FILE", help="with its password"
    )


def _opened(options: argparse.Namespace) -> Store:
    password = settings.storage_password(options.url, options.password_file)
    return shared.command_store(options.storage, options.url, password)


def _say(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def find(arguments: Sequence[str], environment: Mapping[str, str]) -> Callable[[], int] | None:
    """Return the command that these arguments name; None for the service itself."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    commands: dict[str, Callable[[], int]] = {
        "replay": lambda: replay(rest),
        "digest": lambda: digest(rest, environment),
        "drains": lambda: drains(rest, environment),
        "explain": lambda: explain(rest),
        "check-outlets": lambda: check_outlets(rest, environment),
        "check-slack": lambda: check_slack(rest, environment),
        "check-config": lambda: check_config(rest, environment),
    }
    return commands.get(name)
