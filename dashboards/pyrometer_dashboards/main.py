"""Write the boards for Grafana's provisioning, check boards, and open them in a running Grafana."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from pyrometer_dashboards import board_file, boards, grafana_json, rule_shards
from pyrometer_dashboards.lint import run, schema
from pyrometer_dashboards.model import Board
from pyrometer_dashboards.prometheus_rules import Wrapping, wrapped
from pyrometer_dashboards.rule_stages import NotSplitError
from pyrometer_dashboards.screenshots.boards import (
    BEGIN,
    END,
    SCREENS,
    View,
    pixels,
    replace_between_marks,
    timing_table,
    visit_boards,
)
from pyrometer_dashboards.screenshots.browser import BrowserError

# The jobs of compose/prometheus/prometheus.yaml that rules and boards select by name.
JOBS = {"node": "the node exporters", "cluster": "the cluster exporter"}
# In a rule's text, and in a board's JSON, where quotes are escaped.
_JOB = re.compile(rf'(\bjob=\\?")({"|".join(JOBS)})(\\?")')


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def all_boards() -> dict[str, Board]:
    """Return all boards by file name."""
    found = {}
    for module in pkgutil.iter_modules(boards.__path__, f"{boards.__name__}."):
        name = f"{module.name.rpartition('.')[2].replace('_', '-')}.json"
        found[name] = importlib.import_module(module.name).board()
    return found


def rendered() -> dict[str, str]:
    """Return all boards as JSON text by file name."""
    return dict(_texts())


@cache
def _texts() -> dict[str, str]:
    return {name: grafana_json.to_json(board) for name, board in all_boards().items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 1 if a check or a board failed, 2 if the program could not run."""
    parser = _Flags(prog="pyrometer-dashboards", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_version_line(), help="Print the version and exit.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Flags)
    build = commands.add_parser("build", help="write all boards to a folder")
    build.add_argument("folder", type=Path)
    rules = commands.add_parser("rules", help="write the alert rules of a folder to another, for your names of jobs")
    rules.add_argument("source", type=Path, help="the folder alert_rules of this project")
    rules.add_argument("folder", type=Path)
    _add_prometheus_rules(rules)
    _add_shards(rules)
    for command in (build, rules):
        _add_jobs(command)
    check = commands.add_parser("check", help="check our boards, or the given files; one line per finding")
    check.add_argument("files", type=Path, nargs="*", metavar="FILE")
    _add_see(
        commands.add_parser(
            "see", help="open the boards in a running Grafana: errors, load times, differences on Save, screenshots"
        )
    )
    flags = parser.parse_args(argv)
    commands_of = {
        "build": lambda: _build(flags.folder, _jobs(flags)),
        "rules": lambda: _rules(flags),
        "check": lambda: _check(flags.files),
        "see": lambda: _see(flags),
    }
    try:
        return commands_of[flags.command]()
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
    return _JOB.sub(lambda found: f"{found[1]}{jobs[found[2]]}{found[3]}", text)


def _add_prometheus_rules(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--prometheus-rules",
        action="store_true",
        help="write PrometheusRules of the Prometheus operator, with a kustomization.yaml, instead of rule files",
    )
    command.add_argument(
        "--namespace", default="pyrometer", help="namespace of the PrometheusRules (default: %(default)s)"
    )
    command.add_argument(
        "--label",
        action="append",
        metavar="NAME=VALUE",
        help="label that the operator's Prometheus selects PrometheusRules by; may be repeated (default:"
        " release=kube-prometheus-stack)",
    )


def _wrapping(flags: argparse.Namespace) -> Wrapping | None:
    if not flags.prometheus_rules:
        return None
    pairs = [text.partition("=") for text in flags.label or ["release=kube-prometheus-stack"]]
    wrong = ["".join(pair) for pair in pairs if not (pair[0] and pair[1])]
    if wrong:
        raise _UsageError(f"--label: {wrong[0]!r} is not NAME=VALUE")
    return Wrapping(flags.namespace, {name: value for name, _, value in pairs})


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
    found = [_by_racks(flags.shard_racks)] if flags.shard_racks else []
    for flag, label in {"nodes": "node", "runs": "run"}.items():
        patterns = getattr(flags, f"shard_{flag}")
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise _UsageError(f"--shard-{flag}: {pattern!r}: {error}") from None
        found += [rule_shards.by_patterns(label, patterns)] if patterns else []
    if flags.shard and not found:
        raise _UsageError("--shard needs --shard-nodes, --shard-racks or --shard-runs")
    return found


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
    except NotSplitError as error:
        raise _UsageError(f"--shard: {error}") from None
    return _write(flags.folder, wrapped(texts, wrapping) if wrapping else texts)


def _add_see(see: argparse.ArgumentParser) -> None:
    def add(flag: str, text: str, **more: Any) -> None:  # noqa: ANN401  argparse's own keywords
        see.add_argument(flag, help=text, **more)

    add("--grafana-url", "address of a Grafana that has the boards and allows anonymous read access", required=True)
    again = {"action": "append", "default": []}
    add("--board", "open only this board, such as overview; may be repeated", metavar="NAME", **again)
    add("--pictures", "write a screenshot of each board to this folder", metavar="FOLDER", type=Path)
    add("--theme", "default: dark; may be repeated", choices=("dark", "light"), **again)
    add("--size", "size of the browser window; default: 1600x900; may be repeated", metavar="WIDTHxHEIGHT", **again)
    add("--screens", "open the boards on the screens that people have, most with the menu docked", action="store_true")
    add("--from", "start of the time range, in Grafana's notation (default: now-1h)", dest="start", default="now-1h")
    add("--to", "end of the time range (default: now)", dest="end", default="now")
    add("--rounds", "number of times that each board is opened (default: 1)", metavar="N", type=int, default=1)
    add("--write", f"write the load times to FILE as a table, between {BEGIN} and {END}", metavar="FILE", type=Path)
    add("--texts", "write the text that can be read on each screen to FILE, as JSON", metavar="FILE", type=Path)
    add("--variable", "value of a board variable; may be repeated", metavar="NAME=VALUE", **again)
    several = "a named set of variable values; repeat it to open the boards with each set in turn"
    add("--case", several, metavar="CASE:NAME=VALUE[,...]", **again)


def _version_line() -> str:
    try:
        version = metadata.version("pyrometer-dashboards")
    except metadata.PackageNotFoundError:  # run from a source tree
        version = "unknown"
    return f"%(prog)s, version {version} (python {'.'.join(map(str, sys.version_info[:3]))})"


class _UsageError(Exception):
    """The request can't be carried out; the message is one line."""


def _build(folder: Path, jobs: Mapping[str, str]) -> int:
    return _write(folder, {name: with_jobs(text, jobs) for name, text in rendered().items()})


def _write(folder: Path, texts: Mapping[str, str]) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _UsageError(f"can't write to {folder}: {error.strerror}") from None
    return 0


def _check(files: Sequence[Path]) -> int:
    ours = {name: json.loads(text) for name, text in rendered().items()}
    boards, refused = _read(files) if files else (ours, [])
    context = run.load_context(Path(__file__).parents[2], boards, ours)
    found = 0
    for finding in run.findings(boards, context, ours=not files):
        sys.stdout.write(finding.line() + "\n")
        found += 1
    if boards and not schema.sdk_available():
        sys.stderr.write("round trip not checked: grafana-foundation-sdk is not installed\n")
    for line in refused:
        sys.stderr.write(f"pyrometer-dashboards: {line}\n")
    if boards:
        sys.stderr.write(f"{len(boards)} board{'s' * (len(boards) != 1)}, {found} finding{'s' * (found != 1)}\n")
    return 2 if refused else bool(found)


def _read(files: Sequence[Path]) -> tuple[dict[str, Any], list[str]]:
    """Return the boards by file, and an error for each file without a board: the others are checked all the same."""
    boards, refused = {}, []
    for path in files:
        try:
            boards[str(path)] = board_file.read(path)
        except board_file.NotABoardError as error:
            refused.append(str(error))
    return boards, refused


def _see(flags: argparse.Namespace) -> int:
    if flags.rounds < 1:
        raise _UsageError("--rounds must be at least 1")
    chosen = {name: text for name, text in rendered().items() if not flags.board or Path(name).stem in flags.board}
    if not chosen:
        raise _UsageError(f"no board is named {', '.join(flags.board)}")
    visits = []
    try:
        views = list(_views(flags))
        for visit in visit_boards(chosen, flags.grafana_url, views, flags.pictures, flags.rounds):
            sys.stdout.write(visit.line() + "\n")
            sys.stdout.flush()
            visits.append(visit)
        if flags.texts is not None:
            texts = {visit.view.label(visit.board): visit.page.texts for visit in visits}
            flags.texts.write_text(json.dumps(texts, indent=2) + "\n", encoding="utf-8")
        if flags.write is not None:
            replace_between_marks(flags.write, timing_table(visits, views[0].size))
    except (BrowserError, OSError, ValueError) as error:
        raise _UsageError(str(error)) from None
    return 1 if any(visit.problems for visit in visits) else 0


def _views(flags: argparse.Namespace) -> Iterator[View]:
    """Yield every case in every theme and size."""
    common = _choices(flags.variable)
    screens = SCREENS if flags.screens else [(pixels(size), False) for size in flags.size or ["1600x900"]]
    for case, theme, (size, menu) in product(flags.case or [":"], flags.theme or ["dark"], screens):
        name, _, given = case.partition(":")
        own = _choices(given.split(",") if given else [])
        yield View(theme, (flags.start, flags.end), size, common | own, name, menu)


def _choices(given: Sequence[str]) -> dict[str, str]:
    if not all("=" in each for each in given):
        raise _UsageError(
            "--variable needs NAME=VALUE such as node=gpu-042, --case CASE:NAME=VALUE such as hot:node=gpu-042"
        )
    return dict(each.split("=", 1) for each in given)


if __name__ == "__main__":
    sys.exit(main())
