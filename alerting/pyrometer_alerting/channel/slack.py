"""Slack's Web API: a small protocol, its implementation with slack_sdk, and the failures by class.

slack_sdk's default retry handler sends chat.postMessage twice when a connection breaks, and posting is not idempotent:
it is switched off, and the outbox decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from email.message import Message as Headers
from http import HTTPStatus
from io import BytesIO
from typing import Any, NamedTuple, Protocol
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import (
    BaseHandler,
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    OpenerDirector,
    Request,
    install_opener,
)
from urllib.response import addinfourl

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web import SlackResponse

from pyrometer_alerting.channel.breaker import SlackFailure, Trouble
from pyrometer_alerting.model.message import Message
from pyrometer_alerting.model.text import fit
from pyrometer_kit.errors import HttpError
from pyrometer_kit.http_client import HttpClient

# Well above the time of any normal answer: beyond this the connection is dead and a lookup decides.
TIMEOUT_SECONDS = 10
LONGEST_WAIT_SECONDS = 3600.0  # upper limit of a rate limit's wait, whatever Slack requests
MAX_HISTORY_PAGES = 5
MAX_CHANNEL_PAGES = 500  # half a million channels; a list without end must end
MOST_TEXT_BYTES = 4000  # of an edit's `text`; a post takes more, but it will be edited
EVENT_TYPE = "pyrometer_incident"


class Identity(NamedTuple):
    """The token's owner, its scopes, and the ids of its workspace and organization."""

    bot: str
    workspace: str
    scopes: frozenset[str]
    ids: frozenset[str] = frozenset()


class ChannelInfo(NamedTuple):
    """A channel as the bot sees it."""

    name: str
    member: bool
    archived: bool
    private: bool


class Slack(Protocol):
    """The channel as the outbox needs it; every method raises SlackFailure."""

    def post(
        self, channel: str, message: Message, metadata: Mapping[str, str], thread_ts: str | None
    ) -> tuple[str, str]:
        """Post and return (channel id, ts)."""
        ...

    def update(self, channel: str, ts: str, message: Message, metadata: Mapping[str, str]) -> None:
        """Replace the content of our own message."""

    def find(self, channel: str, op_id: str, oldest: float, thread_ts: str | None) -> list[str]:
        """Return the ts of our messages with this op_id, oldest first."""
        ...

    def delete(self, channel: str, ts: str) -> None:
        """Remove our own message."""

    def channel_id(self, channel: str) -> str:
        """Return the id of a channel given by id or name."""
        ...

    def check(self) -> None:
        """Check the token."""

    def upload(self, name: str, content: bytes, title: str) -> str:
        """Upload a picture that no channel shows yet and return its id; messages may use it once it is ready."""
        ...

    def is_ready(self, file_id: str) -> bool:
        """Return whether Slack has processed an upload: a message that uses it earlier is refused as a whole."""
        ...


# docs.slack.dev/reference/methods: the errors of chat.postMessage, chat.update, conversations.history and files.*.
_CODES: Mapping[Trouble, str] = {
    Trouble.RATE: "ratelimited rate_limited message_limit_exceeded",
    Trouble.GONE: "message_not_found thread_not_found",
    Trouble.AUTH: "invalid_auth not_authed account_inactive token_revoked token_expired missing_scope"
    " org_login_required two_factor_setup_required not_allowed_token_type accesslimited enterprise_is_restricted",
    # One channel can be at fault for the second line: what is for other channels must not wait for it.
    Trouble.CHANNEL: "channel_not_found not_in_channel is_archived is_inactive messages_tab_disabled team_not_found"
    " no_permission team_access_not_granted ekm_access_denied"
    " restricted_action restricted_action_read_only_channel restricted_action_thread_only_channel",
    # Content, or a thread, that Slack will never take. No other code is final.
    Trouble.PAYLOAD: "msg_too_long msg_blocks_too_long invalid_blocks invalid_blocks_format invalid_attachments no_text"
    " markdown_text_conflict too_many_attachments too_many_contact_cards attachment_payload_limit_exceeded"
    " missing_file_data invalid_metadata_format invalid_metadata_schema metadata_too_large invalid_arguments"
    " metadata_must_be_sent_from_app cant_update_message edit_window_closed block_mismatch cannot_reply_to_message"
    " restricted_action_thread_locked restricted_action_non_threadable_channel",
    Trouble.AMBIGUOUS: "internal_error fatal_error",
    Trouble.SAFE: "service_unavailable request_timeout team_added_to_org",
}
_TROUBLES = {code: trouble for trouble, codes in _CODES.items() for code in codes.split()}


