"""Children of multiprocessing: ranks, or helpers such as the workers of a data loader or of a pool.

Under ``spawn`` and ``forkserver`` (the default since Python 3.14) a child imports the job's script again, and with it a
``start`` at its top. Only what it does then tells a rank from a helper: a helper finishes no step.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The second is pathos', with which Hugging Face's datasets map in several processes.
_MODULES = ("multiprocessing.process", "multiprocess.process")


def imports_script_again() -> bool:
    """Return whether this process is a child that imports the job's script, or the server that children fork from."""
    # Set by spawn._main, forkserver.main and joblib's loky while they import it: it keeps a script without a guard
    # from starting children of its own.
    return any(getattr(module.current_process(), "_inheriting", False) for module in _loaded())


def parent_process() -> int:
    """Return the id of the process that started this one through multiprocessing, 0 where none did.

    It isn't the system's parent where a server forks the children.
    """
    return next((parent.pid for module in _loaded() if (parent := module.parent_process()) is not None), 0)


def _loaded() -> list[Any]:
    modules = [sys.modules.get(name) for name in _MODULES]
    return [module for module in modules if hasattr(module, "current_process") and hasattr(module, "parent_process")]
