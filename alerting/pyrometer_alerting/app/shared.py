"""The database server that several services share: its address, and the client library, which is optional."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyrometer_alerting.incidents.storage.store import Store, StoreError
from pyrometer_kit.errors import UsageError

_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


def check_address(url: str) -> None:
    """Check an address before PostgreSQL's library reads it.

    Raises:
        UsageError: it is another server's, or has a secret; the message does not repeat it.
    """
    if not url.startswith(_SCHEMES):
        raise UsageError("--storage.url: expected an address such as postgresql://user@host/database")
    if _has_secret(url.partition("://")[2]):
        raise UsageError(
            "--storage.url: a password in it is seen by all who list processes:"
            " write it into a file for --storage.password-file"
        )


def _has_secret(rest: str) -> bool:
    """Return whether there is a secret where libpq looks for one: before the @, or as a parameter."""
    user, at, _ = rest.partition("/")[0].partition("@")
    parameters = rest.partition("?")[2].split("&")
    names = {unquote(name) for name, _, value in (parameter.partition("=") for parameter in parameters) if value}
    return bool(at and user.partition(":")[2]) or not names.isdisjoint(_SECRETS)


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