def classify(code: str) -> Trouble:
    """Return the class of Slack's error code; what no table lists is waited for, and never final."""
    return _TROUBLES.get(code, Trouble.UNKNOWN)


class _Response(addinfourl):
    """An answer as urllib's handlers read it."""

    msg = ""


class _OurClient(BaseHandler):
    """Sends urllib's requests with our own client, so that slack_sdk's calls have the limits of all others."""

    def https_open(self, request: Request) -> addinfourl:
        """Return the whole answer.

        Raises:
            URLError: there was none, or not all of it.
        """
        body = request.data if isinstance(request.data, bytes) else None
        headers = Headers()
        try:
            client = HttpClient(request.full_url, TIMEOUT_SECONDS)
            with closing(client), client.ask(request.get_method(), "", body, dict(request.header_items())) as answer:
                for name, value in answer.headers.items():
                    headers[name] = value
                return _Response(BytesIO(answer.read()), headers, request.full_url, answer.status)
        except HttpError as error:
            raise URLError(error) from None

    http_open = https_open


class WebSlack:
    """Slack's Web API through slack_sdk; `base_url` ends in `/api/`, every method raises SlackFailure."""

    def __init__(self, token: str, base_url: str, read_token: Callable[[], str] | None = None) -> None:
        """Use this token, and the one that `read_token` returns as soon as Slack refuses it."""
        opener = OpenerDirector()
        for handler in (_OurClient(), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            opener.add_handler(handler)
        install_opener(opener)  # slack_sdk calls urlopen
        quiet = logging.getLogger("pyrometer_alerting.slack_sdk")
        quiet.setLevel(logging.WARNING)  # at DEBUG slack_sdk logs message bodies
        self._client = WebClient(
            token=token, base_url=base_url, timeout=TIMEOUT_SECONDS, retry_handlers=[], logger=quiet
        )
        self._client.proxy = None  # with one, it would not use the opener
        self._read_token = read_token or (lambda: token)

    def post(
        self, channel: str, message: Message, metadata: Mapping[str, str], thread_ts: str | None
    ) -> tuple[str, str]:
        """Call chat.postMessage, with mentions, unfurling and link names off."""
        answer = self._call(
            lambda: self._client.chat_postMessage(
                channel=channel,
                text=fit(message.text, MOST_TEXT_BYTES),
                blocks=message.blocks or None,
                thread_ts=thread_ts,
                reply_broadcast=True if message.broadcast and thread_ts else None,
                metadata=_metadata(metadata),
                unfurl_links=False,
                unfurl_media=False,
                link_names=False,
                parse="none",
            )
        )
        return str(answer.get("channel")), str(answer.get("ts"))

    def update(self, channel: str, ts: str, message: Message, metadata: Mapping[str, str]) -> None:
        """Call chat.update: idempotent, pings nobody. An empty list removes the blocks that were there."""
        self._call(
            lambda: self._client.chat_update(
                channel=channel,
                ts=ts,
                text=fit(message.text, MOST_TEXT_BYTES),
                blocks=message.blocks,
                metadata=_metadata(metadata),
                link_names=False,
                parse="none",
            )
        )

    def find(self, channel: str, op_id: str, oldest: float, thread_ts: str | None) -> list[str]:
        """Call conversations.history (or .replies) with metadata, page by page."""
        timestamps: list[str] = []
        cursor: str | None = None
        for _page in range(MAX_HISTORY_PAGES):
            answer = self._history(channel, oldest, thread_ts, cursor)
            timestamps += [str(message["ts"]) for message in answer.get("messages") or [] if _op_id(message) == op_id]
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
        return sorted(timestamps, key=float)

    def _history(self, channel: str, oldest: float, thread_ts: str | None, cursor: str | None) -> SlackResponse:
        if thread_ts is None:
            return self._call(
                lambda: self._client.conversations_history(
                    channel=channel, oldest=f"{oldest:.6f}", limit=200, include_all_metadata=True, cursor=cursor
                )
            )
        return self._call(
            lambda: self._client.conversations_replies(
                channel=channel,
                ts=thread_ts,
                oldest=f"{oldest:.6f}",
                limit=200,
                include_all_metadata=True,
                cursor=cursor,
            )
        )

    def delete(self, channel: str, ts: str) -> None:
        """Call chat.delete."""
        self._call(lambda: self._client.chat_delete(channel=channel, ts=ts))

    def channel_id(self, channel: str) -> str:
        """Return an id unchanged; look up a name with conversations.list.

        Raises:
            SlackFailure: there is no such channel, or the call failed.
        """
        name = channel.removeprefix("#")
        if channel == name and channel[:1] in ("C", "G") and channel.isalnum() and channel.isupper():
            return channel
        cursor: str | None = None
        for _page in range(MAX_CHANNEL_PAGES):
            page = cursor
            answer = self._call(
                lambda page=page: self._client.conversations_list(  # type: ignore[misc]
                    exclude_archived=True, types="public_channel,private_channel", limit=999, cursor=page
                )
            )
            for entry in answer.get("channels") or []:
                if entry.get("name") == name:
                    return str(entry["id"])
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor or cursor == page:
                break
        raise SlackFailure(Trouble.CHANNEL, "channel_not_found")

    def open_view(self, trigger: str, view: Mapping[str, Any]) -> None:
        """Call views.open."""
        self._call(lambda: self._client.views_open(trigger_id=trigger, view=dict(view)))

    def post_ephemeral(self, channel: str, user: str, said: str) -> None:
        """Call chat.postEphemeral."""
        self._call(lambda: self._client.chat_postEphemeral(channel=channel, user=user, text=said, parse="none"))

    @property
    def client(self) -> WebClient:
        """The slack_sdk client, for Socket Mode."""
        return self._client

    def check(self) -> None:
        """Call auth.test."""
        self._call(self._client.auth_test)

    def identity(self) -> Identity:
        """Return the token's owner and scopes; Slack names a token's scopes in a header of each answer."""
        answer = self._call(self._client.auth_test)
        headers = {name.lower(): str(value) for name, value in answer.headers.items()}
        scopes = frozenset(scope.strip() for scope in headers.get("x-oauth-scopes", "").split(",") if scope.strip())
        ids = frozenset(str(answer[name]) for name in ("team_id", "enterprise_id") if answer.get(name))
        return Identity(str(answer.get("user")), str(answer.get("team")), scopes, ids)

    def workspaces(self) -> frozenset[str]:
        """Return the ids of the token's workspace and organization."""
        return self.identity().ids

    def channel_info(self, channel_id: str) -> ChannelInfo:
        """Return conversations.info of a channel; needs channels:read (groups:read for a private one)."""
        found = self._call(lambda: self._client.conversations_info(channel=channel_id)).get("channel") or {}
        flags = (bool(found.get(name)) for name in ("is_member", "is_archived", "is_private"))
        return ChannelInfo(str(found.get("name")), *flags)

    def open_socket(self, app_token: str) -> None:
        """Request the address of a Socket Mode connection, without connecting."""
        self._call(lambda: self._client.apps_connections_open(app_token=app_token))

    def upload(self, name: str, content: bytes, title: str) -> str:
        """Call files.getUploadURLExternal, send the bytes, and call files.completeUploadExternal."""
        ticket = self._call(lambda: self._client.files_getUploadURLExternal(filename=name, length=len(content)))
        address, file_id = str(ticket["upload_url"]), str(ticket["file_id"])
        self._send_bytes(address, content)
        self._call(lambda: self._client.files_completeUploadExternal(files=[{"id": file_id, "title": title}]))
        return file_id

    def is_ready(self, file_id: str) -> bool:
        """Call files.info: the type is known once the file is processed."""
        answer = self._call(lambda: self._client.files_info(file=file_id))
        return bool((answer.get("file") or {}).get("mimetype"))

    def _send_bytes(self, address: str, content: bytes) -> None:
        """Send the bytes to Slack's own hosts only, no matter which host the answer named."""
        host, ours = urlsplit(address).hostname or "", urlsplit(self._client.base_url).hostname
        if host != ours and not (address.startswith("https://") and host.endswith(".slack.com")):
            raise SlackFailure(Trouble.PAYLOAD, "upload_to_a_strange_host")
        try:
            client = HttpClient(address, TIMEOUT_SECONDS)
            with closing(client), client.ask("POST", "", content) as answer:
                status = answer.status
        except HttpError as error:
            raise SlackFailure(Trouble.SAFE, error.reason) from None
        if status != HTTPStatus.OK:
            raise SlackFailure(Trouble.SAFE, f"upload_http_{status}")

    def _call(self, call: Callable[[], SlackResponse]) -> SlackResponse:
        """Make the call, once more with a new token where there is one."""
        try:
            return self._once(call)
        except SlackFailure as failure:
            token = self._read_token() if failure.trouble is Trouble.AUTH else ""
            if not token or token == self._client.token:
                raise
            self._client.token = token
            return self._once(call)

    @staticmethod
    def _once(call: Callable[[], SlackResponse]) -> SlackResponse:
        try:
            return call()
        except SlackApiError as error:
            raise _failure(error) from None
        except URLError as error:
            if isinstance(error.reason, HttpError) and not error.reason.sent:
                raise SlackFailure(Trouble.SAFE, "unreachable") from None
            raise SlackFailure(Trouble.AMBIGUOUS, getattr(error.reason, "reason", "URLError")) from None
        except (OSError, SlackClientError, ValueError) as error:
            raise SlackFailure(Trouble.AMBIGUOUS, type(error).__name__) from None


def _failure(error: SlackApiError) -> SlackFailure:
    """Classify an error by Slack's code, else by HTTP status; a 5xx other than 503 may follow a success."""
    status, data = getattr(error.response, "status_code", 200), getattr(error.response, "data", None)
    code = str(data.get("error") or "") if isinstance(data, dict) else ""
    if status == 429 or classify(code) is Trouble.RATE:
        return SlackFailure(Trouble.RATE, "ratelimited", _retry_after(error.response.headers))
    if status == 503:
        return SlackFailure(Trouble.SAFE, "http_503")
    if status >= 500:
        return SlackFailure(Trouble.AMBIGUOUS, f"http_{status}")
    if not code:
        return SlackFailure(Trouble.AMBIGUOUS, f"http_{status}_without_json")
    return SlackFailure(classify(code), code)


def _retry_after(headers: Mapping[str, Any]) -> float:
    value = next((content for name, content in headers.items() if name.lower() == "retry-after"), "")
    try:
        return min(max(float(value[0] if isinstance(value, list) else value), 1.0), LONGEST_WAIT_SECONDS)
    except (TypeError, ValueError, IndexError):
        return 30.0  # Slack sends a time with every 429; without one, half a minute is its usual value


def _metadata(payload: Mapping[str, str]) -> dict[str, Any]:
    return {"event_type": EVENT_TYPE, "event_payload": dict(payload)}


def _op_id(message: Mapping[str, Any]) -> str | None:
    metadata = message.get("metadata") or {}
    payload = metadata.get("event_payload") or {}
    return payload.get("op_id") if metadata.get("event_type") == EVENT_TYPE else None
