"""NVML with a memory: which calls and field values failed, and why, by GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml, NvmlError

NODE = ""
"""The key of what failed for no GPU in particular."""
NO_VALUE = "no_value"
"""The reason of a field value that the driver calls good and doesn't give."""


@dataclass
class Failures:
    """What of one GPU could not be had."""

    why: dict[str, str] = field(default_factory=dict)
    """The reason by call or field."""
    answered: set[str] = field(default_factory=set)
    """The fields that were answered: what they make up is absent for another reason."""


class Recording:
    """Hands everything on to ``nvml``; :attr:`failures` are by GPU's UUID.

    A call is spelled as NVML has it (``nvmlDeviceGetFanSpeed``), a field value as ``field 251``. Reads of one GPU come
    from one thread; a dictionary entry is all that threads share.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._uuids: dict[int, tuple[object, str]] = {}
        self.failures: dict[str, Failures] = {}

    def as_nvml(self) -> Nvml:
        """Itself, for type checkers: it has every method of the protocol by :meth:`__getattr__`."""
        return cast("Nvml", self)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._nvml, name)

        def call(*arguments: Any) -> Any:  # noqa: ANN401  whatever the method takes and gives
            try:
                return method(*arguments)
            except PartError as error:
                # NvmlError's detail begins with the name of the C function, or the binding's where they differ.
                self._note(arguments, error.detail.partition(" ")[0] or name, error.reason)
                raise

        return call

    def text(self, handle: Handle, what: str) -> str:
        """Also learns which GPU a handle is of."""
        found: str = self.__getattr__("text")(handle, what)
        if what == "UUID":
            self._uuids[id(handle)] = handle, found  # kept, so that no other handle gets its id
        return found

    def fields(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, float]:
        """Also notes which field values were left out, and which not."""
        found: dict[FieldKey, float] = self.__getattr__("fields")(handle, keys)
        self._of((handle,)).answered.update(_source(key) for key in found)
        left_out = [key for key in keys if key not in found]
        for key, reason in self._reasons(handle, left_out).items():
            self._note((handle,), _source(key), reason)
        return found

    def _reasons(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, str]:
        """Why these field values were left out: asked once more, as every entry has a code of its own."""
        if not keys:
            return {}
        try:
            entries = self._nvml.ask("nvmlDeviceGetFieldValues", handle, keys)
        except PartError as error:
            return dict.fromkeys(keys, error.reason)
        return {key: _reason(int(entry.nvmlReturn), key) for key, entry in zip(keys, entries, strict=True)}

    def _note(self, arguments: Sequence[object], source: str, reason: str) -> None:
        self._of(arguments).why[source] = reason

    def _of(self, arguments: Sequence[object]) -> Failures:
        known = (self._uuids.get(id(argument)) for argument in arguments)
        uuid = next((entry[1] for entry in known if entry is not None), NODE)
        return self.failures.setdefault(uuid, Failures())


def _source(key: FieldKey) -> str:
    return f"field {key[0] if isinstance(key, tuple) else key}"


def _reason(code: int, key: FieldKey) -> str:
    return NvmlError(code, _source(key)).reason if code else NO_VALUE
