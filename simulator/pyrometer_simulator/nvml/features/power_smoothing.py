"""The trap of the renumbering: where other drivers have throttle counters, this one has power-smoothing settings.

R570 has them at 251 to 268, R575 up to 580.65 at 256 to 273, 580.82 and later at 251 to 268 again; all read 1 here.
"""

from __future__ import annotations

from pyrometer_simulator.nvml.library import UNSIGNED_INT, FakeLibrary
from pyrometer_simulator.nvml.moment import Moment


def field(library: FakeLibrary, _moment: Moment, field: int, _scope: int) -> tuple[int, int] | None:
    """See the package."""
    version = library.driver
    if version < (570,):
        return None
    first = 256 if (575,) <= version < (580, 82) else 251
    return (UNSIGNED_INT, 1) if first <= field < first + 18 else None
