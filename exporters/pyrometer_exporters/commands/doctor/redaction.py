"""Let only words on an allow list out of a site: our own programs', the driver's, and numbers. All else is replaced.

Names of people, runs, hosts, paths, services and addresses are in no list of ours, so nobody has to think of them. A
replacement has the length and the shape of the original (digits for digits, letters for letters), is the same
throughout one report, and differs between reports: its key is random and thrown away.
"""

from __future__ import annotations

import hmac
import itertools
import json
import re
import secrets
import string
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pyrometer_exporters.commands.doctor.vocabulary import WORD, vocabulary

HARDWARE_LABELS = frozenset(
    {
        *("DCGM_FI_DRIVER_VERSION", "GPU_I_PROFILE", "board", "brand", "driver", "firmware", "inforom_ecc"),
        *("inforom_image", "inforom_oem", "inforom_power", "kernel_module", "library", "modelName", "nvml", "vbios"),
    }
)
"""Labels whose values stay: the driver and the firmware write them, no person."""
OUR_LABELS = frozenset(
    {
        *("GPU_I_ID", "attempt", "attribution", "bound", "cause", "caused_by", "certain", "check", "class"),
        *("collective", "collector", "comm_nodes", "comm_ranks", "compute_instance", "convention", "counter"),
        *("device", "dtype", "err_code", "err_msg", "error", "exit", "file", "format", "global_batch_size", "gpu"),
        *("gpu_instance", "gpu_model", "implementation", "kind", "le", "link", "link_layer", "local_rank", "location"),
        *("major", "method", "micro_batch_size", "minor", "mode", "model", "msg", "nccl_version", "netdev", "nodes"),
        *("numa_node", "part", "patchlevel", "pci_bus_id", "pipe", "port", "problem", "quantile", "rank", "ranks"),
        *("reason", "recompute", "repair", "replica", "revision", "sensor", "sequence_length", "setting", "severity"),
        *("size_class", "source", "stage", "stat", "state", "sxid", "test", "tier", "timing", "tool", "unit"),
        *("version", "world_size", "xid"),
    }
)
"""Labels whose values stay as far as their words are on the list. Values of all other labels are replaced."""
_LEAST_TEXT, _LEAST_NUMBER = 3, 8  # shorter ones would also hit what means something else
# From a word's begin: in the digits of a tape every place would be tried else.
LABEL = r'\b(?P<name>[A-Za-z_]\w*)="(?P<value>(?:[^"\\]|\\.)*)"'
# These are secret wherever they are found: UUIDs of GPUs, MAC addresses (InfiniBand's have 8 or 20
# bytes), IPv4 addresses but those that every host has. Versions of VBIOS have five parts.
_UUID = r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SHAPES = (
    rf"(?P<shape>\b{_UUID}\b"
    r"|\b(?:[0-9a-fA-F]{2}:){5,19}[0-9a-fA-F]{2}\b"
    r"|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){1,7}(?::[0-9a-fA-F]{1,4}){1,7}(?!\w|:\w)"  # IPv6, shortened and whole
    r"|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}(?!\w|:\w)"
    r"|(?<![\w.])(?!127\.0\.0\.1\b|0\.0\.0\.0\b)(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?![\w.]))"
)
# Escapes, times, addresses on the PCI bus, numbers with their unit or exponent.
_PLAIN = (
    r"(?P<plain>\\[nrt\\\"]|\d{4}-\d\d-\d\dT[\d:.]+Z?"
    r"|(?<![\w:])[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?(?![\w:])"
    r"|\b0x[0-9a-fA-F]{1,8}\b|(?<![^\W_])\d+(?:\.\d+)*(?:e[+-]?\d+|[A-Za-z]{1,3})?(?![^\W_]))"
)
_CLASSES = (string.digits, "abcdef", string.ascii_lowercase, "ABCDEF", string.ascii_uppercase)
# Two are longer than a word: the mark of a system's release, a name of ours with a number.
_NUMBERED = re.compile(r"([^\W\d_]+)\d+")
_SHORT = 2
# In the driver's answers: a text, or a piece of one among numbers.
_IN_ANSWER = re.compile(rb"[ -~]{8,}")
_LEAST_ANSWER = 6

Json = Any


