"""Write the boards for Grafana's provisioning, and the alert rules for your names of jobs."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from pyrometer_dashboards import boards, grafana_json, rule_groups, rule_shards
from pyrometer_dashboards.model import Board
from pyrometer_dashboards.prometheus_rules import PROMETHEUS, VICTORIA, Wrapping, wrapped
from pyrometer_dashboards.rule_stages import NotSplitError

# The jobs of compose/prometheus/prometheus.yaml that rules and boards select by name.
JOBS = {
    "node": "the node exporters",
    "batches": "the node exporters' batches",
    "cluster": "the cluster exporter",
    "host": "node_exporter",
    "alerting": "the alerting service",
}
# In a rule's text, and in a board's JSON, where quotes are escaped.
_DATASOURCE = re.compile(r'("(?:type|query)": ")prometheus(")')
_JOB = re.compile(rf'(\bjob=\\?")({"|".join(JOBS)})(\\?")')


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def all_boards() -> dict[str, Board]:
    """Return all boards by file name."""
    by_file = {}
    for module in pkgutil.iter_modules(boards.__path__, f"{boards.__name__}."):
        name = f"{module.name.rpartition('.')[2].replace('_', '-')}.json"
        by_file[name] = importlib.import_module(module.name).board()
    return by_file


@cache
def rendered() -> dict[str, str]:
    """Return all boards as JSON text by file name."""
    return {name: grafana_json.to_json(board) for name, board in all_boards().items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 2 if it could not do what was asked."""
    parser = _Flags(prog="pyrometer-dashboards", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_version_line(), help="Print the version and exit.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Flags)
    build = commands.add_parser("build", help="write all boards to a folder")
    build.add_argument("folder", type=Path)
    rules = commands.add_parser("rules", help="write the alert rules of a folder to another, for your names of jobs")
    rules.add_argument("source", type=Path, help="the folder alert_rules of this project")
    rules.add_argument("folder", type=Path)
    _add_prometheus_rules(rules)
    _add_limits(rules)
    _add_shards(rules)
    build.add_argument(
        "--datasource",
        metavar="TYPE",
        default="prometheus",
        help="Grafana's type of your data source, such as victoriametrics-metrics-datasource (default: %(default)s)",
    )
    for command in (build, rules):
        _add_jobs(command)
    flags = parser.parse_args(argv)
    try:
        return _build(flags) if flags.command == "build" else _rules(flags)
    except _UsageError as error:
        sys.stderr.write(f"pyrometer-dashboards: {error}\n")
        return 2


def _add_jobs(command: argparse.ArgumentParser) -> None:
    for job, what in JOBS.items():
        command.add_argument(
            f"--job-{job}", metavar="NAME", default=job, help=f"your Prometheus' job for {what} (default: %(default)s)"
        )


def _jobs(flags: argparse.Namespace) -> dict[str, str]:
    jobs = {job: str(getattr(flags, f"job_{job}")) for job in JOBS}
    for job, name in jobs.items():
        if not name or set(name) & set('"\\\n'):
            raise _UsageError(f"--job-{job}: {name!r} can't be a job's name in a query")
    return jobs


def with_jobs(text: str, jobs: Mapping[str, str]) -> str:
    """Return rules or a board's JSON with other names for our jobs: ``job="node"`` becomes ``job="gpu-exporters"``."""
    return _JOB.sub(lambda match: f"{match[1]}{jobs[match[2]]}{match[3]}", text)


def _add_prometheus_rules(command: argparse.ArgumentParser) -> None:
    kind = command.add_mutually_exclusive_group()
    kind.add_argument(
        "--prometheus-rules",
        action="store_const",
        dest="kind",
        const=PROMETHEUS,
        help="write PrometheusRules of the Prometheus operator, with a kustomization.yaml, instead of rule files",
    )
    kind.add_argument(
        "--vm-rules",
        action="store_const",
        dest="kind",
        const=VICTORIA,
        help="likewise VMRules of VictoriaMetrics' operator",
    )
    command.add_argument("--namespace", default="pyrometer", help="namespace of these objects (default: %(default)s)")
    command.add_argument(
        "--label",
        action="append",
        metavar="NAME=VALUE",
        help="label that the operator's Prometheus selects these objects by; may be repeated (default:"
        " release=kube-prometheus-stack)",
    )


def _wrapping(flags: argparse.Namespace) -> Wrapping | None:
    if not flags.kind:
        return None
    pairs = [text.partition("=") for text in flags.label or ["release=kube-prometheus-stack"]]
    wrong = ["".join(pair) for pair in pairs if not (pair[0] and pair[1])]
    if wrong:
        raise _UsageError(f"--label: {wrong[0]!r} is not NAME=VALUE")
    return Wrapping(flags.namespace, {name: value for name, _, value in pairs}, flags.kind)


def _add_limits(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--limits",
        choices=["mimir"],
        help="write groups that a ruler of Mimir takes by default, also one that is hosted: at most"
        f" {rule_groups.MIMIR} rules each, in as few groups as can be",
    )
    command.add_argument(
        "--evaluation-interval",
        type=_whole_seconds,
        metavar="SECONDS",
        help="evaluate no group more often than once in so many seconds, such as 15s (default: 5s for the fastest)",
    )


def _whole_seconds(text: str) -> int:
    seconds = text.removesuffix("s")
    if not (seconds.isdigit() and int(seconds)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 15s")
    return int(seconds)


def _add_shards(command: argparse.ArgumentParser) -> None:
    def add(flag: str, text: str, **more: Any) -> None:  # noqa: ANN401  argparse's own keywords
        command.add_argument(flag, help=text, **more)

    again = {"action": "append", "default": []}
    add("--shard", "split this rule group, as it takes longer than 1 s; may be repeated", metavar="GROUP", **again)
    add(
        "--shard-nodes",
        "the nodes of one shard, as a regular expression; may be repeated; one more shard has all others",
        metavar="PATTERN",
        **again,
    )
    add("--shard-runs", "likewise the runs, for groups that compare a run's ranks", metavar="PATTERN", **again)
    add(
        "--shard-racks",
        "instead of --shard-nodes: COUNT shards of whole racks, from Prometheus' JSON file of targets",
        metavar="FILE=COUNT",
    )


def _shards(flags: argparse.Namespace) -> list[rule_shards.Shards]:
    """Return the ways to split a group, by node and by run, as far as they are given."""
    if flags.shard_racks and flags.shard_nodes:
        raise _UsageError("--shard-racks and --shard-nodes: either")
    ways = [_by_racks(flags.shard_racks)] if flags.shard_racks else []
    for flag, label in {"nodes": "node", "runs": "run"}.items():
        patterns = getattr(flags, f"shard_{flag}")
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise _UsageError(f"--shard-{flag}: {pattern!r}: {error}") from None
        ways += [rule_shards.by_patterns(label, patterns)] if patterns else []
    if flags.shard and not ways:
        raise _UsageError("--shard needs --shard-nodes, --shard-racks or --shard-runs")
    return ways


def _by_racks(given: str) -> rule_shards.Shards:
    name, _, count = given.rpartition("=")
    if not (name and count.isdigit() and int(count) > 1):
        raise _UsageError(f"--shard-racks: {given!r} is not FILE=COUNT with two or more")
    racks: dict[str, set[str]] = {}
    try:
        for group in json.loads(Path(name).read_text(encoding="utf-8")):
            racks.setdefault(group["labels"].get("rack", ""), set()).add(group["labels"]["node"])
    except OSError as error:
        raise _UsageError(f"--shard-racks: {name}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _UsageError(f"--shard-racks: {name} is no JSON list of targets with the label node") from None
    if len(racks) < int(count):
        raise _UsageError(f"--shard-racks: {name} has {len(racks)} racks, fewer than {count}")
    return rule_shards.by_racks(racks, int(count))


def _rules(flags: argparse.Namespace) -> int:
    jobs, wrapping = _jobs(flags), _wrapping(flags)
    paths = sorted(flags.source.glob("*.rules.yaml"))
    if not paths:
        raise _UsageError(f"no *.rules.yaml in {flags.source}: give the folder alert_rules of this project")
    texts = {path.name: with_jobs(path.read_text(encoding="utf-8"), jobs) for path in paths}
    ways = _shards(flags)
    try:
        chosen = rule_shards.choose(texts, flags.shard, ways)
        for line in rule_shards.staged_groups(texts, chosen):
            sys.stdout.write(f"{line}\n")
        texts = {name: rule_shards.split(text, chosen) for name, text in texts.items()}
        if flags.evaluation_interval:
            texts = {name: rule_groups.slower(text, flags.evaluation_interval) for name, text in texts.items()}
        if flags.limits:
            texts = rule_groups.packed(texts)
    except NotSplitError as error:
        raise _UsageError(f"--shard: {error}") from None
    return _write(flags.folder, wrapped(texts, wrapping) if wrapping else texts)


def _version_line() -> str:
    try:
        version = metadata.version("pyrometer-dashboards")
    except metadata.PackageNotFoundError:  # run from a source tree
        version = "unknown"
    return f"%(prog)s, version {version} (python {'.'.join(map(str, sys.version_info[:3]))})"


class _UsageError(Exception):
    """The request can't be carried out; the message is one line."""


def _build(flags: argparse.Namespace) -> int:
    jobs, datasource = _jobs(flags), str(flags.datasource)
    if not re.fullmatch(r"[\w.-]+", datasource):
        raise _UsageError(f"--datasource: {datasource!r} can't be a type of data source")
    texts = {name: with_jobs(text, jobs) for name, text in rendered().items()}
    return _write(flags.folder, {name: _DATASOURCE.sub(rf"\1{datasource}\2", text) for name, text in texts.items()})


def _write(folder: Path, texts: Mapping[str, str]) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _UsageError(f"can't write to {folder}: {error.strerror}") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
