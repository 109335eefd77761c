"""YAML read strictly: every error names file and line, no key twice, no aliases, nothing unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

MAX_BYTES = 1 << 20


class SettingsError(Exception):
    """Something the operator must change; one line that names it and the way out."""


@dataclass(frozen=True)
class Entry:
    """A scalar at a dotted path; `place` is `file:line`."""

    path: str
    value: str
    place: str


def read_text(path: Path) -> str:
    """A small text file, or SettingsError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or 'cannot be read'}") from None
    if len(raw) > MAX_BYTES:
        raise SettingsError(f"{path}: larger than 1 MiB: not a configuration file")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8 text") from None


def entries(path: Path) -> list[Entry]:
    """All scalars of a YAML mapping of mappings, by dotted path; an empty file has none."""
    text = read_text(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path}{line}: malformed YAML: {error.problem or 'cannot be parsed'}") from None
    except (yaml.YAMLError, RecursionError):
        raise SettingsError(f"{path}: malformed YAML") from None
    return [] if root is None else list(_walk(path, "", root, set()))


def _walk(path: Path, prefix: str, node: yaml.Node, seen: set[int]) -> Iterator[Entry]:
    place = f"{path}:{node.start_mark.line + 1}"
    if id(node) in seen:
        raise SettingsError(f"{place}: YAML aliases are not supported: write the value out")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if not prefix:
            raise SettingsError(f"{place}: expected settings as `name: value`")
        yield Entry(prefix, "" if node.tag.endswith(":null") else str(node.value), place)
    elif isinstance(node, yaml.MappingNode):
        yield from _walk_mapping(path, prefix, node, seen)
    else:
        raise SettingsError(f"{place}: {prefix or 'the file'} must not be a list")


def _walk_mapping(path: Path, prefix: str, node: yaml.MappingNode, seen: set[int]) -> Iterator[Entry]:
    names: set[str] = set()
    for key, value in node.value:
        place = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise SettingsError(f"{place}: a name must be plain text")
        if key.value in names:
            raise SettingsError(f"{place}: {key.value} is given twice")
        names.add(key.value)
        yield from _walk(path, f"{prefix}.{key.value}" if prefix else str(key.value), value, seen)
