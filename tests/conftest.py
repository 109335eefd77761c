"""Settings and fixtures of every test; property tests have no deadline, as they are not about the machine's speed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from pyrometer_simulator.stack import Stack, StackError, find_stack

settings.register_profile("pyrometer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pyrometer")


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Return the real Prometheus, Alertmanager and their tools; skip the test where they can't be had."""
    try:
        return find_stack(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))
