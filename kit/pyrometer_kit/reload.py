"""Reload of the web configuration under a running server, as exporter-toolkit's users expect.

The file and those that it names are checked every few seconds; when one was replaced, all are read again, and the next
connections use the new certificate, client CA, versions and ciphers, the next requests the new users. An unusable file
(such as a certificate whose key is not written yet) leaves the previous configuration in force and is logged once.
Protection can be replaced, never removed: a half-written file can be a valid one that protects nothing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from pathlib import Path

from pyrometer_kit.errors import UsageError
from pyrometer_kit.threads import Threads
from pyrometer_kit.webconfig import WebConfig, load

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0


class FileWatch:
    """Detects files that were replaced or written."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._seen = self._state()

    def changed(self) -> bool:
        """Return whether a file differs from the last call."""
        before, self._seen = self._seen, self._state()
        return before != self._seen

    def _state(self) -> list[tuple[int, int, int, int] | None]:
        return [_identity(path) for path in self._paths]


class WebConfigReload:
    """Keeps a configuration in sync with its files. Without a path there is nothing to reload."""

    def __init__(self, path: str | Path | None, config: WebConfig) -> None:
        self._path = path
        self._config = config
        self._watch = FileWatch(config.files)
        self._unchecked = False
        self._threads = Threads(kept=0)
        self.successful = True
        """True if the latest reload could be used; a metric serves it."""

    async def run(self) -> None:
        """Check periodically until cancelled; in a thread, as the files may lie on a file system that hangs."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self._threads.call(self.check)
            except Exception:
                log.exception("could not check the web configuration for changes")

    def changed(self) -> bool:
        """Return whether one of the files differs from the last call."""
        changed, self._unchecked = self._watch.changed() or self._unchecked, False
        return changed

    def check(self) -> None:
        """Reload if one of the files has changed, and log the outcome."""
        if not self.changed():
            return
        try:
            self.apply(self.read())
        except UsageError as error:
            self.successful = False
            log.error("reload: %s; keeping the previous configuration", error)
        else:
            log.info("reload: --web.config.file: %s: done", self._path)

    def read(self) -> WebConfig:
        """Return the configuration that the files hold now, if it may replace the one in use.

        Raises:
            UsageError: It cannot be used, or protects less than the one in use.
        """
        fresh = load(self._path, logged=self._config.warnings)
        if removed := _removed_protection(self._config, fresh):
            raise UsageError(f"--web.config.file: {self._path}: removing {removed} takes a restart")
        if fresh.tls is not None and self._config.tls is None:
            raise UsageError(f"--web.config.file: {self._path}: starting TLS takes a restart")
        return fresh

    def apply(self, fresh: WebConfig) -> None:
        """Put a configuration from :meth:`read` in force."""
        if fresh.files != self._config.files:
            # The new ones may have changed before they were read: read them once more.
            self._watch, self._unchecked = FileWatch(fresh.files), True
        self._config.replace(fresh)
        self.successful = True


def _identity(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: a name with a NUL in it
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _removed_protection(now: WebConfig, fresh: WebConfig) -> str:
    """Return the name of a protection that would be lost; empty if none would."""
    if now.auth.users and not fresh.auth.users:
        return "basic_auth_users"
    if now.tls is None:
        return ""
    if fresh.tls is None:
        return "tls_server_config"
    if _strictness(fresh.tls) < _strictness(now.tls):
        return "client certificates"
    if now.allowed_sans and not fresh.allowed_sans:
        return "client_allowed_sans"
    return "TLS 1.3" if fresh.tls.minimum_version < now.tls.minimum_version else ""


def _strictness(context: ssl.SSLContext) -> int:
    return (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED).index(context.verify_mode)
