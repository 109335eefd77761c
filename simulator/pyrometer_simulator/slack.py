"""A stand-in for Slack's Web API that enforces Slack's shapes, limits and errors, with a page that shows the channel.

    with FakeSlack(channel_names=["gpu-alerts"], token="xoxb-test") as slack:
        ...  # --slack.api-url is slack.url
        slack.messages("gpu-alerts")

Faults are injected per method: `slack.inject("chat.postMessage", kind="close_after")` handles the next post and hangs
up without an answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs

from pyrometer_simulator.http_server import HttpServer, Request, Response, json_response
from pyrometer_simulator.slack_app import APP_METHODS, SlackApp
from pyrometer_simulator.slack_blocks import SlackError
from pyrometer_simulator.slack_channel import BOT_USER, TEAM, Channel, RateLimiter, RateLimits, page_of
from pyrometer_simulator.slack_files import Files
from pyrometer_simulator.slack_page import render_page
from pyrometer_simulator.slack_scopes import ALL, check_scope

FaultKind: TypeAlias = Literal[
    "status", "error", "ratelimit", "hang_before", "hang_after", "close_before", "close_after"
]


@dataclass(frozen=True)
class Fault:
    """A fault of one call: `*_before` loses the request, `*_after` handles it and loses the answer.

    `status` is the HTTP status, `error` Slack's code, `seconds` how long to hang or the Retry-After of a rate limit.
    """

    kind: FaultKind
    status: int = 500
    error: str = "internal_error"
    seconds: float = 1.0


@dataclass(frozen=True)
class Call:
    """One API call; `outcome` is `ok`, Slack's error code or the injected fault."""

    time: float
    method: str
    args: Mapping[str, Any]
    outcome: str


