"""Where Thanos and Mimir are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrometer_simulator.pair import above


def test_a_variable_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = tmp_path / "thanos"
    on_path.write_text("#!/bin/sh\n")
    on_path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("THANOS", raising=False)
    assert above.program("thanos") == on_path
    monkeypatch.setenv("THANOS", "/elsewhere/thanos")
    assert above.program("thanos") == Path("/elsewhere/thanos")


@pytest.mark.parametrize("name", ["thanos", "mimir"])
def test_what_is_missing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(name.upper(), raising=False)
    assert above.program(name) is None
    assert above.missing(name).startswith(f"no {name}: CGO_ENABLED=0 go build")
    assert f"{name.upper()}=path" in above.missing(name)
