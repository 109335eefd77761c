"""The model names of this node's GPUs as NVML has them, for collectors that have no GPU of their own to read."""

from __future__ import annotations

import threading


class GpuModels:
    """Models by UUID; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, str] = {}

    def note(self, uuid: str, model: str) -> None:
        """Take the model of a GPU, where both are known."""
        if uuid and model:
            with self._lock:
                self._models[uuid] = model

    def of(self, uuid: str) -> str:
        """Return the model of a GPU; without its UUID that of all GPUs here, where they are alike. Else empty."""
        with self._lock:
            if uuid:
                return self._models.get(uuid, "")
            alike = set(self._models.values())
        return alike.pop() if len(alike) == 1 else ""
