"""The channel in a terminal, used without a Slack token: the same blocks as text, coloured only on a tty."""

# ruff: noqa: ARG002 - the Slack protocol names what a terminal has no use for
from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import count
from typing import TextIO

from pyrometer_alerting.channel.breaker import SlackFailure, Trouble
from pyrometer_alerting.channel.chart_block import sparkline
from pyrometer_alerting.channel.mrkdwn import Span, spans, texts
from pyrometer_alerting.model.message import Message

WIDTH = 110
_REPLY = "reply-"
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def render(message: Message, *, colour: bool = False) -> str:
    """Return a message as lines of text."""
    if not message.blocks:
        return "".join(_plain(span, colour=colour) for span in spans(message.text))
    lines: list[str] = []
    for block in message.blocks:
        if block["type"] == "data_visualization" and block["chart"]["type"] == "line":
            lines.append(f"  {block['title']}: {sparkline(block)}")
            continue
        if block["type"] == "divider":
            continue
        pieces = ["".join(_plain(span, colour=colour) for span in piece) for piece in texts(block)]
        if block["type"] == "header":
            lines.append(f"{_BOLD}{pieces[0]}{_RESET}" if colour else pieces[0])
        elif block["type"] == "context":
            line = "  ".join(pieces)
            lines.append(f"  {_DIM}{line}{_RESET}" if colour else f"  {line}")
        elif "fields" in block:
            lines.append("  " + "  ".join(piece.replace("\n", ": ") for piece in pieces))
        else:
            lines += [wrapped for piece in pieces for wrapped in _wrapped(piece)]
    return "\n".join(lines)


def _wrapped(piece: str) -> list[str]:
    lines = []
    for line in piece.split("\n"):
        lines += textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="     ", break_long_words=False)
    return lines


def _plain(span: Span, *, colour: bool) -> str:
    if span.kind == "link" and span.url != span.text:
        return f"{span.text} ({span.url})"
    if span.kind == "code":
        return f"`{span.text}`"
    return f"{_BOLD}{span.text}{_RESET}" if span.kind == "bold" and colour else span.text


class TerminalSlack:
    """A Slack that prints to a stream, so that everything can be tried without a Slack account."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colour = stream.isatty()
        self._numbers = count(1)

    def post(
        self, channel: str, message: Message, metadata: Mapping[str, str], thread_ts: str | None
    ) -> tuple[str, str]:
        """Print the message, a reply indented."""
        self._print("    " if thread_ts else "", message)
        return "terminal", f"{_REPLY if thread_ts else ''}{next(self._numbers)}.{metadata['op_id'][:6]}"

    def update(self, channel: str, ts: str, message: Message, metadata: Mapping[str, str]) -> None:
        """Print the message again: a terminal cannot edit what has scrolled away."""
        self._print("    " if ts.startswith(_REPLY) else "", message)

    def find(self, channel: str, op_id: str, oldest: float, thread_ts: str | None) -> list[str]:
        """Return nothing: a terminal cannot be searched."""
        return []

    def delete(self, channel: str, ts: str) -> None:
        """Do nothing."""

    def channel_id(self, channel: str) -> str:
        """Return the name of the only channel."""
        return "terminal"

    def check(self) -> None:
        """Do nothing: there is no token."""

    def upload(self, name: str, content: bytes, title: str) -> str:
        """Refuse: a terminal shows the sparkline instead of pictures.

        Raises:
            SlackFailure: always.
        """
        raise SlackFailure(Trouble.CHANNEL, "no_pictures_here")

    def is_ready(self, file_id: str) -> bool:
        """Return False: there are no pictures."""
        return False

    def _print(self, indent: str, message: Message) -> None:
        lines = textwrap.indent(render(message, colour=self._colour), indent)
        self._stream.write(lines + "\n\n")
        self._stream.flush()
