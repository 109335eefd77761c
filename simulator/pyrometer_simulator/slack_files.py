"""File uploads of the fake Slack: an address, the bytes, the completion, then processing.

Slack answers the completion at once and processes the file afterwards: a message that shows it too early is refused.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyrometer_simulator.slack_blocks import SlackError

MAX_FILE_BYTES = 1 << 30
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass
class File:
    """One uploaded file: `completed_at` is None until it is completed."""

    id: str
    name: str
    length: int
    content: bytes | None = None
    completed_at: float | None = None
    title: str = ""


class Files:
    """All files of the workspace; a file can be shown `processing_seconds` after its completion."""

    def __init__(self, processing_seconds: float = 0.0) -> None:
        self.processing_seconds = processing_seconds
        self._by_ticket: dict[str, File] = {}
        self._by_id: dict[str, File] = {}

    def get_upload_url(self, args: Mapping[str, Any], base: str) -> dict[str, Any]:
        """Answer files.getUploadURLExternal.

        Raises:
            SlackError: invalid_arguments.
        """
        name, length = str(args.get("filename") or ""), int(args.get("length") or 0)
        if not name or not 0 < length <= MAX_FILE_BYTES:
            raise SlackError("invalid_arguments")
        file = File(id=f"F{len(self._by_id) + 1:09d}", name=name, length=length)
        ticket = secrets.token_urlsafe(12)
        self._by_ticket[ticket], self._by_id[file.id] = file, file
        return {"upload_url": f"{base}upload/{ticket}", "file_id": file.id}

    def receive(self, ticket: str, content: bytes) -> bool:
        """Store the uploaded bytes, once and of the announced length; return False for HTTP 400."""
        file = self._by_ticket.get(ticket)
        if file is None or file.content is not None or len(content) != file.length:
            return False
        file.content = content
        return True

    def complete(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Answer files.completeUploadExternal; without a channel the file stays private to the app.

        Raises:
            SlackError: invalid_arguments, or file_not_found.
        """
        listed = args.get("files") or []
        wanted: Sequence[Mapping[str, Any]] = json.loads(listed) if isinstance(listed, str) else listed
        if not wanted:
            raise SlackError("invalid_arguments")
        for item in wanted:
            file = self._by_id.get(str(item.get("id", "")))
            if file is None or file.content is None:
                raise SlackError("file_not_found")
            file.completed_at, file.title = time.time(), str(item.get("title", ""))
        return {"files": [{"id": str(item["id"]), "title": str(item.get("title", ""))} for item in wanted]}

    def info(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Answer files.info: mimetype and size appear once the file is processed.

        Raises:
            SlackError: file_not_found.
        """
        file = self._by_id.get(str(args.get("file", "")))
        if file is None or file.completed_at is None:
            raise SlackError("file_not_found")
        shown: dict[str, Any] = {"id": file.id, "name": file.name, "title": file.title, "mimetype": ""}
        if self.is_shown(file.id):
            shown |= {"mimetype": "image/png", "filetype": "png", "size": file.length}
        return {"file": shown}

    def is_shown(self, file_id: str) -> bool:
        """Return whether the file is a processed picture."""
        file = self._by_id.get(file_id)
        if file is None or file.completed_at is None or not (file.content or b"").startswith(PNG):
            return False
        return time.time() - file.completed_at >= self.processing_seconds

    def check(self, blocks: Iterable[Mapping[str, Any]]) -> None:
        """Check that the pictures of a message can be shown.

        Raises:
            SlackError: invalid_blocks.
        """
        for block in blocks:
            file = block.get("slack_file") if block.get("type") == "image" else None
            if file is not None and not self.is_shown(str(file.get("id", ""))):
                raise SlackError("invalid_blocks")

    def content(self, file_id: str) -> bytes | None:
        """Return a file's bytes for the page, None if it has none."""
        file = self._by_id.get(file_id)
        return file.content if file is not None else None
