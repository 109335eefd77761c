"""PostgreSQL as the store's engine: several processes share it, and one of them leads.

Every change locks the row of `leader` first: one writer at a time by construction, as in SQLite, and one who was
deposed meanwhile (paused, cut off) sees another epoch there and writes nothing. Deliveries and clicks are inserted
beside it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg  # pyright: ignore[reportMissingImports] - an optional dependency
from psycopg.conninfo import conninfo_to_dict, make_conninfo  # pyright: ignore[reportMissingImports]

from pyrometer_alerting.incidents.storage.engine import Connection, Engine, NotLeadingError, StoreError
from pyrometer_alerting.incidents.storage.schema import SCHEMA_VERSION, for_postgresql

OLDEST_VERSION = 14  # idle_session_timeout
_REQUIRES_AUTH = 160_000  # the client library's version from which it can refuse a way to log in
# A leader that is silent for so long loses its lock; SERVER ends what a process that was paused leaves open.
LEASE_SECONDS = 4.0
SERVER_SECONDS = 5.0
# A statement that takes longer waits for a server that is gone, or for a standby that must confirm it.
STUCK_SECONDS = 10.0
_CONNECT_SECONDS = 3
_GONE_MILLISECONDS = 1000
_VERSION = str(SCHEMA_VERSION)
_NOT_REPLICATED = "canceling wait for synchronous replication"
WRITER, READER, POST = "writer", "reader", "post"


class Server:
    """Where the database is: addresses, user and, in no text that anybody sees, the password."""

    def __init__(self, url: str, password: str = "") -> None:
        """Take the URL apart.

        Raises:
            ValueError: it is none of PostgreSQL's; the message does not repeat it.
        """
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            raise ValueError("expected an address such as postgresql://user@host/database") from None
        defaults = {"application_name": "pyrometer-alerting", "target_session_attrs": "read-write"}
        # A server that vanishes without a word must be noticed before the lease ends.
        silence = {"keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 2, "tcp_user_timeout": 4000}
        settings = defaults | silence | {"connect_timeout": _CONNECT_SECONDS} | _guards(given, password) | given
        self._conninfo = make_conninfo("", **(settings | ({"password": password} if password else {})))
        hosts = str(given.get("host") or given.get("hostaddr") or "local socket")
        self.name = f"postgresql://{hosts}/{given.get('dbname') or ''}"

    def connect(self, *more: str) -> psycopg.Connection:
        """Connect; no transaction is begun on its own.

        Raises:
            psycopg.Error: no server that can be written answers.
            StoreError: it is too old.
        """
        db = psycopg.connect(self._conninfo, autocommit=True)
        try:
            if db.info.server_version < OLDEST_VERSION * 10_000:
                raise StoreError(f"{self.name}: PostgreSQL {OLDEST_VERSION} or newer is required")
            if db.execute("SHOW synchronous_commit").fetchone() in (("off",), ("local",)):
                # A delivery that was answered with 200 is on the disk, and on the standby's.
                db.execute("SET synchronous_commit = on")
            for setting in more:
                db.execute(f"SET {setting}".encode())
            # End a session that waits for a lock while its process was killed; not every system notices that.
            with contextlib.suppress(psycopg.errors.InvalidParameterValue):
                db.execute(f"SET client_connection_check_interval = {_GONE_MILLISECONDS}".encode())
        except BaseException:
            db.close()
            raise
        return db


def _guards(given: Mapping[str, Any], password: str) -> dict[str, str]:
    """Return what keeps the data, and the password, from a stranger who answers in the place of a server elsewhere."""
    hosts = f"{given.get('host') or ''},{given.get('hostaddr') or ''}".split(",")
    if not any(host and not _is_here(host) for host in hosts):
        return {}
    mode = given.get("sslmode") or os.environ.get("PGSSLMODE", "require")
    if mode in ("verify-ca", "verify-full") or psycopg.pq.version() < _REQUIRES_AUTH:
        return {"sslmode": mode}
    # SCRAM alone shows that the server knows the password, and gives away nothing to one that does not.
    return {"sslmode": mode, "require_auth": "scram-sha-256" if password else "!password"}


def _is_here(host: str) -> bool:
    """Return whether a host is this one, or the folder of a socket."""
    return host.startswith(("/", "@", "127.")) or host in ("localhost", "::1")


class Session:
    """One connection that reconnects when it is used after a failure, and can be cut from another thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._db: psycopg.Connection | None = None
        self._lock = threading.Lock()
        self._busy_since = 0.0
        self._warned = self._closed = False

    def open(self) -> Session:
        """Connect where that is needed.

        Raises:
            psycopg.Error, StoreError: nobody answers, or the store is closed.
        """
        if self._closed:
            raise StoreError(f"{self._server.name}: closed")
        if self._db is None or self._db.closed:
            db = self._server.connect(
                f"idle_in_transaction_session_timeout = {int(SERVER_SECONDS * 1000)}",
                f"lock_timeout = {int(STUCK_SECONDS * 1000)}",
            )
            db.add_notice_handler(self._noticed)
            self._db = db
        return self

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:  # noqa: ANN401 - psycopg's cursor
        """Run one statement."""
        with self._busy() as db:
            return db.execute(_translated(statement), tuple(map(_clean, values)))

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> None:
        """Run one statement for many rows, without waiting for each answer."""
        with self._busy() as db:
            db.cursor().executemany(_translated(statement), [tuple(map(_clean, row)) for row in values])

    def script(self, text: str) -> Any:  # noqa: ANN401
        """Run several statements without values; return the cursor at the answer of the last one."""
        with self._busy() as db:
            cursor = db.execute(text)
        while cursor.nextset():
            pass
        return cursor

    def commit(self) -> None:
        """Commit.

        Raises:
            StoreError: it is not on the standby that must have it, or it was rolled back.
        """
        self._warned = False
        done = self.script("COMMIT").statusmessage
        if done != "COMMIT" or self._warned:
            raise StoreError(f"{self._server.name}: {'not replicated' if self._warned else 'rolled back'}")

    def drop(self) -> None:
        """Forget the connection where it is unfit for the next change, and undo what is open otherwise."""
        if self._db is None:
            return
        with contextlib.suppress(psycopg.Error):
            if self._db.info.transaction_status:
                self.script("ROLLBACK")
        if self._db.closed or self._db.info.transaction_status:
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection; the next `open` makes another one."""
        with contextlib.suppress(psycopg.Error):
            if self._db is not None:
                self._db.close()
        self._db = None

    def close(self) -> None:
        """Close it for good."""
        self._closed = True
        if self._busy_since:
            self.sever()
        else:
            self.disconnect()

    def sever(self) -> None:
        """Let a call under way fail; a cancelled commit would count as made, though no standby has it."""
        db = self._db
        with contextlib.suppress(OSError, psycopg.Error):
            if db is not None and not db.closed:
                with socket.socket(fileno=os.dup(db.fileno())) as connected:
                    connected.shutdown(socket.SHUT_RDWR)

    def sever_if_stuck(self) -> None:
        """Let a call fail that takes too long."""
        if self._busy_since and time.monotonic() - self._busy_since > STUCK_SECONDS:
            self.sever()

    @contextlib.contextmanager
    def _busy(self) -> Any:  # noqa: ANN401
        if self._db is None:
            raise StoreError(f"{self._server.name}: closed")
        self._busy_since = time.monotonic()
        try:
            yield self._db
        finally:
            self._busy_since = 0.0

    def _noticed(self, notice: Any) -> None:  # noqa: ANN401
        self._warned |= str(notice.message_primary or "").startswith(_NOT_REPLICATED)


class PostgreSQL(Engine):
    """The store's engine; `epoch` is the leader's, None on a standby, which writes deliveries and clicks only."""

    errors = (psycopg.Error, OSError)

    def __init__(self, server: Server, *, leads: Callable[[], bool] = lambda: True, epoch: int | None = None) -> None:
        self.name, self._server, self.leads, self.epoch = server.name, server, leads, epoch
        self._sessions = {name: Session(server) for name in (WRITER, READER, POST)}
        self._posting = threading.Lock()

    def begin(self, *, aside: bool = False) -> Connection:
        """See `Engine.begin`.

        Raises:
            NotLeadingError: another process leads, or may lead by now.
        """
        if not aside and (self.epoch is None or not self.leads()):
            raise NotLeadingError(f"{self.name}: another replica is the leader")
        db = self._sessions[WRITER].open()
        (epoch,) = db.script("BEGIN; SELECT epoch FROM leader WHERE id = 1 FOR UPDATE").fetchone()
        if not aside and epoch != self.epoch:
            db.drop()
            raise NotLeadingError(f"{self.name}: another replica is the leader")
        return db

    def commit(self) -> None:
        """See `Engine.commit`."""
        self._sessions[WRITER].commit()

    def rollback(self) -> None:
        """See `Engine.rollback`."""
        self._sessions[WRITER].drop()

    def view(self) -> Connection:
        """See `Engine.view`."""
        db = self._sessions[READER].open()
        try:
            db.script("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except psycopg.Error:
            db.drop()
            raise
        return db

    def end_view(self) -> None:
        """See `Engine.end_view`."""
        self._sessions[READER].drop()

    def post(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement about the inbox, which needs no leader; it is durable when this returns.

        Raises:
            psycopg.Error, StoreError: it may have failed.
        """
        db = self._sessions[POST]
        with self._posting:
            try:
                db.open().script("BEGIN")
                cursor = db.execute(statement, values)
                rows = list(cursor) if cursor.description else []
                db.commit()
            except BaseException:
                db.disconnect()
                raise
        return rows

    def probe(self) -> bool:
        """See `Engine.probe`."""
        self.post("UPDATE beat SET at = at WHERE id = 1")
        return True

    def sever_stuck(self) -> None:
        """Let calls fail that take too long."""
        for session in self._sessions.values():
            session.sever_if_stuck()

    def close(self) -> None:
        """Close everything; calls under way fail."""
        for session in self._sessions.values():
            session.close()


def make_tables(db: Session) -> None:
    """Make the tables that are missing.

    Raises:
        psycopg.Error: nobody answers, or refuses.
        StoreError: a newer release made them.
    """
    try:
        db.script(f"BEGIN; {for_postgresql()}")
        db.execute("INSERT INTO fact (name, value) VALUES ('schema', ?) ON CONFLICT (name) DO NOTHING", (_VERSION,))
        (found,) = db.execute("SELECT value FROM fact WHERE name = 'schema'").fetchone()
        if int(found) > SCHEMA_VERSION:
            raise StoreError(f"the tables are of another version (schema {found}, this is {SCHEMA_VERSION})")
        db.commit()
    except BaseException:
        db.drop()
        raise


@functools.lru_cache(maxsize=512)
def _translated(statement: str) -> str:
    return statement.replace("%", "%%").replace("?", "%s")


def _clean(value: Any) -> Any:  # noqa: ANN401
    """Return the value without what PostgreSQL's text cannot hold."""
    return value.replace("\0", "\ufffd") if type(value) is str and "\0" in value else value
