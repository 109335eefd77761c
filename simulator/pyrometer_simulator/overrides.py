"""`typing.override`, from Python 3.12 on: a type checker fails where the product's method is gone or renamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["override"]

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method as it is."""
        return method
