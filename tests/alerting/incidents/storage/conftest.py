"""What the tests of the store hold for the file, they hold for PostgreSQL."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)
