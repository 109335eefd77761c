"""The healthy node of the checks' own tests."""

from __future__ import annotations

from tests.exporters.node.checks.conftest import node

__all__ = ["node"]
