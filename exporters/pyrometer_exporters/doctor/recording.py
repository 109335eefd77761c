"""NVML with a memory: which calls and field values failed, and why, by GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from pyrometer_exporters.framework.worker import PartError
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml

NODE = ""
"""The key of what failed for no GPU in particular."""


class Recording:
    """Hands everything on to ``nvml``; :attr:`failures` is the reason by GPU's UUID and by call or field.

    A call is spelled as NVML has it (``nvmlDeviceGetFanSpeed``), a field value as ``field 251``. Reads of one GPU come
    from one thread; a dictionary entry is all that threads share.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._uuids: dict[int, tuple[object, str]] = {}
        self.failures: dict[str, dict[str, str]] = {}

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
        """Also notes the field values that were left out."""
        found: dict[FieldKey, float] = self.__getattr__("fields")(handle, keys)
        for key in keys:
            if key not in found:
                self._note((handle,), f"field {key[0] if isinstance(key, tuple) else key}", "not_supported")
        return found

    def _note(self, arguments: Sequence[object], source: str, reason: str) -> None:
        known = (self._uuids.get(id(argument)) for argument in arguments)
        uuid = next((entry[1] for entry in known if entry is not None), NODE)
        self.failures.setdefault(uuid, {})[source] = reason
