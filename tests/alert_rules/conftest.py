"""The stack that the rules are tested with."""

from __future__ import annotations

import pytest

from pyrometer_simulator.stack import Stack, StackError, find_stack


@pytest.fixture(scope="session")
def stack() -> Stack:
    try:
        return find_stack(lambda _: None)
    except StackError as error:
        pytest.skip(str(error))
