"""Certificates and passwords renewed under a running exporter, as exporter-toolkit's users expect it.

The web configuration file and the files that it names are looked at every few seconds; when one was replaced, all are
read again, and connections from then on get the new certificate. What can't be used (half a renewal: a certificate
whose key is still to come) leaves in force what was, and is said once. What protects is renewed, never taken away: a
file that is just being written can be a valid one that asks for nothing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl

from pyrometer_exporters.framework.background import Threads
from pyrometer_exporters.framework.flags import UsageError
from pyrometer_exporters.framework.webconfig import WebConfig, load

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0

_State = list[tuple[int, int, int, int] | None]


class Renewal:
    """Keeps a configuration in use as its files are."""

    def __init__(self, path: str, config: WebConfig) -> None:
        self._path = path
        self._config = config
        self._files = config.files
        self._seen = self._state()
        self._threads = Threads(kept=0)

    async def run(self) -> None:
        """Look again and again; ends when cancelled. In a thread: the files may lie on a file system that hangs."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._threads.call(self.look)
            except Exception:
                log.exception("the web configuration could not be looked at")

    def look(self) -> None:
        """Take up what the files hold if one of them is another than at the last look."""
        before, self._seen = self._seen, self._state()
        if self._seen == before:
            return
        try:
            self._take_up(load(self._path))
        except UsageError as error:
            log.error("%s; what was read before stays in force", error)
        else:
            log.info("--web.config.file: %s: read again", self._path)

    def _take_up(self, fresh: WebConfig) -> None:
        config = self._config
        if lost := _no_longer_asked_for(config, fresh):
            msg = f"--web.config.file: {self._path}: to do without {lost} takes a restart"
            raise UsageError(msg)
        if fresh.tls is not None and config.tls is None:
            msg = f"--web.config.file: {self._path}: to begin with TLS takes a restart"
            raise UsageError(msg)
        config.replace(fresh)
        if fresh.files != self._files:  # how the new ones were before they were read nobody knows: once more
            self._files, self._seen = fresh.files, []

    def _state(self) -> _State:
        found: _State = []
        for file in self._files:
            try:
                status = file.stat()
            except (OSError, ValueError):  # ValueError: a name with a NUL in it
                found.append(None)
            else:
                found.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        return found


def _no_longer_asked_for(now: WebConfig, fresh: WebConfig) -> str:
    """What protects now and would no more."""
    if now.users and not fresh.users:
        return "basic_auth_users"
    if now.tls is None:
        return ""
    before, after = now.tls.newest, fresh.tls
    if after is None:
        return "tls_server_config"
    if before.verify_mode == ssl.CERT_REQUIRED and after.verify_mode != ssl.CERT_REQUIRED:
        return "client certificates"
    return "TLS 1.3" if after.minimum_version < before.minimum_version else ""
