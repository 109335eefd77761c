"""Answers of two engines to the same expressions, alike or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from pyrometer_simulator.http_server import HttpServer, Request, Response
from pyrometer_simulator.victoria.boards import MAP, Boards, answer

Rows = list[tuple[dict[str, str], str]]


@pytest.fixture
def engine() -> Iterator[Callable[[Callable[[Request], Rows | None]], str]]:
    """Start an engine that answers as told; None is an error."""
    servers = []

    def start(rows: Callable[[Request], Rows | None]) -> str:
        def respond(request: Request) -> Response:
            found = rows(request)
            if found is None:
                return Response(b"{}", status=503)
            result = [{"metric": metric, "value": [0, value]} for metric, value in found]
            return Response(json.dumps({"data": {"result": result}}).encode())

        servers.append(HttpServer(respond).start())
        return servers[-1].url

    yield start
    for server in servers:
        server.stop()


def test_names_values_and_what_is_no_number_are_not_compared(engine: Callable[..., str]) -> None:
    one = engine(lambda _: [({"__name__": "up", "node": "a"}, "1"), ({"node": "b"}, "NaN")])
    other = engine(lambda _: [({"node": "a"}, "7")])
    assert answer(one, ("board", "up"), 0.0) == answer(other, ("board", "up"), 0.0)
    assert answer(engine(lambda _: []), ("board", "up"), 0.0) == frozenset()
    assert answer(engine(lambda _: None), ("board", "up"), 0.0) is None


def test_on_the_map_a_mark_is_not_a_deviation(engine: Callable[..., str]) -> None:
    marked, plain = engine(lambda _: [({"gpu": "0"}, "1000000")]), engine(lambda _: [({"gpu": "0"}, "1")])
    assert answer(marked, (MAP, "x"), 0.0) != answer(plain, (MAP, "x"), 0.0)
    assert answer(marked, ("bytes", "x"), 0.0) == answer(plain, ("bytes", "x"), 0.0)
    assert Boards(marked, plain, [(MAP, "x"), ("bytes", "x")]).marks() == 1


def test_what_differs_without_a_fault_is_compared_no_more(engine: Callable[..., str]) -> None:
    ours = engine(lambda request: [({"node": "a"}, "1")] if "known" in request.query["query"] else [])
    theirs = engine(lambda _: [({"node": "a"}, "1")])
    both = Boards(ours, theirs, [("1", "known"), ("2", "other")])
    both.exclude_differences(0.0)
    assert both.differ == {"2"}
    assert both.answered == 1
    assert both.until_alike(0.0) == []


def test_boards_are_waited_for_until_they_are_alike(
    engine: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrometer_simulator.victoria.boards.time.sleep", lambda _: None)
    answers: Iterator[Rows | None] = iter([None, []])
    ours = engine(lambda _: next(answers, [({"node": "a"}, "1")]))
    theirs = engine(lambda _: [({"node": "a"}, "1")])
    assert Boards(ours, theirs, [("1", "x")]).until_alike(10.0) == []
    assert next(answers, "used") == "used"
