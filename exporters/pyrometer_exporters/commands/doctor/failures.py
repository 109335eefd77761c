"""Record which NVML calls failed for each GPU, and explain by them which metrics are absent.

The sources of a metric are those that its own help text names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pynvml

from pyrometer_exporters.framework.metrics import Family
from pyrometer_exporters.framework.outcome import PartError
from pyrometer_exporters.node.gpu.clock_events import version_numbers
from pyrometer_exporters.node.gpu.number_calls import NumberCall
from pyrometer_exporters.node.gpu.nvml import FieldKey, Handle, Nvml, NvmlError

NODE = ""
"""The key of failures of no GPU in particular."""
NO_VALUE = "no_value"
"""The reason for a field that the driver reports as good without giving a value."""


@dataclass
class Failures:
    """The calls and fields of one GPU that failed."""

    why: dict[str, str] = field(default_factory=dict)
    """The reason by call or field."""
    answered: set[str] = field(default_factory=set)
    """The fields that had a value: a metric from them is absent for another reason."""


class Recording:
    """Passes every call on to ``nvml`` and keeps :attr:`failures` by the GPU's UUID.

    A call is spelled as NVML has it (``nvmlDeviceGetFanSpeed``), a field value as ``field 251``. Reads of one GPU come
    from one thread, and threads share only a dictionary.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._uuids: dict[int, tuple[object, str]] = {}
        self.failures: dict[str, Failures] = {}

    def as_nvml(self) -> Nvml:
        """Return itself, typed: :meth:`__getattr__` provides every method of the protocol."""
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
        """Return a text of the GPU, and remember which UUID the handle has."""
        value: str = self.__getattr__("text")(handle, what)
        if what == "UUID":
            self._uuids[id(handle)] = handle, value  # a reference, so that no other handle gets its id
        return value

    def fields(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, float]:
        """Return field values, and record which were left out."""
        values: dict[FieldKey, float] = self.__getattr__("fields")(handle, keys)
        self._of((handle,)).answered.update(_source(key) for key in values)
        left_out = [key for key in keys if key not in values]
        for key, reason in self._reasons(handle, left_out).items():
            self._note((handle,), _source(key), reason)
        return values

    def numbers(self, handle: Handle, calls: Sequence[NumberCall]) -> Callable[[], list[int | NvmlError]]:
        """Return the reader of these calls; each of its looks notes those that failed."""
        read = self._nvml.numbers(handle, calls)

        def look() -> list[int | NvmlError]:
            answers = read()
            for answer in answers:
                if isinstance(answer, NvmlError):
                    self._note((handle,), answer.detail.partition(" ")[0], answer.reason)
            return answers

        return look

    def _reasons(self, handle: Handle, keys: Sequence[FieldKey]) -> dict[FieldKey, str]:
        """Ask once more why these fields were left out, as each entry has a code of its own."""
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
        uuids = (self._uuids.get(id(argument)) for argument in arguments)
        uuid = next((entry[1] for entry in uuids if entry is not None), NODE)
        return self.failures.setdefault(uuid, Failures())


def _source(key: FieldKey) -> str:
    return f"field {key[0] if isinstance(key, tuple) else key}"


def _reason(code: int, key: FieldKey) -> str:
    return NvmlError(code, _source(key)).reason if code else NO_VALUE


_CALL = re.compile(r"\bnvml[A-Z]\w+?(?=_v\d+\b|\b)")
_FIELDS = re.compile(r"\bfields? ((?:\d+(?:-\d+)?(?:, | and | or )?)+)")
_SINCE = re.compile(r"\bdriver (\d{3}) and newer|\bR(\d{3}) and newer")
_GPM = "nvmlGpm"

# As nvml.h defines the codes: NOT_SUPPORTED is about the device, the next two are about driver and library.
_WORDS = {
    "not_supported": "not supported by this GPU model, or not in its present configuration",
    "invalid_argument": "not known to this driver: a newer one may have it",
    "function_not_found": "not in this driver's library: a newer driver may have it",
    "no_permission": "only root may read it",
    NO_VALUE: "the driver gives no value, as while ECC is off",
    "corrupted_inforom": "the GPU's InfoROM is corrupted",
    "no_data": "the driver has no data yet",
    "argument_version_mismatch": "the installed nvidia-ml-py and the driver's library differ",
}
NOT_IN_BINDING = "not in the installed nvidia-ml-py: a newer one may have it"
NOTHING = "no value on this node at present"
NO_NVLINK = "the driver reports no NVLink on this GPU"
DIVIDED = "not while the GPU is divided (MIG)"
# NVML gives these only for a GPU that is not divided.
NOT_IN_MIG = frozenset(
    {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL"}
)


def why_absent(family: Family, driver: str, failures: Failures, *, divided: bool = False) -> str:
    """Return in a few words why a GPU, ``divided`` or not, has no sample of ``family``."""
    if divided and family.name in NOT_IN_MIG:
        return DIVIDED
    if since := needs_driver(family, driver):
        return f"needs driver {since} or newer"
    sources = list(_sources(family))
    if not failures.answered.isdisjoint(sources):
        return NOTHING
    for source in sources:
        for failed, reason in failures.why.items():
            if failed == source or (source.startswith("nvml") and failed.startswith(source)):
                return f"{_words(reason, failed)} ({failed})"
    return NOTHING


def needs_driver(family: Family, driver: str) -> int:
    """Return the first driver release with the family if this one is older, else 0."""
    since, version = _first_driver(family.help), version_numbers(driver)
    return since if version and version[0] < since else 0


def _words(reason: str, failed: str) -> str:
    if reason == "function_not_found" and not hasattr(pynvml, failed):
        return NOT_IN_BINDING
    return _WORDS.get(reason, reason)


def _first_driver(text: str) -> int:
    """Return the oldest driver release with any of a help text's sources, or 0 if one names no release."""
    since = [_SINCE.search(way) for way in text.split(", else ")]
    return min(int(match.group(1) or match.group(2)) if match else 0 for match in since)


def _sources(family: Family) -> Iterator[str]:
    yield from _CALL.findall(family.help)
    for numbers in _FIELDS.findall(family.help):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers):
            for number in range(int(first), int(last or first) + 1):
                yield f"field {number}"
    if "GPM metric" in family.help:
        yield _GPM
