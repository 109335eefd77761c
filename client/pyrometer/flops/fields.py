"""Typed access to the fields of a ``config.json``; what is missing or of the wrong kind is a ValueError of one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# More layers than any model: a file that says so is broken, and counting them one by one would take for ever.
_MAX_LAYERS = 100_000
_MAX_NUMBER = 10**15


class Fields:
    """Reads the fields of one file.

    Args:
        content: Of the file.

    Attributes:
        family: Its ``model_type``.
    """

    def __init__(self, content: Mapping[str, Any], family: str = "") -> None:
        self._content = content
        self.family = family or str(content.get("model_type", "absent"))

    def number(self, *names: str, default: int | None = None) -> int:
        """Return the first of these numbers that the file has; null counts as absent.

        Raises:
            ValueError: it is not a whole number, or is missing without a default.
        """
        for name in names:
            value = self._content.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
                raise ValueError(f"{name} is {value!r}, not a whole number")
            return value
        if default is None:
            raise ValueError(f"{' or '.join(names)} is missing")
        return default

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a switch; null counts as absent."""
        value = self._content.get(name)
        return default if value is None else bool(value)

    def section(self, name: str) -> Fields:
        """Return an object within the file, empty where it has none."""
        value = self._content.get(name)
        return Fields(value if isinstance(value, dict) else {}, self.family)

    def states(self, name: str) -> bool:
        """Return whether the file has this field, be it null."""
        return name in self._content

    def has(self, name: str) -> bool:
        """Return whether the file has this field, and not as null or an empty object."""
        return bool(self._content.get(name))

    def layers(self) -> int:
        """Return the number of layers.

        Raises:
            ValueError: it is missing, or more than any model has.
        """
        layers = self.number("num_hidden_layers", "n_layer")
        if layers > _MAX_LAYERS:
            raise ValueError(f"{layers} layers: no model has that many")
        return layers

    def indices(self, name: str) -> list[int] | None:
        """Return a list of whole numbers, None where the file has none.

        Raises:
            ValueError: it is something else.
        """
        values = self._content.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
            raise ValueError(f"{name} is not a list of whole numbers")
        return values

    def layer_types(self) -> list[str] | None:
        """Return ``layer_types``, the kind of attention of each layer, None where the file has none.

        Raises:
            ValueError: it is not a list of known kinds, or not one for each layer.
        """
        kinds = self._content.get("layer_types")
        if kinds is None:
            return None
        supported = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")
        if not isinstance(kinds, list) or len(kinds) != self.layers():
            raise ValueError(f"layer_types does not name the attention of each of {self.layers()} layers")
        strange = sorted({str(kind) for kind in kinds if kind not in supported})
        if strange:
            raise ValueError(f"attention of kind {strange[0]} is not supported; give flops_per_token")
        return kinds
