"""Make untrusted text fit to show: clean it, escape it for Slack, cut it to a limit; format times and numbers.

Labels and annotations come from whoever can name a pod, a job or a host. Slack interprets `<...>` (pings, links, dates)
and `&`, so these three characters are escaped. Control, bidirectional and zero-width characters are dropped: they can
make one name look like another.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache

# Cc control, Cf format (bidi overrides, zero width), Cs lone surrogates, Co private use, Cn unassigned.
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# Letters and marks by category that are invisible on screen.
_INVISIBLE = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f")
ELLIPSIS = "\u2026"
_LOOKALIKES = {ord("`"): "'", ord("*"): "\u2217", ord("~"): "\u223c"}
_MARKUP = re.compile(r"[`*~_:]|^>")
# Inside a word, as in mlx5_0, it means nothing.
_OUTER_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
# Not those of times, PCI and MAC addresses and GUIDs.
_EMOJI = re.compile(r":(?=(?!\d+:|[0-9a-f]{2}:|[0-9a-f]*\d[0-9a-f]*:)[\w+'-]+:|100:)", re.IGNORECASE)

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))")


def clean(value: str) -> str:
    """Return one line without control, bidi, zero-width or otherwise invisible characters."""
    spaced = " ".join(value.split())  # all white space, including line and paragraph separators
    if spaced.isprintable() and _INVISIBLE.isdisjoint(spaced):  # nearly every text: no look at each character
        return spaced
    return "".join(filter(_is_shown, spaced))


@lru_cache(maxsize=4096)
def _is_shown(char: str) -> bool:
    return char not in _INVISIBLE and unicodedata.category(char) not in _DROPPED_CATEGORIES


def units(text: str) -> int:
    """Return the length in UTF-16 code units, the strictest way in which Slack may count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def escape(value: str) -> str:
    """Escape the characters that Slack's mrkdwn interprets; the input must be clean already."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(value: str) -> str:
    """Undo `escape`, for the terminal and the page."""
    return value.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def plain(value: str, limit: int) -> str:
    """Return clean text of at most `limit` units, for Slack's plain_text objects."""
    return _cut(clean(value), limit, str)


def words(value: str, limit: int) -> str:
    """Return the text as `plain` does, but cut at a space if there is one in the second half."""
    cut = plain(value, limit)
    whole = cut.rpartition(" ")[0].rstrip(" ,;:(-")
    return f"{whole}{ELLIPSIS}" if cut.endswith(ELLIPSIS) and units(whole) >= limit // 2 else cut


def mrkdwn(value: str, limit: int) -> str:
    """Return clean, escaped text of at most `limit` units, without backticks; no escape is cut in half."""
    return _cut(_without_markup(clean(value)), limit, escape)


def _without_markup(value: str) -> str:
    """Replace what Slack would render as formatting or as an emoji by characters that look alike: it has no escape.

    URLs, `@channel` and `#general` stay as they are; `verbatim` of the text object keeps Slack from turning them into
    links and mentions.
    """
    if not _MARKUP.search(value):
        return value
    value = value.translate(_LOOKALIKES)
    value = f"\u203a{value[1:]}" if value.startswith(">") else value  # a quotation
    return _EMOJI.sub("\u2236", _OUTER_UNDERSCORE.sub("\u02cd", value))


def _cut(value: str, limit: int, shown: Callable[[str], str]) -> str:
    whole = shown(value)
    if units(whole) <= limit:
        return whole
    kept = bisect_right(range(1, limit), limit - 1, key=lambda end: units(shown(value[:end])))
    return shown(value[:kept]) + ELLIPSIS


def join_lines(lines: Sequence[str], limit: int) -> str:
    """Join as many whole lines as fit into `limit` units; a last line counts the others."""
    whole: list[str] = []
    room = limit - 20  # for "... and 12345 more"
    for line in lines:
        room -= units(line) + 1
        if room < 0:
            whole.append(f"{ELLIPSIS} and {len(lines) - len(whole)} more")
            break
        whole.append(line)
    return "\n".join(whole)


def fit(value: str, limit: int) -> str:
    """Return Slack's markup cut to `limit` bytes of UTF-8: at a line's end, else outside of links and escapes."""
    if len(value.encode(errors="replace")) <= limit:
        return value
    kept = value.encode(errors="replace")[: limit - len(ELLIPSIS.encode())].decode(errors="ignore")
    whole = kept.rpartition("\n")[0]
    if 2 * len(whole) < len(kept):
        whole = re.sub(r"(<[^<>]*|&\w*)$", "", kept)
    return whole + ELLIPSIS


def slack_time(unix: float, style: str = "{time_secs}") -> str:
    """Format a time that Slack shows in the reader's zone, with UTC as the fallback."""
    return f"<!date^{int(unix)}^{style}|{utc(unix)}>"


def utc(unix: float) -> str:
    """Format a time as `2026-11-21 03:12:05 UTC`."""
    return datetime.fromtimestamp(unix, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock_utc(unix: float) -> str:
    """Format a time as `03:12:05 UTC`."""
    return datetime.fromtimestamp(unix, tz=timezone.utc).strftime("%H:%M:%S UTC")


def percent(ratio: float) -> str:
    """Format a ratio as `60.9 %`, `8.9 %` or `0.04 %`: one decimal, more only where that would show zero."""
    value = 100 * ratio
    return f"{value:.1f} %" if abs(value) >= 0.1 or value == 0 else f"{value:.2g} %"


def amount(value: float) -> str:
    """Format a number with two significant digits: `0.04`, `1.2`, `38`, `1,204`."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def counted(count: int, noun: str) -> str:
    """Return a number of things: `1 node`, `6 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format seconds as `40 s`, `12 min`, `3 h 5 min` or `2 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def rfc3339(unix: float) -> str:
    """Return a time as `2026-11-21T03:12:05Z`."""
    return datetime.fromtimestamp(unix, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_time(value: object) -> float | None:
    """Parse RFC 3339 with up to nanoseconds into Unix seconds; None for year 1 (Go's zero) and for anything else."""
    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    day, clock, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    if moment.year < 1970:
        return None
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)).total_seconds()
    return moment.timestamp() + float(f"0{fraction or '.0'}") - (-offset if sign == "-" else offset)