class Redactor:
    """Redacts one report; learn every secret first, as a text may name one that another has as a label."""

    def __init__(self, known: Iterable[str] = (), key: bytes = b"", words: Collection[str] | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._words = vocabulary() if words is None else frozenset(words)
        self._known: set[str] = set()
        self.learn(known)

    def allow(self, texts: Iterable[str]) -> None:
        """Add the words of texts that no person writes, such as the models of GPUs."""
        self._words |= {word for text in texts for word in WORD.findall(text.lower())}

    def learn(self, values: Iterable[str]) -> None:
        """Add values that are secret wherever they stand, but for short ones and words of our own.

        A run may be called train: in a sentence, or in the name of a metric, that says nothing.
        """
        self._known.update(
            value
            for value in values
            if len(value) >= (_LEAST_NUMBER if value.isdecimal() else _LEAST_TEXT) and value.lower() not in self._words
        )

    def learn_host(self, name: str) -> None:
        """Add a host's name, however short, with and without its domain."""
        self._known.update(filter(None, (name, name.partition(".")[0])))

    def learn_page(self, page: str) -> None:
        """Learn from the labels of a page of metrics what is hardware's and what is a secret."""
        labels = [(match["name"], match["value"]) for match in re.finditer(LABEL, page)]
        self.allow({value for name, value in labels if name in HARDWARE_LABELS})
        self.learn({value for name, value in labels if name not in HARDWARE_LABELS | OUR_LABELS})

    def pseudonym(self, value: str) -> str:
        """Return a replacement of the same length and shape; the prefix of a GPU's UUID stays."""
        kept = value[:4] if re.fullmatch(_UUID, value) else ""
        rest = value[len(kept) :]
        is_hex = bool(rest) and all(char in string.hexdigits or not char.isalnum() for char in rest)
        numbers = self._numbers(value)
        return kept + "".join(_replaced(char, next(numbers), is_hex=is_hex) for char in rest)

    def text(self, content: str) -> str:
        """Return a text, a page of metrics or a log, without what is not on the list."""
        ordered = sorted(self._known, key=len, reverse=True)
        known = rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, ordered))})(?![A-Za-z0-9])" if ordered else r"(?!)"
        rest = rf"(?P<known>{known})|{_SHAPES}|{_PLAIN}|(?P<word>{WORD.pattern})"
        within = re.compile(rest)

        def filtered(match: re.Match[str]) -> str:
            if match["plain"] or (match["word"] and self._is_allowed(match["word"])):
                return match[0]
            return self.pseudonym(match[0])

        def replaced(match: re.Match[str]) -> str:
            name, value = match["name"], match["value"]
            if name is None:
                return filtered(match)
            stays = name in HARDWARE_LABELS | OUR_LABELS
            value = within.sub(filtered, value) if stays else self.pseudonym(value)
            return f'{within.sub(filtered, name)}="{value}"'

        # One pass: what was replaced once must not be replaced again.
        return re.sub(f"{LABEL}|{rest}", replaced, content)

    def json(self, content: str) -> str:
        """Return a document of JSON, each text of which is filtered."""
        return json.dumps(self._filled(json.loads(content)), indent=2) + "\n"

    def tape(self, content: str) -> str:
        """Return a tape, in which texts stand as hexadecimal bytes, without what is not on the list."""
        calls = json.loads(content)
        for key, answers in calls["calls"].items():
            always = "Name" in key.partition("(")[0]
            for answer in answers:
                answer[1:] = [self._answer(part, always=always) for part in answer[1:]]
        calls["calls"] = {self.text(key): answers for key, answers in calls["calls"].items()}
        return json.dumps(calls, indent=0)

    def _answer(self, part: Json, *, always: bool) -> Json:
        if not isinstance(part, str):  # the name of a pointer
            return self._filled(part)
        data = bytes.fromhex(part)
        if data.isascii() and data.decode().isprintable() and (always or len(data) >= _LEAST_ANSWER):
            return self.text(data.decode()).encode().hex()
        return _IN_ANSWER.sub(lambda match: self.text(match[0].decode()).encode(), data).hex()

    def _filled(self, part: Json) -> Json:
        if isinstance(part, dict):
            return {self.text(key): self._filled(value) for key, value in part.items()}
        if isinstance(part, list):
            return [self._filled(value) for value in part]
        return self.text(part) if isinstance(part, str) else part

    def _is_allowed(self, word: str) -> bool:
        lower = word.lower()
        if len(word) <= _SHORT or lower in self._words:
            return True
        stem = _NUMBERED.fullmatch(lower)
        return stem is not None and stem[1] in self._words

    def _numbers(self, value: str) -> Iterator[int]:
        for block in itertools.count():
            yield from hmac.digest(self._key, f"{block}:{value}".encode(errors="replace"), "sha256")


def _replaced(char: str, number: int, *, is_hex: bool) -> str:
    if not char.isascii() and char.isalnum():
        return string.ascii_lowercase[number % 26]
    members = next(
        (letters for letters in _CLASSES if char in letters and (is_hex or len(letters) != len("abcdef"))), ""
    )
    return members[number % len(members)] if members else char
