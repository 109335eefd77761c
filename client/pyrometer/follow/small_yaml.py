r"""The little of YAML that a file of patterns needs: words, lists, one level of mappings. The client has no library.

>>> parse("name: x # ours\nlines:\n  - 'a: (?P<step>.*)'\nunits: {seconds: ms}")
{'name': 'x', 'lines': ['a: (?P<step>.*)'], 'units': {'seconds': 'ms'}}
"""

from __future__ import annotations

import re
from typing import TypeAlias

Value: TypeAlias = str | list[str] | dict[str, str]

_KEY = re.compile(r"([A-Za-z_][\w-]*):(?:\s+(.*))?$")
_QUOTED = re.compile(r"""\s*(?:'((?:[^']|'')*)'|"((?:[^"\\]|\\.)*)")\s*(?:#.*)?$""")

# Within brackets: a quoted word where one may begin, a comment, or any other character.
_TOKEN = re.compile(r"""(?:^|(?<=[\[{,:]))\s*(?:'(?:[^']|'')*'|"(?:[^"\\]|\\.)*")|(?P<comment>\s\#.*)|.""", re.DOTALL)


def parse(text: str) -> dict[str, Value]:
    """Parse a file.

    Raises:
        ValueError: a line is none of ``key: word``, ``key: [a, b]``, ``key: {a: b}``, ``- word`` and ``key:``.
    """
    content: dict[str, Value] = {}
    open_key = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or stripped == "---":
            continue
        match = _KEY.match(stripped)
        if line[0].isspace() or stripped.startswith("- "):
            content[open_key] = _nested(content.get(open_key, ""), stripped, match, number)
        elif match is not None:
            open_key = match[1]
            content[open_key] = _value((match[2] or "").strip())
        else:
            raise ValueError(f"line {number} is not 'key: value': {stripped[:60]}")
    return content


def _nested(value: Value, line: str, match: re.Match[str] | None, number: int) -> Value:
    if line.startswith("- ") and (isinstance(value, list) or not value):
        return [*(value if isinstance(value, list) else ()), _word(line[2:])]
    if match is not None and (isinstance(value, dict) or not value):
        return {**(value if isinstance(value, dict) else {}), match[1]: _word(match[2] or "")}
    raise ValueError(f"line {number} does not belong to the key above: {line[:60]}")


def _value(text: str) -> Value:
    if not text.startswith(("[", "{")):
        return _word(text)
    whole = "".join(match[0] for match in _TOKEN.finditer(text) if match["comment"] is None).rstrip()
    if whole[0] == "[" and whole[-1] == "]":
        return [_word(item) for item in _items(whole[1:-1])]
    if whole[0] == "{" and whole[-1] == "}":
        pairs = (item.partition(":") for item in _items(whole[1:-1]))
        return {key.strip(): _word(value) for key, _, value in pairs}
    return _word(text)


def _items(text: str) -> list[str]:
    """Return what stands between the commas that are not within quotes."""
    items = [""]
    for match in _TOKEN.finditer(text):
        if match[0] == ",":
            items.append("")
        else:
            items[-1] += match[0]
    return [item for item in items if item.strip()]


def _word(text: str) -> str:
    quoted = _QUOTED.match(text)
    if quoted is None:
        return re.sub(r"(?:^|\s)#.*$", "", text).strip()
    if quoted[1] is not None:
        return quoted[1].replace("''", "'")
    return re.sub(r'\\(["\\])', r"\1", quoted[2])
