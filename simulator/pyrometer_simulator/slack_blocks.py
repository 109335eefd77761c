"""Slack's limits on a message (Block Kit and `text`), with Slack's own error codes.

Sources: the Block Kit reference (docs.slack.dev/reference/block-kit/blocks) for every limit per block, the reference of
chat.postMessage for `text`, and bolt-js issue 2509 for the undocumented total of all blocks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]

# Characters of a text, items of a list, or bytes. Sources: `blocks/x` is docs.slack.dev/reference/block-kit/blocks/x,
# `elements/x` and `objects/x` are beside it, `views` and `methods/x` are below docs.slack.dev/reference.
LIMITS: Mapping[str, int] = {
    "blocks": 50,  # blocks
    "blocks.characters": 13_200,  # not documented: bolt-js issue 2509
    "block_id": 255,  # every block's page
    "section.text": 3000,  # blocks/section-block
    "section.fields": 10,  # blocks/section-block
    "section.field": 2000,  # blocks/section-block
    "header.text": 150,  # blocks/header-block
    "context.elements": 10,  # blocks/context-block
    "context.text": 3000,  # objects/text-object
    "actions.elements": 25,  # blocks/actions-block
    "button.text": 75,  # elements/button-element
    "button.value": 2000,  # elements/button-element
    "button.url": 3000,  # elements/button-element
    "button.accessibility_label": 75,  # elements/button-element
    "action_id": 255,  # elements/button-element, unique within the block
    "confirm.title": 100,  # objects/confirmation-dialog-object
    "confirm.text": 300,  # objects/confirmation-dialog-object
    "confirm.confirm": 30,  # objects/confirmation-dialog-object
    "confirm.deny": 30,  # objects/confirmation-dialog-object
    "image.alt_text": 2000,  # blocks/image-block
    "image.title": 2000,  # blocks/image-block
    "image.image_url": 3000,  # blocks/image-block
    "input.label": 2000,  # blocks/input-block
    "input.hint": 2000,  # blocks/input-block
    "plain_text_input.max_length": 3000,  # elements/plain-text-input-element
    "plain_text_input.placeholder": 150,  # elements/plain-text-input-element
    "view.blocks": 100,  # views
    "view.title": 24,  # views
    "view.submit": 24,  # views
    "view.close": 24,  # views
    "view.private_metadata": 3000,  # views
    "view.callback_id": 255,  # views
    "charts": 2,  # of one message; not documented: vercel/chat pull request 696
    "chart.title": 50,  # blocks/data-visualization-block
    "chart.label": 20,  # blocks/data-visualization-block
    "chart.points": 20,  # blocks/data-visualization-block
    "chart.series": 6,  # blocks/data-visualization-block
    "post.text": 40_000,  # methods/chat.postMessage
    "update.text.bytes": 4000,  # methods/chat.update (msg_too_long), as bytes: gitlab-org/gitlab merge request 258898
    "metadata": 8000,  # not documented: small enough to notice abuse
}


class SlackError(Exception):
    """Slack's answer `ok: false`; `code` is its error string."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def units(text: str) -> int:
    """Return the length as JavaScript counts it (UTF-16 code units), at least the number of characters."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def check_message(args: Json, *, edits: bool = False) -> None:
    """Check a postMessage, or an update.

    Raises:
        SlackError: Slack would refuse it.
    """
    text, blocks = args.get("text"), args.get("blocks")
    if blocks is not None:
        check_blocks(blocks)
    if not text and not blocks:
        raise SlackError("no_text")
    if text is not None and (not isinstance(text, str) or units(text) > LIMITS["post.text"]):
        raise SlackError("msg_too_long")
    if edits and len(str(text or "").encode(errors="surrogatepass")) > LIMITS["update.text.bytes"]:
        raise SlackError("msg_too_long")
    check_metadata(args.get("metadata"))


def check_metadata(metadata: object) -> None:
    """Check metadata: {event_type: str, event_payload: {name: scalar, list or object}}.

    Raises:
        SlackError: Slack would refuse it.
    """
    if metadata is None:
        return
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("event_type"), str):
        raise SlackError("invalid_metadata_format")
    if not isinstance(metadata.get("event_payload"), Mapping):
        raise SlackError("invalid_metadata_schema")
    if len(json.dumps(metadata)) > LIMITS["metadata"]:
        raise SlackError("metadata_too_large")


def check_blocks(blocks: object) -> None:
    """Check shape and limits of every block, then their total size.

    Raises:
        SlackError: Slack would refuse them.
    """
    if not isinstance(blocks, list) or not 1 <= len(blocks) <= LIMITS["blocks"]:
        raise SlackError("invalid_blocks")
    for block in blocks:
        if not isinstance(block, Mapping):
            raise SlackError("invalid_blocks_format")
        _check_block(block)
    _require(sum(block.get("type") == "data_visualization" for block in blocks) <= LIMITS["charts"])
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(ids) != len(set(ids)):
        raise SlackError("invalid_blocks")
    if units(json.dumps(blocks, ensure_ascii=False)) > LIMITS["blocks.characters"]:
        raise SlackError("msg_blocks_too_long")


def _check_block(block: Json) -> None:
    checks: dict[str, Callable[[Json], None]] = {
        "section": _check_section,
        "header": _check_header,
        "context": _check_context,
        "actions": _check_actions,
        "divider": lambda _block: None,
        "data_visualization": _check_chart,
        "image": _check_image,
    }
    check = checks.get(str(block.get("type")))
    _require(check is not None)
    _require(units(str(block.get("block_id", ""))) <= LIMITS["block_id"])
    if check is not None:
        check(block)


def _check_section(block: Json) -> None:
    _require("text" in block or "fields" in block)
    if "text" in block:
        _check_text(block["text"], LIMITS["section.text"])
    if "fields" in block:
        fields = block["fields"]
        _require(isinstance(fields, list) and 1 <= len(fields) <= LIMITS["section.fields"])
        for field in fields:
            _check_text(field, LIMITS["section.field"])


def _check_header(block: Json) -> None:
    _check_text(block.get("text"), LIMITS["header.text"], kinds=("plain_text",))


def _check_context(block: Json) -> None:
    elements = block.get("elements")
    _require(isinstance(elements, list) and 1 <= len(elements) <= LIMITS["context.elements"])
    for element in elements if isinstance(elements, list) else []:
        _check_text(element, LIMITS["context.text"])


def _check_actions(block: Json) -> None:
    elements = block.get("elements")
    _require(isinstance(elements, list) and 1 <= len(elements) <= LIMITS["actions.elements"])
    for element in elements if isinstance(elements, list) else []:
        _check_button(element)
    ids = [element.get("action_id") for element in elements or [] if element.get("action_id") is not None]
    _require(len(ids) == len(set(ids)))


def _check_button(element: object) -> None:
    _require(isinstance(element, Mapping) and element.get("type") == "button")
    if not isinstance(element, Mapping):
        return
    _check_text(element.get("text"), LIMITS["button.text"], kinds=("plain_text",))
    for name in ("value", "url", "accessibility_label"):
        _require(units(str(element.get(name) or "")) <= LIMITS[f"button.{name}"])
    _require(units(str(element.get("action_id") or "")) <= LIMITS["action_id"])
    _require(element.get("style") in (None, "primary", "danger"))
    url = element.get("url")
    _require(url is None or str(url).startswith(("http://", "https://")))
    if (confirm := element.get("confirm")) is not None:
        _require(isinstance(confirm, Mapping))
        for name in ("title", "text", "confirm", "deny"):
            kinds = ("plain_text", "mrkdwn") if name == "text" else ("plain_text",)
            _check_text(confirm.get(name), LIMITS[f"confirm.{name}"], kinds=kinds)


def check_view(view: object) -> None:
    """Check a modal.

    Raises:
        SlackError: Slack would refuse it.
    """
    if not isinstance(view, Mapping) or view.get("type") != "modal" or not isinstance(view.get("blocks"), list):
        raise SlackError("invalid_arguments")
    texts = {name: (view.get(name) or {}).get("text", "") for name in ("title", "submit", "close")}
    texts |= {name: view.get(name, "") for name in ("private_metadata", "callback_id")}
    has_input = any(block.get("type") == "input" for block in view["blocks"])
    if (
        not 1 <= len(view["blocks"]) <= LIMITS["view.blocks"]
        or not texts["title"]
        or (has_input and not texts["submit"])
        or any(units(str(content)) > LIMITS[f"view.{name}"] for name, content in texts.items())
    ):
        raise SlackError("invalid_arguments")
    for block in view["blocks"]:
        _check_input(block) if block.get("type") == "input" else _check_block(block)


def _check_input(block: Json) -> None:
    element = block.get("element") or {}
    _check_text(block.get("label"), LIMITS["input.label"], kinds=("plain_text",))
    for part, most in ((block.get("hint"), "input.hint"), (element.get("placeholder"), "plain_text_input.placeholder")):
        if part is not None:
            _check_text(part, LIMITS[most], kinds=("plain_text",))
    _require(units(str(element.get("action_id") or "")) <= LIMITS["action_id"])
    _require(element.get("type") == "plain_text_input")
    _require(1 <= element.get("max_length", 1) <= LIMITS["plain_text_input.max_length"])


def _check_chart(block: Json) -> None:
    """Check line, bar and area charts; the limits are those of the data visualization block's reference."""
    chart = block.get("chart")
    _require(isinstance(block.get("title"), str) and 1 <= units(str(block["title"])) <= LIMITS["chart.title"])
    _require(isinstance(chart, Mapping) and chart.get("type") in ("line", "bar", "area"))
    if not isinstance(chart, Mapping):
        return
    axis, series = chart.get("axis_config") or {}, chart.get("series") or []
    categories = axis.get("categories") or []
    _require(1 <= len(categories) <= LIMITS["chart.points"] and len(set(categories)) == len(categories))
    _require(all(units(str(axis.get(label, ""))) <= LIMITS["chart.title"] for label in ("x_label", "y_label")))
    _require(1 <= len(series) <= LIMITS["chart.series"] and len({line.get("name") for line in series}) == len(series))
    for line in series:
        _require(1 <= units(str(line.get("name", ""))) <= LIMITS["chart.label"])
        _require([point.get("label") for point in line.get("data", [])] == list(categories))
        for point in line["data"]:
            _require(units(str(point["label"])) <= LIMITS["chart.label"])
            _require(type(point.get("value")) in (int, float) and math.isfinite(point["value"]))


def _check_image(block: Json) -> None:
    """Check an image, by address or by the id of an uploaded file; the workspace checks that the file exists."""
    _require(1 <= units(str(block.get("alt_text", ""))) <= LIMITS["image.alt_text"])
    title = block.get("title")
    if title is not None:
        _check_text(title, LIMITS["image.title"], kinds=("plain_text",))
    _require(units(str(block.get("image_url") or "")) <= LIMITS["image.image_url"])
    file = block.get("slack_file")
    _require((file is None) != (block.get("image_url") is None))
    _require(file is None or (isinstance(file, Mapping) and bool(file.get("id") or file.get("url"))))


def _check_text(text: object, limit: int, kinds: Sequence[str] = ("plain_text", "mrkdwn")) -> None:
    _require(isinstance(text, Mapping))
    if isinstance(text, Mapping):
        value = text.get("text")
        _require(text.get("type") in kinds and isinstance(value, str))
        _require(1 <= units(str(value)) <= limit)


def _require(condition: bool) -> None:
    if not condition:
        raise SlackError("invalid_blocks")
