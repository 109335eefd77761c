"""The database server that several services share, imported only if configured: its client library is optional."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_kit.errors import UsageError

if TYPE_CHECKING:
    from pyrometer_alerting.app.replica import Replica
    from pyrometer_alerting.app.service import Service
    from pyrometer_alerting.incidents.storage.postgresql import Server


def server_of(url: str, password: str) -> Server:
    """Return the server of an address.

    Raises:
        UsageError: the address is wrong, or psycopg is missing; no message has the password.
    """
    try:
        server: Server = _module("pyrometer_alerting.incidents.storage.postgresql").Server(url, password)
    except ImportError:
        raise UsageError("--storage.url: needs pip install 'pyrometer-alerting[postgresql]'") from None
    except ValueError as error:
        raise UsageError(f"--storage.url: {error}") from None
    return server


def replica(server: Server, build: Callable[[Store], Service], destination: str) -> Replica:
    """Return the service that shares this server with others, whose messages go to the same `destination`."""
    made: Replica = _module("pyrometer_alerting.app.replica").Replica(server, build, destination)
    return made


def command_store(folder: str | Path, url: str, password: str) -> Store:
    """Open the store beside the running service, for a command.

    Raises:
        UsageError: the address is wrong, or psycopg is missing.
        StoreError: the file cannot be opened.
    """
    if not url:
        return Store(Path(folder), alone=False)
    server = server_of(url, password)
    return Store(_module("pyrometer_alerting.incidents.storage.postgresql").PostgreSQL(server), alone=False)


def way_out(error: StoreError) -> str:
    """Return what to do about a store that cannot be opened."""
    on_server = str(error).startswith("postgresql://")
    return "see --storage.url and the server's log" if on_server else "choose another --storage.path"


def _module(name: str) -> Any:  # noqa: ANN401 - a module
    return importlib.import_module(name)
