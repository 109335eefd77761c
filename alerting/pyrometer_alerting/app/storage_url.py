"""The address in `--storage.url`: PostgreSQL's, and without a password, which every list of processes would show."""

from __future__ import annotations

from urllib.parse import unquote

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
