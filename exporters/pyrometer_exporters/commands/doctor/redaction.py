"""Replace what identifies a site in texts and tapes: serial numbers, UUIDs, hosts, users, jobs, runs, addresses.

A replacement has the length and the shape of the original (digits for digits, letters for letters), is the same
throughout one report, and differs between reports: its key is random and thrown away.
"""

from __future__ import annotations

import hmac
import itertools
import re
import secrets
import string
from collections.abc import Iterable, Iterator

SECRET_LABELS = frozenset(
    {
        *("Hostname", "UUID", "account", "cable", "cluster", "cluster_uuid", "command", "container", "guid", "host"),
        *("hostname", "instance", "job_id", "job_name", "mac", "mig_uuid", "namespace", "node", "partition", "pod"),
        *("process", "run", "serial", "switch", "tag", "user", "uuid", "value", "workload"),
    }
)
"""Labels whose values are replaced; models, versions, reasons and numbers of devices stay."""
_LEAST_TEXT, _LEAST_NUMBER, _LEAST_HEX = 3, 8, 6  # shorter ones would also hit what means something else
_LABEL = r'(?P<name>[A-Za-z_]\w*)="(?P<value>(?:[^"\\]|\\.)*)"'
# These are secret wherever they are found: UUIDs of GPUs, MAC addresses (InfiniBand's have 8 or 20
# bytes), IPv4 addresses but those that every host has. Versions of VBIOS have five parts.
_UUID = r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SHAPES = (
    rf"(?P<shape>\b{_UUID}\b"
    r"|\b(?:[0-9a-fA-F]{2}:){5,19}[0-9a-fA-F]{2}\b"
    r"|(?<![\w.])(?!127\.0\.0\.1\b|0\.0\.0\.0\b)(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?![\w.]))"
)
_CLASSES = (string.digits, "abcdef", string.ascii_lowercase, "ABCDEF", string.ascii_uppercase)


class Redactor:
    """Redacts one report; learn every secret first, as a text may name one that another has as a label."""

    def __init__(self, known: Iterable[str] = (), key: bytes = b"") -> None:
        self._key = key or secrets.token_bytes(32)
        self._known: set[str] = set()
        self.learn(known)

    def learn(self, values: Iterable[str]) -> None:
        """Add values that are secret wherever they stand as a word, but for short ones."""
        self._known.update(
            value for value in values if len(value) >= (_LEAST_NUMBER if value.isdecimal() else _LEAST_TEXT)
        )

    def learn_host(self, name: str) -> None:
        """Add a host's name, however short, with and without its domain."""
        self._known.update(filter(None, (name, name.partition(".")[0])))

    def learn_page(self, page: str) -> None:
        """Add the values of secret labels of a page of metrics."""
        self.learn(match["value"] for match in re.finditer(_LABEL, page) if match["name"] in SECRET_LABELS)

    def pseudonym(self, value: str) -> str:
        """Return a replacement of the same length and shape; the prefix of a GPU's UUID stays."""
        kept = value[:4] if re.fullmatch(_UUID, value) else ""
        rest = value[len(kept) :]
        is_hex = bool(rest) and all(char in string.hexdigits or not char.isalnum() for char in rest)
        numbers = self._numbers(value)
        return kept + "".join(_replaced(char, next(numbers), is_hex=is_hex) for char in rest)

    def text(self, content: str) -> str:
        """Return a text, a page of metrics or a log, with every secret replaced."""
        plain = self._pattern(_SHAPES)

        def inner(text: str) -> str:
            return plain.sub(lambda match: self.pseudonym(match[0]), text)

        def replaced(match: re.Match[str]) -> str:
            name, value = match["name"], match["value"]
            if name is None:
                return self.pseudonym(match[0])
            return f'{name}="{self.pseudonym(value) if name in SECRET_LABELS else inner(value)}"'

        # One pass: what was replaced once must not be replaced again.
        return self._pattern(f"{_LABEL}|{_SHAPES}").sub(replaced, content)

    def tape(self, content: str) -> str:
        """Return a tape, in which texts stand as hexadecimal bytes, with every secret replaced."""
        for value in sorted(self._known, key=len, reverse=True):
            if len(value) >= _LEAST_HEX:
                content = content.replace(value.encode().hex(), self.pseudonym(value).encode().hex())
        return self.text(content)

    def _numbers(self, value: str) -> Iterator[int]:
        for block in itertools.count():
            yield from hmac.digest(self._key, f"{block}:{value}".encode(errors="replace"), "sha256")

    def _pattern(self, shapes: str) -> re.Pattern[str]:
        ordered = sorted(self._known, key=len, reverse=True)
        words = rf"|(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, ordered))})(?![A-Za-z0-9])" if ordered else ""
        return re.compile(shapes + words)


def _replaced(char: str, number: int, *, is_hex: bool) -> str:
    members = next(
        (letters for letters in _CLASSES if char in letters and (is_hex or len(letters) != len("abcdef"))), ""
    )
    return members[number % len(members)] if members else char
