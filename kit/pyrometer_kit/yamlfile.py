"""YAML read strictly: every error names file and line; no duplicate key, no alias, no tag, no unknown setting."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from pyrometer_kit.errors import UsageError

MAX_BYTES = 1 << 20
_KINDS = {str: "text", list: "list", dict: "mapping"}
_PREFIX = "tag:yaml.org,2002:"
_TAGS = {f"{_PREFIX}{kind}" for kind in ("str", "null", "bool", "int", "float", "timestamp", "seq", "map", "value")}
_NULL = f"{_PREFIX}null"


@dataclass(frozen=True)
class Node:
    """A part of a file with its place (``file:line``): a text, a list, or a mapping; null is an empty text."""

    value: str | list[Node] | dict[str, Node]
    place: str

    @property
    def kind(self) -> str:
        """``text``, ``list`` or ``mapping``."""
        return _KINDS[type(self.value)]

    def text(self) -> str:
        """Return the text.

        Raises:
            UsageError: It is a list or a mapping.
        """
        if not isinstance(self.value, str):
            raise UsageError(f"{self.place}: expected a plain text, found a {self.kind}")
        return self.value

    def items(self) -> list[Node]:
        """Return the items of the list.

        Raises:
            UsageError: It is no list.
        """
        if not isinstance(self.value, list):
            raise UsageError(f"{self.place}: expected a list, found a {self.kind}")
        return self.value

    def fields(self, names: Collection[str] | None = None) -> dict[str, Node]:
        """Return the fields of the mapping.

        Raises:
            UsageError: It is no mapping, or has another name than these ``names``.
        """
        if not isinstance(self.value, dict):
            raise UsageError(f"{self.place}: expected settings as `name: value`, found a {self.kind}")
        for name, node in self.value.items():
            if names is not None and name not in names:
                raise UsageError(f"{node.place}: unknown setting {name}; known are {', '.join(sorted(names))}")
        return self.value


@dataclass(frozen=True)
class Entry:
    """A scalar at a dotted path; ``place`` is ``file:line``."""

    path: str
    value: str
    place: str


def read(path: Path) -> dict[str, Node]:
    """Return the settings at the top of a file; an empty file has none.

    Raises:
        UsageError: The file cannot be read or is not strict YAML.
    """
    root = _compose(path)
    return {} if root is None else _converted(path, root, set()).fields()


def entries(settings: Mapping[str, Node]) -> Iterator[Entry]:
    """Yield all scalars of nested mappings by dotted path.

    Raises:
        UsageError: There is a list among them.
    """
    for name, node in settings.items():
        if isinstance(node.value, dict):
            yield from entries({f"{name}.{inner}": value for inner, value in node.value.items()})
        elif isinstance(node.value, list):
            raise UsageError(f"{node.place}: {name} must not be a list")
        else:
            yield Entry(name, node.value, node.place)


def read_text(path: Path) -> str:
    """Return the text of a small file.

    Raises:
        UsageError: It cannot be read, is larger than 1 MiB, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise UsageError(f"can't read {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: larger than 1 MiB: not a configuration file")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None


def _compose(path: Path) -> yaml.Node | None:
    text = read_text(path)
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{path}{line}: not valid YAML: {error.problem or 'it cannot be parsed'}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise UsageError(f"{path}: not valid YAML") from None


def _converted(path: Path, node: yaml.Node, seen: set[int]) -> Node:
    place = f"{path}:{node.start_mark.line + 1}"
    if id(node) in seen:
        raise UsageError(f"{place}: YAML aliases are not supported: write the value out")
    seen.add(id(node))
    if node.tag not in _TAGS:
        raise UsageError(f"{place}: not valid YAML: the tag {node.tag} is not supported")
    if isinstance(node, yaml.SequenceNode):
        return Node([_converted(path, item, seen) for item in node.value], place)
    if isinstance(node, yaml.MappingNode):
        return Node(_fields(path, node, seen), place)
    return Node("" if node.tag == _NULL else str(node.value), place)


def _fields(path: Path, node: yaml.MappingNode, seen: set[int]) -> dict[str, Node]:
    fields: dict[str, Node] = {}
    for key, value in node.value:
        # The place of the name: a mapping itself begins one line later.
        place = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise UsageError(f"{place}: not valid YAML: a name must be plain text")
        if key.value in fields:
            raise UsageError(f"{place}: {key.value} is given twice")
        fields[str(key.value)] = Node(_converted(path, value, seen).value, place)
    return fields
