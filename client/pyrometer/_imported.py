"""Being told when the job imports a module, without importing it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Call ``then`` with a module: now, or as soon as the job has imported it."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Awaited(name, then))


class _Awaited:
    """Finds one module as Python would, and is called when it has been loaded."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See :class:`importlib.abc.MetaPathFinder`."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader, self.then)  # type: ignore[assignment]  # it passes for one
                return spec
        return None


class _Loader:
    """A module's own loader, and a call after it; in the module no trace of us remains."""

    def __init__(self, real: Any, then: Callable[[Any], None]) -> None:
        self.real = real
        self.then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def exec_module(self, module: Any) -> None:
        """See :class:`importlib.abc.Loader`."""
        module.__spec__.loader = module.__loader__ = self.real
        self.real.exec_module(module)
        self.then(module)
