"""Replace a digest's charts by pictures where the workspace has no chart blocks, by an edit after the text.

The blocks that Slack refused are in the outbox with the digest; each is drawn and replaced by its picture.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from pyrometer_alerting.channel.blocks import NATIVE_CHART
from pyrometer_alerting.channel.breaker import SlackFailure
from pyrometer_alerting.channel.composer import has_native_charts_enabled
from pyrometer_alerting.channel.incident_pictures import PictureUploader
from pyrometer_alerting.incidents.storage.operation import Operation
from pyrometer_alerting.incidents.storage.store import Store
from pyrometer_alerting.model import text
from pyrometer_kit.clock import Clock

_log = logging.getLogger(__name__)

RECENT_SECONDS = 3600.0  # an older digest stays as it is: its numbers are in its text
AFTER_FAILURE_SECONDS = 60.0


def load_draw() -> Callable[[Mapping[str, Any]], bytes]:
    """Import Matplotlib and its users when the first picture is needed.

    Raises:
        ImportError: Matplotlib is not installed.
    """
    return cast(
        Callable[[Mapping[str, Any]], bytes], importlib.import_module("pyrometer_alerting.channel.figures").draw_bars
    )


class DigestPictures:
    """`step` is called regularly; calls `changed` when a digest has pictures to show."""

    def __init__(
        self, store: Store, uploader: PictureUploader, *, charts: str, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._store, self._uploader, self._charts = store, uploader, charts
        self._clock, self._changed = clock, changed
        self._not_before = 0.0
        self.load = load_draw

    def step(self) -> bool:
        """Make the pictures of one digest that was posted without its charts; return whether it has them now."""
        now = self._clock.wall()
        digest = self._next(now) if now >= self._not_before else None
        if digest is None:
            return False
        self._not_before = now + AFTER_FAILURE_SECONDS
        try:
            body = self._with_pictures(json.loads(digest.body or "{}"))
        except ImportError:
            _log.warning("digest: Matplotlib is not installed: pip install matplotlib, or set --slack.charts=off")
            self._not_before = now + RECENT_SECONDS
            return False
        except SlackFailure as failure:
            _log.warning("digest: pictures: %s", failure)
            return False
        if body is None:
            return False
        with self._store.transaction() as tx:
            tx.outbox.edit_posted(digest.op_id, json.dumps(body), now)
        self._not_before = 0.0
        self._changed()
        return True

    def _next(self, now: float) -> Operation | None:
        with self._store.transaction() as tx:
            if self._charts == "off" or has_native_charts_enabled(tx, self._charts, now):
                return None
            posts = tx.outbox.posted_since(now - RECENT_SECONDS)
        return next((one for one in posts if any(map(_is_chart, json.loads(one.body or "{}").get("blocks", [])))), None)

    def _with_pictures(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the digest with pictures; None while Slack is still processing one."""
        blocks = [self._picture(block) if _is_chart(block) else block for block in body["blocks"]]
        return None if None in blocks else {**body, "blocks": blocks}

    def _picture(self, block: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the block as a picture; None if Slack does not process it in time."""
        title = str(block["title"])
        file_id = self._uploader.upload("digest.png", self.load()(block), title)
        if file_id is None:
            return None
        return {"type": "image", "slack_file": {"id": file_id}, "alt_text": text.plain(_said(block), 500)}


def _is_chart(block: Mapping[str, Any]) -> bool:
    return bool(block["type"] == NATIVE_CHART)


def _said(block: Mapping[str, Any]) -> str:
    """Return the chart as text for readers who cannot see it: `By month: Xids 2026-10 12, 2026-11 30; ...`."""
    series = [
        f"{line['name']} " + ", ".join(f"{point['label']} {point['value']:,.0f}" for point in line["data"])
        for line in block["chart"]["series"]
    ]
    return f"{block['title']}: {'; '.join(series)}"