class FakeSlack:
    """The server and its channels. State survives `down()` and `up()`, so that an outage can be simulated."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        channel_names: Iterable[str] = ("gpu-alerts",),
        token: str = "xoxb-fake-token",  # noqa: S107 - a made-up token for a made-up Slack
        app_token: str = "xapp-fake-token",  # noqa: S107
        limits: RateLimits | None = None,
        native_charts: bool = True,
    ) -> None:
        self._host, self._port, self._token, self._app_token = host, port, token, app_token
        self.app = SlackApp()
        self._limiter = RateLimiter(limits or RateLimits())
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._lock = threading.RLock()
        self._server: HttpServer | None = None
        self._thread: threading.Thread | None = None
        self.calls: list[Call] = []
        self.files = Files()
        self.scopes = set(ALL)  # of the bot token
        self.native_charts = native_charts  # False: a workspace without the chart block
        self.channels = {
            f"C{index:09d}": Channel(id=f"C{index:09d}", name=name.lstrip("#"))
            for index, name in enumerate(channel_names, start=1)
        }

    def __enter__(self) -> FakeSlack:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.down()

    @property
    def token(self) -> str:
        """Return the bot token that it takes."""
        return self._token

    def up(self) -> None:
        """Listen; the port stays the same after the first time.

        Raises:
            OSError: the port is taken.
        """
        self._server = HttpServer(self._respond, self._host, self._port).start()
        self._port = self._server.server_port
        self.app.socket.up()

    def down(self) -> None:
        """Stop listening, so that connections are refused; keep all messages."""
        self.app.socket.down()
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def url(self) -> str:
        """The value of --slack.api-url."""
        return f"http://{self._host}:{self._port}/api/"

    @property
    def page_url(self) -> str:
        """The address of the page that shows the channels."""
        return f"http://{self._host}:{self._port}/"

    def inject(self, method: str, kind: FaultKind, *, times: int = 1, **details: Any) -> None:  # noqa: ANN401 - Fault's fields
        """Let the next `times` calls of `method` fail as `kind`; further keywords are Fault's fields."""
        with self._lock:
            self._faults[method].extend([Fault(kind=kind, **details)] * times)

    def messages(self, channel: str) -> list[dict[str, Any]]:
        """Return the root messages of a channel (name or id), oldest first, each with `replies` and `versions`.

        Raises:
            SlackError: there is no such channel.
        """
        with self._lock:
            wanted = self.channel(channel)
            return [
                message.to_json()
                | {"replies": [reply.to_json() for reply in message.replies], "versions": list(message.versions)}
                for message in wanted.messages.values()
            ]

    def channel(self, name_or_id: str) -> Channel:
        """Return the channel with this id or name.

        Raises:
            SlackError: channel_not_found.
        """
        for channel in self.channels.values():
            if name_or_id in (channel.id, channel.name, f"#{channel.name}"):
                return channel
        raise SlackError("channel_not_found")

    def _respond(self, request: Request) -> Response | None:
        """Serve the page, a channel as JSON, uploaded files, or an API call; None hangs up."""
        folder, _, name = request.path.removeprefix("/").partition("/")
        if folder == "api":
            return self._api(name, request)
        if request.method == "POST" and folder == "upload":
            stored = self.files.receive(name, request.body)
            return Response(b"OK" if stored else b"bad upload", 200 if stored else 400)
        if request.path == "/":
            return Response(self.page(), content_type="text/html; charset=utf-8")
        if folder == "channels":
            return self._channel_json(name.removesuffix(".json"))
        if folder == "files":
            content = self.files.content(name)
            return Response(content or b"", 200 if content else 404, "image/png")
        return Response(b"not found", 404)

    def _channel_json(self, name: str) -> Response:
        """Return `messages` and the number of calls, for tests in another process; not part of Slack's API."""
        try:
            return json_response({"messages": self.messages(name), "calls": len(self.calls)})
        except SlackError as error:
            return json_response({"error": error.code}, 404)

    def page(self) -> bytes:
        """Return the HTML of all channels."""
        with self._lock:
            return render_page(self.channels.values(), time.time()).encode()

    def _api(self, method: str, request: Request) -> Response | None:
        try:
            args = _arguments(request)
        except ValueError:
            return json_response({"ok": False, "error": "invalid_json"})
        return self.answer(method, args, request.headers.get("Authorization", ""))

    def answer(self, method: str, args: Mapping[str, Any], authorization: str) -> Response | None:
        """Handle one API call; None means: hang up without an answer."""
        with self._lock:
            fault = self._faults[method].popleft() if self._faults[method] else None
        if fault is not None and not fault.kind.endswith("_after"):
            self._record(method, args, fault.kind)
            return _fail(fault)
        with self._lock:
            answer = self._handle(method, args, authorization)
        if fault is not None:
            return _fail(fault)
        return answer

    def _handle(self, method: str, args: Mapping[str, Any], authorization: str) -> Response:
        try:
            token = str(args.get("token") or authorization.removeprefix("Bearer "))
            wait = self._check_call(method, token, args)
            if wait > 0:
                self._record(method, args, "ratelimited")
                return _rate_limited(wait)
            result = self._dispatch(method, args)
        except SlackError as error:
            self._record(method, args, error.code)
            return json_response({"ok": False, "error": error.code})
        self._record(method, args, "ok")
        return json_response({"ok": True, **result}, headers={"X-OAuth-Scopes": ",".join(sorted(self.scopes))})

    def _check_call(self, method: str, token: str, args: Mapping[str, Any]) -> float:
        if not token:
            raise SlackError("not_authed")
        if token != (self._app_token if method == "apps.connections.open" else self._token):
            raise SlackError("invalid_auth")
        check_scope(method, self.scopes)
        return self._limiter.wait_seconds(method, str(args.get("channel", "")))

    def _dispatch(self, method: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if method == "auth.test":
            return {
                "url": self.page_url,
                "team": "Fake",
                "team_id": TEAM,
                "user": "pyrometer",
                "user_id": BOT_USER,
                "bot_id": "B0PYROMETER",
            }
        if method == "conversations.list":
            listed = [{"id": channel.id, "name": channel.name} for channel in self.channels.values()]
            return {"channels": listed, "response_metadata": {"next_cursor": ""}}
        if method in APP_METHODS:
            return self.app.answer(method, args)
        if method.startswith("files."):
            return self._file(method, args)
        handlers = {
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.history": self._history,
            "conversations.info": self._info,
            "conversations.replies": self._replies,
        }
        if method not in handlers:
            raise SlackError("unknown_method")
        if not args.get("channel"):
            raise SlackError("channel_not_found")
        return handlers[method](args)

    def _file(self, method: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if method == "files.getUploadURLExternal":
            return self.files.get_upload_url(args, self.page_url)
        if method == "files.completeUploadExternal":
            return self.files.complete(args)
        if method == "files.info":
            return self.files.info(args)
        raise SlackError("unknown_method")

    def _check_blocks(self, args: Mapping[str, Any]) -> None:
        """Refuse the whole message if it has a block that this workspace cannot show."""
        blocks = [block for block in args.get("blocks") or [] if isinstance(block, Mapping)]
        self.files.check(blocks)
        if not self.native_charts and any(block.get("type") == "data_visualization" for block in blocks):
            raise SlackError("invalid_blocks")

    def _post(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self.channel(str(args["channel"]))
        self._check_blocks(args)
        message = channel.post(args)
        return {"channel": channel.id, "ts": message.ts, "message": message.to_json()}

    def _update(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel_by_id(args)
        self._check_blocks(args)
        message = channel.update(args)
        return {"channel": channel.id, "ts": message.ts, "text": message.text, "message": message.to_json()}

    def _delete(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel_by_id(args)
        channel.delete(str(args.get("ts", "")))
        return {"channel": channel.id, "ts": args.get("ts")}

    def _history(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel_by_id(args)
        return page_of(list(reversed(channel.messages.values())), args)

    def _info(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel_by_id(args)
        return {
            "channel": {
                "id": channel.id,
                "name": channel.name,
                "is_archived": channel.archived,
                "is_member": channel.member,
                "is_private": False,
            }
        }

    def _replies(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel_by_id(args)
        return page_of(channel.thread(str(args.get("ts", ""))), args)

    def _channel_by_id(self, args: Mapping[str, Any]) -> Channel:
        """Return the channel with this id: only chat.postMessage takes a name, too."""
        if str(args["channel"]) not in self.channels:
            raise SlackError("channel_not_found")
        return self.channels[str(args["channel"])]

    def _record(self, method: str, args: Mapping[str, Any], outcome: str) -> None:
        logged = {name: value for name, value in args.items() if name != "token"}
        with self._lock:
            self.calls.append(Call(time=time.time(), method=method, args=logged, outcome=outcome))


def _arguments(request: Request) -> dict[str, Any]:
    """Return an API call's arguments: of the query, a JSON body or a form. Raises ValueError for invalid JSON."""
    if request.method == "GET":
        return dict(request.query)
    if request.headers.get_content_type() == "application/json":
        document: dict[str, Any] = json.loads(request.body or b"{}")  # slack_sdk's auth.test sends an empty body
        return document
    return {name: values[-1] for name, values in parse_qs(request.body.decode("utf-8", "replace")).items()}


def _rate_limited(seconds: float) -> Response:
    return json_response({"ok": False, "error": "ratelimited"}, 429, {"Retry-After": str(math.ceil(seconds))})


def _fail(fault: Fault) -> Response | None:
    """Play the fault; the call itself was handled before, or is dropped."""
    if fault.kind.startswith("hang"):
        time.sleep(fault.seconds)
    if fault.kind == "status":
        return Response(b"upstream says no", fault.status)
    if fault.kind == "error":
        return json_response({"ok": False, "error": fault.error})
    if fault.kind == "ratelimit":
        return _rate_limited(fault.seconds)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the fake Slack until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m pyrometer_simulator.slack", allow_abbrev=False)
    parser.add_argument("--listen", default="127.0.0.1:9938", metavar="HOST:PORT")
    parser.add_argument("--without-charts", action="store_true", help="a workspace without the chart block")
    parser.add_argument("--channel", action="append", metavar="NAME", help="may be repeated; default gpu-alerts")
    options = parser.parse_args(argv)
    host, _, port = options.listen.rpartition(":")
    with FakeSlack(
        host, int(port), channel_names=options.channel or ["gpu-alerts"], native_charts=not options.without_charts
    ) as slack:
        print(f"fake Slack: page {slack.page_url}  --slack.api-url {slack.url}  token xoxb-fake-token", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
