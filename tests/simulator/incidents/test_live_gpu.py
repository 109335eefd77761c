"""The rules evaluated after a hot GPU fire as they do live; a file of its own, as it takes four minutes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulator.incidents.live import compare


@pytest.mark.e2e
def test_rules_evaluated_afterwards_fire_as_they_do_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare("hot_gpu", tmp_path, monkeypatch)
