"""The description of a rank and its run, which its client writes into the ring's header as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

# A text is a label of each of the ring's series.
MAX_TEXT = 256
# No count of steps, ranks or restarts comes near; beyond 2**53 a number is no longer exact in a sample.
MAX_NUMBER = 1 << 53
MAX_LINKS = 4
# http or https, without user or query, and nothing that could end a link in Slack or Grafana.
_LINK = re.compile(
    r"([a-z0-9_-]{1,16}) (https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~:/@!$&()*+,;=%-]*)?"
    r"(?:#[A-Za-z0-9._~:/@!$&()*+,;=%-]*)?)"
)
_MAX_OFFSET = 1 << 61  # 73 years in ns


class BadRingError(Exception):
    """A file that is not a ring of a known version; the message is the reason."""


@dataclass(frozen=True)
class Meta:
    """Hold what a rank said of itself and its run when it started. Unknown texts are empty, unknown numbers None.

    ``world_size`` is 0 where a log doesn't print it.
    """

    run: str
    attempt: str
    rank: str
    local_rank: str
    world_size: int
    reporting: bool
    first_step: int
    warmup_steps: int
    tokens_per_step: float | None
    flops_per_token: float | None
    peak_flops: float | None
    expected_mfu: float | None
    source: str
    launcher: int
    clock_offset: int
    texts: dict[str, str]

    @property
    def key(self) -> tuple[str, str, str]:
        """Its run, job and attempt."""
        return self.run, self.texts["job_id"], self.attempt

    @property
    def flops_per_step(self) -> float | None:
        """FLOPs of one step over all ranks, where both factors are known."""
        if self.tokens_per_step is None or self.flops_per_token is None:
            return None
        return _positive(self.tokens_per_step * self.flops_per_token)


def parse_meta(path: str, data: bytes) -> Meta:
    """Parse the description in a ring's header, JSON as :func:`pyrometer.start` writes it.

    Raises:
        BadRingError: it can't be parsed, or lacks a value.
    """
    try:
        return _meta(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadRingError(f"{path} has an unreadable description: {type(error).__name__}") from None


def _meta(fields: dict[str, Any]) -> Meta:
    text_keys = (
        "model", "convention", "dtype", "gpu_model", "recompute", "job_id", "gpu", "uuid", "stage", "replica",
        "global_batch_size", "micro_batch_size", "sequence_length",
    )  # fmt: skip
    source = text_of(fields.get("source", "client"))  # absent, as expected_mfu, from older clients
    world = _whole(fields["world_size"])
    return Meta(
        run=text_of(fields["run"]),
        attempt=str(_whole(fields["attempt"])),
        rank=str(_whole(fields["rank"])),
        local_rank=str(_whole(fields["local_rank"])),
        world_size=max(1 if source == "client" else 0, world),
        reporting=fields["reporting"] is True,
        first_step=_whole(fields["first_step"]),
        warmup_steps=_whole(fields["warmup_steps"]),
        tokens_per_step=_positive(fields["tokens_per_step"]),
        flops_per_token=_positive(fields["flops_per_token"]),
        peak_flops=_positive(fields["peak_flops"]),
        expected_mfu=_positive(fields.get("expected_mfu")),
        source=source,
        clock_offset=_whole(fields.get("clock_offset", 0), _MAX_OFFSET),
        launcher=_whole(fields.get("launcher", 0)),
        texts={key: "" if fields[key] is None else text_of(fields[key]) for key in text_keys},
    )


def padded_text(data: bytes, most: int = MAX_TEXT) -> str:
    """Return a text of the header, which zeros fill up."""
    return data.rstrip(b"\0").decode("utf-8", "replace")[:most]


def links_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return names and addresses of a text that has a line for each; anybody may have written it."""
    matches = [match for line in text.split("\n")[:MAX_LINKS] if (match := _LINK.fullmatch(line))]
    return tuple({match[1]: match[2] for match in matches}.items())


def text_of(value: object) -> str:
    """Return a value as a label, at most MAX_TEXT long."""
    return str(value)[:MAX_TEXT]


def _whole(value: float, most: int = MAX_NUMBER) -> int:
    if abs(number := int(value)) > most:
        raise ValueError("too large")
    return number


def _positive(value: float | None) -> float | None:
    """Return a finite number above zero, else None: garbage must not become a rate."""
    number = 0.0 if value is None else float(value)
    return number if 0.0 < number < 1e30 else None
