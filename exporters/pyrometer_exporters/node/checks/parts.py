"""Parts of a node that come back under another name or place: which of those that were there are gone.

A part is known by its identity (a GUID, a serial number, a UUID, or its address where it has none), and described by
``name``, ``address`` and ``model``. It is not lost while its identity is there, nor while another part is at its
address, which has taken its place. Where new parts of its model came as it went, they were moved or exchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

EARLIER: Final = "on its last healthy day"
"""How a reason refers to what was learned."""
Facts = Mapping[str, Mapping[str, Any]]
"""By kind (``hcas``), what there is by identity, in whatever JSON can hold."""
Part = Mapping[str, str]
"""``name``, ``address``, ``model``, and whatever identifies it; a text that isn't known is empty or left out."""


def lost(learned: Mapping[str, Part], present: Mapping[str, Part]) -> list[Part]:
    """Return the learned parts that are gone, by name; both are parts by identity."""
    addresses = _addresses(present.values())
    before = _addresses(learned.values())
    gone = [part for name, part in learned.items() if name not in present and part.get("address") not in addresses]
    new = Counter(
        part.get("model") for name, part in present.items() if name not in learned and part.get("address") not in before
    )
    missing = []
    for part in sorted(gone, key=lambda part: part.get("name", "")):
        if new[part.get("model")] > 0:
            new[part.get("model")] -= 1
        else:
            missing.append(part)
    return missing


def missing(stated: Iterable[str], present: Collection[str]) -> list[str]:
    """Say of each stated name that it is not present; the system spells a name in lower case, or as it is stated."""
    return [f"{name} is missing (stated)" for name in stated if name not in present and name.lower() not in present]


def too_few(stated: Mapping[str, int], models: Iterable[str]) -> list[str]:
    """Say of each stated model with fewer parts than stated how many are present."""
    counts = Counter(models)
    return [f"{counts[model]} of {least} {model} (stated)" for model, least in stated.items() if counts[model] < least]


def identities(parts: Iterable[tuple[str, Part]]) -> dict[str, Part]:
    """Return parts by identity: the first of each pair where no other part has it, else the address, else the name.

    >>> a, b = {"name": "a", "address": "0000:18:00.0"}, {"name": "b"}
    >>> list(identities([("guid:1", a), ("guid:1", b), ("guid:2", b)]))
    ['pci:0000:18:00.0', 'name:b', 'guid:2']
    """
    pairs = list(parts)
    shared = Counter(identity for identity, _ in pairs)
    return {
        identity if identity and shared[identity] == 1
        else f"pci:{part['address']}" if part.get("address")
        else f"name:{part.get('name', '')}": part
        for identity, part in pairs
    }  # fmt: skip


def described(part: Part, *more: str) -> str:
    """Return a part in words: its name, and in brackets its address and these others of its fields.

    >>> described({"name": "mlx5_3", "address": "0000:30:00.0", "guid": "7c8c:0903:0010:0003"}, "guid")
    'mlx5_3 (0000:30:00.0, GUID 7c8c:0903:0010:0003)'
    """
    details = [part.get("address", ""), *(f"{_WORDS.get(key, key)} {part[key]}" for key in more if part.get(key))]
    text = ", ".join(filter(None, details))
    return f"{part.get('name', '')} ({text})" if text else part.get("name", "")


_WORDS = {"guid": "GUID", "serial": "serial number"}


def _addresses(parts: Iterable[Part]) -> set[str]:
    return {address for part in parts if (address := part.get("address"))}
