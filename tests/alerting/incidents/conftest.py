"""The store on either engine: SQLite unless a test or its folder asks for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_simulator.postgres import Pair, missing


@pytest.fixture(scope="session")
def postgres() -> Iterator[Pair]:
    if reason := missing():
        pytest.skip(reason)
    with Pair() as pair:
        yield pair


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def store(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store") if engine == "sqlite" else _on_server(request.getfixturevalue("postgres"))
    yield opened
    opened.close()


def _on_server(pair: Pair) -> Store:
    from pyrometer_alerting.incidents.storage.postgresql import PostgreSQL, Server, Session, make_tables

    server = Server(pair.url)
    session = Session(server).open()
    make_tables(session)
    names = session.script("SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE schemaname = 'public'")
    session.script(f"TRUNCATE {names.fetchone()[0]} RESTART IDENTITY")
    make_tables(session)
    session.close()
    return Store(PostgreSQL(server, epoch=0))
