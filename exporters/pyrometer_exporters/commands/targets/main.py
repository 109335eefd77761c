"""The program ``pyrometer-targets``: write nodes.yaml, hosts.yaml and cluster.yaml for Prometheus.

    sinfo | pyrometer-targets --cluster=h100 --output=compose/targets
    sinfo --Node --noheader --format='%N %f' | pyrometer-targets --cluster=h100 --rack='rack=([a-z0-9]+)'
    pyrometer-targets --cluster=h100 hosts.txt         # a line: gpu-[001-016] r01

Prometheus reads changed files on its own. Nothing is written if the list looks wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyrometer_exporters.commands.targets.nodes import parse
from pyrometer_kit.command_line import add_version_flag
from pyrometer_kit.errors import UsageError, fail
from pyrometer_kit.flags import Flags, regexp

PROG = "pyrometer-targets"
# A scheduler that is starting, or a wrong filter, lists only a few nodes; half a cluster seldom goes at once.
LEAST_SHARE_KEPT = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Read, check and write; return the exit status."""
    flags = _parser().parse_args(argv)
    try:
        racks = {name: rack for name, rack in parse(_lines(flags.file), flags.rack).items() if _wanted(flags, name)}
        if not racks:
            raise UsageError("no node in the list: nothing was written")
        _check_loss(flags, racks)
        for file, text in _files(flags, racks):
            _write(flags.output / file, text)
    except UsageError as error:
        return fail(PROG, error)
    known = len({rack for rack in racks.values() if rack})
    sys.stdout.write(f"{len(racks)} nodes in {known} known racks: written to {flags.output}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    flags = Flags(PROG, "Write targets for Prometheus from a host list or from sinfo.")
    add_version_flag(flags, "pyrometer-exporters")
    add = flags.add_argument
    add("file", nargs="?", type=Path, metavar="FILE", help="the list (default: standard input)")
    add("--cluster", required=True, metavar="NAME", help="label of every target")
    add(
        "--rack",
        type=_pattern,
        metavar="REGEXP",
        help="regular expression for the rack in a line or a name; its group is the rack",
    )
    add("--include", type=regexp, metavar="REGEXP", help="only these nodes")
    add("--exclude", type=regexp, metavar="REGEXP", help="skip these nodes")
    add(
        "--suffix",
        default="",
        metavar="TEXT",
        help="suffix added to each name to form its address, such as .cluster.local",
    )
    add("--port", type=int, default=9935, help="port of the node exporter (default: %(default)s)")
    add(
        "--host-port",
        type=int,
        default=9100,
        help="port of node_exporter on the same nodes; 0 for none (default: %(default)s)",
    )
    add("--cluster-exporter", default="cluster:9936", metavar="HOST:PORT",
        help="the cluster exporter; empty for none (default: %(default)s)")  # fmt: skip
    add(
        "--output",
        type=Path,
        default=Path("compose/targets"),
        metavar="DIR",
        help="folder of the files (default: %(default)s)",
    )
    add("--force", action="store_true", help="write even if more than half of the nodes would be removed")
    return flags


def _pattern(text: str) -> re.Pattern[str]:
    try:
        found = re.compile(text)
    except re.error as error:
        msg = f"{text!r} is not a regular expression: {error}"
        raise argparse.ArgumentTypeError(msg) from None
    if found.groups < 1:
        msg = f"{text!r} has no group: put the part that is the rack into parentheses, such as rack=(\\w+)"
        raise argparse.ArgumentTypeError(msg)
    return found


def _lines(path: Path | None) -> list[str]:
    # A reason or a comment is bytes that somebody typed, in whatever encoding.
    try:
        data = sys.stdin.buffer.read() if path is None else path.read_bytes()
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise UsageError(msg) from None
    return data.decode("utf-8", "replace").splitlines()


def _wanted(flags: argparse.Namespace, name: str) -> bool:
    included = flags.include is None or flags.include.match(name)
    return bool(included and not (flags.exclude and flags.exclude.match(name)))


def _check_loss(flags: argparse.Namespace, racks: Mapping[str, str]) -> None:
    path = flags.output / "nodes.yaml"
    try:
        before = set(re.findall(r'"node": "([^"]*)"', path.read_text(encoding="utf-8")))
    except OSError:
        return
    lost = before - set(racks)
    if not flags.force and len(lost) > LEAST_SHARE_KEPT * len(before):
        msg = (
            f"{len(lost)} of {len(before)} nodes of {path} would be removed: nothing was written; use "
            "--force to write anyway"
        )
        raise UsageError(msg)


def _files(flags: argparse.Namespace, racks: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "nodes.yaml", _groups(flags, racks, flags.port)
    if flags.host_port:
        yield "hosts.yaml", _groups(flags, racks, flags.host_port)
    if flags.cluster_exporter:
        labels = {"cluster": flags.cluster}
        yield "cluster.yaml", f"- {json.dumps({'targets': [flags.cluster_exporter], 'labels': labels})}\n"


def _groups(flags: argparse.Namespace, racks: Mapping[str, str], port: int) -> str:
    """Return a line of JSON, which is YAML, for each node."""
    lines = [f"# Written by {PROG}: changes are lost."]
    for name, rack in racks.items():
        labels = {"cluster": flags.cluster, "node": name} | ({"rack": rack} if rack else {})
        lines.append(f"- {json.dumps({'targets': [f'{name}{flags.suffix}:{port}'], 'labels': labels})}")
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    """Replace the file atomically: Prometheus may read it at any moment."""
    hidden = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hidden.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        hidden.chmod(0o644)  # Prometheus is another user
        hidden.rename(path)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise UsageError(msg) from None


if __name__ == "__main__":
    sys.exit(main())
