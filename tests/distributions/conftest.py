"""Makes tools/pythons.py importable, as ``distributions_pythons``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("distributions_pythons", Path(__file__).parents[2] / "tools/pythons.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules["distributions_pythons"] = _MODULE
_SPEC.loader.exec_module(_MODULE)
