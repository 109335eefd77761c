"""Lets the driver record a GPU's Xids once it is open.

Their samples don't come from here: they are served, and matter most, while the GPU itself can't be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyrometer_exporters.framework.metrics import Sample
from pyrometer_exporters.node.gpu.nvml import FieldKey
from pyrometer_exporters.node.gpu.subject import Opened, SubjectSpec
from pyrometer_exporters.node.gpu.xid.families import FAMILIES


class XidSubject:
    """One GPU's link to the watch over all."""

    def __init__(self) -> None:
        self._gpu: Opened | None = None

    def open(self, gpu: Opened) -> None:
        """See Subject."""
        self._gpu = gpu
        gpu.shared.xids.opened(gpu.handle, gpu.identity)

    def fields(self) -> Sequence[FieldKey]:
        """None."""
        return ()

    def read(self, _fields: Mapping[FieldKey, float]) -> Iterable[Sample]:
        """Nothing but that the GPU has answered."""
        if self._gpu is not None:
            self._gpu.shared.xids.answered(self._gpu.identity)
        return ()


SUBJECT = SubjectSpec("xid", FAMILIES, XidSubject)
