"""Each documented limit of the fake Slack: the longest that Slack takes passes, one more is refused with its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyrometer_simulator.slack_blocks import LIMITS, SlackError, check_message, check_view


def plain(length: int) -> dict[str, str]:
    return {"type": "plain_text", "text": "x" * length}


def marked(length: int) -> dict[str, str]:
    return {"type": "mrkdwn", "text": "x" * length}


def button(number: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "button", "action_id": f"a{number}", "text": plain(3), **more}


def actions(*elements: Any) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def confirm(**more: Any) -> dict[str, Any]:
    return actions(button(confirm={name: plain(3) for name in ("title", "text", "confirm", "deny")} | more))


def image(**more: Any) -> dict[str, Any]:
    return {"type": "image", "image_url": "https://example.org/a.png", "alt_text": "a", **more}


BLOCKS: dict[str, Callable[[int], Any]] = {
    "block_id": lambda n: {"type": "divider", "block_id": "x" * n},
    "section.text": lambda n: {"type": "section", "text": marked(n)},
    "section.fields": lambda n: {"type": "section", "fields": [marked(1)] * n},
    "section.field": lambda n: {"type": "section", "fields": [marked(n)]},
    "header.text": lambda n: {"type": "header", "text": plain(n)},
    "context.elements": lambda n: {"type": "context", "elements": [marked(1)] * n},
    "context.text": lambda n: {"type": "context", "elements": [marked(n)]},
    "actions.elements": lambda n: actions(*(button(number) for number in range(n))),
    "button.text": lambda n: actions(button(text=plain(n))),
    "button.value": lambda n: actions(button(value="x" * n)),
    "button.url": lambda n: actions(button(url="https://e.org/" + "x" * (n - 14))),
    "button.accessibility_label": lambda n: actions(button(accessibility_label="x" * n)),
    "action_id": lambda n: actions(button(action_id="x" * n)),
    "confirm.title": lambda n: confirm(title=plain(n)),
    "confirm.text": lambda n: confirm(text=plain(n)),
    "confirm.confirm": lambda n: confirm(confirm=plain(n)),
    "confirm.deny": lambda n: confirm(deny=plain(n)),
    "image.alt_text": lambda n: image(alt_text="x" * n),
    "image.title": lambda n: image(title=plain(n)),
    "image.image_url": lambda n: image(image_url="https://e.org/" + "x" * (n - 14)),
}
MESSAGES: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "blocks": (lambda n: {"blocks": [{"type": "divider"}] * n}, "invalid_blocks"),
    "post.text": (lambda n: {"text": "x" * n}, "msg_too_long"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_at_its_limit_passes_and_one_more_is_refused(name: str) -> None:
    most = LIMITS[name]
    check_message({"text": "t", "blocks": [BLOCKS[name](most)]})
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_message({"text": "t", "blocks": [BLOCKS[name](most + 1)]})


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_at_its_limit_passes_and_one_more_is_refused(name: str) -> None:
    build, code = MESSAGES[name]
    check_message(build(LIMITS[name]))
    with pytest.raises(SlackError, match=code):
        check_message(build(LIMITS[name] + 1))


def test_an_edit_takes_4000_bytes_and_a_post_takes_more() -> None:
    check_message({"text": "ж" * 2000}, edits=True)
    check_message({"text": "ж" * 2001})
    with pytest.raises(SlackError, match="msg_too_long"):
        check_message({"text": "ж" * 2001}, edits=True)


def test_two_buttons_of_one_block_differ_in_their_action() -> None:
    with pytest.raises(SlackError, match="invalid_blocks"):
        check_message({"text": "t", "blocks": [actions(button(1), button(1))]})
    check_message({"text": "t", "blocks": [actions(button(1)), actions(button(1))]})


@pytest.mark.parametrize("name", ["title", "submit", "close", "private_metadata", "callback_id"])
def test_a_modal_at_its_limits_passes_and_one_more_is_refused(name: str) -> None:
    def view(length: int) -> dict[str, Any]:
        asked = {"type": "input", "label": plain(5), "element": {"type": "plain_text_input", "action_id": "a"}}
        texts: dict[str, Any] = {one: plain(3) for one in ("title", "submit", "close")}
        texts[name] = plain(length) if name in texts else "x" * length
        return {"type": "modal", "blocks": [asked], **texts}

    check_view(view(LIMITS[f"view.{name}"]))
    with pytest.raises(SlackError, match="invalid_arguments"):
        check_view(view(LIMITS[f"view.{name}"] + 1))
