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

MAX_BLOCKS = 50
MAX_SECTION_TEXT = 3000
MAX_FIELDS = 10
MAX_FIELD_TEXT = 2000
MAX_HEADER_TEXT = 150
MAX_CONTEXT_ELEMENTS = 10
MAX_ACTIONS = 25
MAX_BUTTON_TEXT = 75
MAX_URL = 3000
MAX_BLOCK_ID = 255
MAX_TEXT = 40_000
MAX_CHARTS = 2  # of one message; not documented
MAX_CHART_TITLE = 50
MAX_CHART_LABEL = 20
MAX_POINTS = 20
MAX_SERIES = 6
MAX_ALL_BLOCKS = 13_200
MAX_METADATA = 8_000  # not documented: small enough to notice abuse


class SlackError(Exception):
    """Slack's answer `ok: false`; `code` is its error string."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def units(text: str) -> int:
    """Return the length as JavaScript counts it (UTF-16 code units), at least the number of characters."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def check_message(args: Json) -> None:
    """Check a postMessage or update.

    Raises:
        SlackError: Slack would refuse it.
    """
    text, blocks = args.get("text"), args.get("blocks")
    if blocks is not None:
        check_blocks(blocks)
    if not text and not blocks:
        raise SlackError("no_text")
    if text is not None and (not isinstance(text, str) or units(text) > MAX_TEXT):
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
    if len(json.dumps(metadata)) > MAX_METADATA:
        raise SlackError("metadata_too_large")


def check_blocks(blocks: object) -> None:
    """Check shape and limits of every block, then their total size.

    Raises:
        SlackError: Slack would refuse them.
    """
    if not isinstance(blocks, list) or not 1 <= len(blocks) <= MAX_BLOCKS:
        raise SlackError("invalid_blocks")
    for block in blocks:
        if not isinstance(block, Mapping):
            raise SlackError("invalid_blocks_format")
        _check_block(block)
    _require(sum(block.get("type") == "data_visualization" for block in blocks) <= MAX_CHARTS)
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(ids) != len(set(ids)):
        raise SlackError("invalid_blocks")
    if units(json.dumps(blocks, ensure_ascii=False)) > MAX_ALL_BLOCKS:
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
    _require(units(str(block.get("block_id", ""))) <= MAX_BLOCK_ID)
    if check is not None:
        check(block)


def _check_section(block: Json) -> None:
    _require("text" in block or "fields" in block)
    if "text" in block:
        _check_text(block["text"], MAX_SECTION_TEXT)
    if "fields" in block:
        fields = block["fields"]
        _require(isinstance(fields, list) and 1 <= len(fields) <= MAX_FIELDS)
        for field in fields:
            _check_text(field, MAX_FIELD_TEXT)


def _check_header(block: Json) -> None:
    _check_text(block.get("text"), MAX_HEADER_TEXT, kinds=("plain_text",))


def _check_context(block: Json) -> None:
    elements = block.get("elements")
    _require(isinstance(elements, list) and 1 <= len(elements) <= MAX_CONTEXT_ELEMENTS)
    for element in elements if isinstance(elements, list) else []:
        _check_text(element, MAX_SECTION_TEXT)


def _check_actions(block: Json) -> None:
    elements = block.get("elements")
    _require(isinstance(elements, list) and 1 <= len(elements) <= MAX_ACTIONS)
    for element in elements if isinstance(elements, list) else []:
        _require(isinstance(element, Mapping) and element.get("type") == "button")
        _check_text(element.get("text"), MAX_BUTTON_TEXT, kinds=("plain_text",))
        url = element.get("url")
        _require(url is None or (str(url).startswith(("http://", "https://")) and units(str(url)) <= MAX_URL))


def _check_chart(block: Json) -> None:
    """Check line, bar and area charts; the limits are those of the data visualization block's reference."""
    chart = block.get("chart")
    _require(isinstance(block.get("title"), str) and 1 <= units(str(block["title"])) <= MAX_CHART_TITLE)
    _require(isinstance(chart, Mapping) and chart.get("type") in ("line", "bar", "area"))
    if not isinstance(chart, Mapping):
        return
    axis, series = chart.get("axis_config") or {}, chart.get("series") or []
    categories = axis.get("categories") or []
    _require(1 <= len(categories) <= MAX_POINTS and len(set(categories)) == len(categories))
    _require(all(units(str(axis.get(label, ""))) <= MAX_CHART_TITLE for label in ("x_label", "y_label")))
    _require(1 <= len(series) <= MAX_SERIES and len({line.get("name") for line in series}) == len(series))
    for line in series:
        _require(1 <= units(str(line.get("name", ""))) <= MAX_CHART_LABEL)
        _require([point.get("label") for point in line.get("data", [])] == list(categories))
        for point in line["data"]:
            _require(units(str(point["label"])) <= MAX_CHART_LABEL)
            _require(type(point.get("value")) in (int, float) and math.isfinite(point["value"]))


def _check_image(block: Json) -> None:
    """Check an image, by address or by the id of an uploaded file; the workspace checks that the file exists."""
    _require(1 <= units(str(block.get("alt_text", ""))) <= MAX_FIELD_TEXT)
    title = block.get("title")
    if title is not None:
        _check_text(title, MAX_FIELD_TEXT, kinds=("plain_text",))
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
