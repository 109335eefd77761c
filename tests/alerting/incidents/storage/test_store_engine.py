"""The store asks its engine whose change it is and who leads, and its end waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrometer_alerting.incidents.storage.database import Database
from pyrometer_alerting.incidents.storage.engine import Loss
from pyrometer_alerting.incidents.storage.store import LOST_FACT, REFILL_FACT, NotLeadingError, Store, StoreError


class Shared:
    """A server's engine on a file: no folder, another one may lead, and what is asked is noted."""

    def __init__(self, path: Path) -> None:
        self._file = Database(path, alone=True)
        self.asides: list[bool] = []
        self.leading = True
        self.closed = threading.Event()

    folder = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    @property
    def loss(self) -> Loss | None:
        return self._file.loss

    @loss.setter
    def loss(self, loss: Loss | None) -> None:
        self._file.loss = loss

    def leads(self) -> bool:
        return self.leading

    def begin(self, *, aside: bool = False) -> Any:
        self.asides.append(aside)
        return self._file.begin()

    def close(self) -> None:
        self.closed.set()

    def end(self) -> None:
        self._file.close()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path)
    yield made
    made.end()


def test_a_folder_is_the_files_and_no_servers(tmp_path: Path, shared: Shared) -> None:
    store = Store(shared)  # type: ignore[arg-type]
    assert store.engine is shared  # type: ignore[comparison-overlap]
    with pytest.raises(StoreError, match="there is no folder"):
        _ = store.folder
    own = Store(tmp_path / "own")
    assert own.folder == tmp_path / "own"
    own.close()


def test_nobody_is_called_while_another_may_lead(shared: Shared) -> None:
    store = Store(shared)  # type: ignore[arg-type]
    store.check_leading()
    shared.leading = False
    with pytest.raises(NotLeadingError, match="another replica is the leader"):
        store.check_leading()


@pytest.mark.parametrize(
    ("alone", "given", "asked"),
    [(True, {}, False), (True, {"aside": True}, True), (False, {}, True), (False, {"aside": False}, True)],
)
def test_only_the_leader_changes_the_database_but_for_commands_and_strays(
    shared: Shared, alone: bool, given: dict[str, bool], asked: bool
) -> None:
    with Store(shared, alone=alone).transaction(**given):  # type: ignore[arg-type]
        pass
    assert shared.asides == [asked]


def test_the_end_does_not_wait_for_a_call_to_a_server(shared: Shared, tmp_path: Path) -> None:
    store = Store(shared)  # type: ignore[arg-type]
    with store.transaction():
        thread = threading.Thread(target=store.close)
        thread.start()
        assert shared.closed.wait(5), "so that the call under way fails"
    thread.join(5)
    assert not thread.is_alive()
    own = Store(tmp_path / "own")
    with own.transaction() as tx:
        thread = threading.Thread(target=own.close)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), "a file's change is finished first"
        tx.save_fact("a", "1")
    thread.join(5)
    assert not thread.is_alive()


def test_a_loss_of_a_server_is_remembered_when_it_is_known(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(shared)  # type: ignore[arg-type]
    store.save_loss()
    with store.snapshot() as tx:
        assert tx.fact(LOST_FACT) is None
    shared.loss = Loss("it is older", "", 17.0, {"receiver:a": "1"})
    store.save_loss()
    assert shared.loss is None
    with store.snapshot() as tx:
        assert tx.fact(LOST_FACT) == '{"why": "it is older", "kept": "", "since": 17.0}'
        assert (tx.fact(REFILL_FACT), tx.fact("receiver:a")) == ("due", "1")
    assert caplog.records[-1].message.endswith(": it is older")
    shared.loss = Loss("it is broken", "the old one is kept", 17.0)
    store.save_loss()
    assert caplog.records[-1].message.endswith(": it is broken; the old one is kept")
