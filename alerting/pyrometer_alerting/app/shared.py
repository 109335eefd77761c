"""The server that several services share, imported only where one is configured: its client library is optional."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyrometer_kit.errors import UsageError

if TYPE_CHECKING:
    from pyrometer_alerting.app.replica import Replica
    from pyrometer_alerting.app.service import Service
    from pyrometer_alerting.state.postgresql import Server
    from pyrometer_alerting.state.store import Store


def server_of(url: str, password: str) -> Server:
    """Return the server of an address.

    Raises:
        UsageError: the address is wrong, or psycopg is missing; no message has the password.
    """
    try:
        server: Server = _module("pyrometer_alerting.state.postgresql").Server(url, password)
    except ImportError:
        raise UsageError("--storage.url: needs pip install 'pyrometer-alerting[postgresql]'") from None
    except ValueError as error:
        raise UsageError(f"--storage.url: {error}") from None
    return server


def replica(server: Server, build: Callable[[Store], Service]) -> Replica:
    """Return the service that shares this server with others."""
    made: Replica = _module("pyrometer_alerting.app.replica").Replica(server, build)
    return made


def _module(name: str) -> Any:  # noqa: ANN401 - a module
    return importlib.import_module(name)
