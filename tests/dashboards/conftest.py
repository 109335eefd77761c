"""Makes planted.py and grafana.py importable as `dashboards_planted`, `dashboards_grafana` (tests have no packages)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for _name in ("planted", "grafana"):
    _spec = importlib.util.spec_from_file_location(f"dashboards_{_name}", Path(__file__).with_name(f"{_name}.py"))
    assert _spec is not None
    assert _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    sys.modules.setdefault(_spec.name, _module)
    _spec.loader.exec_module(_module)
