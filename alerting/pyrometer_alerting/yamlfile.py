"""YAML read strictly: every error names file and line, no key twice, no aliases, nothing unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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


@dataclass(frozen=True)
class Node:
    """A part of a file with its place (`file:line`): a text, a list, or a mapping."""

    value: str | list[Node] | dict[str, Node]
    place: str

    def text(self) -> str:
        """The text, or SettingsError."""
        if not isinstance(self.value, str):
            raise SettingsError(f"{self.place}: expected a plain text")
        return self.value

    def items(self) -> list[Node]:
        """The list, or SettingsError."""
        if not isinstance(self.value, list):
            raise SettingsError(f"{self.place}: expected a list")
        return self.value

    def fields(self, known: Collection[str] | None = None) -> dict[str, Node]:
        """The mapping, or SettingsError; with `known` nothing else may be in it."""
        if not isinstance(self.value, dict):
            raise SettingsError(f"{self.place}: expected settings as `name: value`")
        for name, node in self.value.items():
            if known is not None and name not in known:
                raise SettingsError(f"{node.place}: unknown setting {name}; known are {', '.join(sorted(known))}")
        return self.value


def subtree(path: Path, name: str) -> Node | None:
    """What stands under a top-level name; None when it is not there."""
    root = _compose(path)
    if not isinstance(root, yaml.MappingNode):
        return None
    list(_walk(path, "", root, set(), lists=True))  # no alias, no key twice
    found = (value for key, value in root.value if key.value == name)
    return next((_node(path, value) for value in found), None)


def _node(path: Path, node: yaml.Node) -> Node:
    place = f"{path}:{node.start_mark.line + 1}"
    if isinstance(node, yaml.SequenceNode):
        return Node([_node(path, item) for item in node.value], place)
    if isinstance(node, yaml.MappingNode):
        return Node({str(key.value): _keyed(path, key, value) for key, value in node.value}, place)
    return Node("" if node.tag.endswith(":null") else str(node.value), place)


def _keyed(path: Path, key: yaml.Node, value: yaml.Node) -> Node:
    """A value at the place of its name: a mapping begins one line later."""
    return Node(_node(path, value).value, f"{path}:{key.start_mark.line + 1}")


def entries(path: Path, skip: Collection[str] = ()) -> list[Entry]:
    """All scalars of a YAML mapping of mappings, by dotted path, less the top-level names to `skip`."""
    root = _compose(path)
    if isinstance(root, yaml.MappingNode):
        root.value = [(key, value) for key, value in root.value if key.value not in skip]
    return [] if root is None else list(_walk(path, "", root, set()))


def _compose(path: Path) -> yaml.Node | None:
    text = read_text(path)
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path}{line}: malformed YAML: {error.problem or 'cannot be parsed'}") from None
    except (yaml.YAMLError, RecursionError):
        raise SettingsError(f"{path}: malformed YAML") from None


def _walk(path: Path, prefix: str, node: yaml.Node, seen: set[int], *, lists: bool = False) -> Iterator[Entry]:
    place = f"{path}:{node.start_mark.line + 1}"
    if id(node) in seen:
        raise SettingsError(f"{place}: YAML aliases are not supported: write the value out")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if not prefix:
            raise SettingsError(f"{place}: expected settings as `name: value`")
        yield Entry(prefix, "" if node.tag.endswith(":null") else str(node.value), place)
    elif isinstance(node, yaml.MappingNode):
        yield from _walk_mapping(path, prefix, node, seen, lists=lists)
    elif lists and isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _walk(path, f"{prefix}[]", item, seen, lists=True)
    else:
        raise SettingsError(f"{place}: {prefix or 'the file'} must not be a list")


def _walk_mapping(path: Path, prefix: str, node: yaml.MappingNode, seen: set[int], *, lists: bool) -> Iterator[Entry]:
    names: set[str] = set()
    for key, value in node.value:
        place = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise SettingsError(f"{place}: a name must be plain text")
        if key.value in names:
            raise SettingsError(f"{place}: {key.value} is given twice")
        names.add(key.value)
        yield from _walk(path, f"{prefix}.{key.value}" if prefix else str(key.value), value, seen, lists=lists)
