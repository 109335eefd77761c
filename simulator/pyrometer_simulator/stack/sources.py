"""Where the machine's own apt configuration gets Debian from.

A cluster often has no way out but its own mirror, so that mirror is asked first and deb.debian.org after it. The
two file formats are those of sources.list(5): one line per source, and deb822 paragraphs.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URI = "http://deb.debian.org/debian"

# Releases whose names appear in a Debian source; Ubuntu's names are others, so its mirrors never match.
_RELEASES = {"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"} | {
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
}
_ONE_LINE = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)$")


@dataclass(frozen=True)
class Source:
    """One binary source of apt: an address with the suites and components taken from it."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]

    def is_debian(self) -> bool:
        """Return whether this is a mirror of Debian's main archive, not of its security archive or of a third party."""
        plain_suite = any(suite in _RELEASES for suite in self.suites)
        return plain_suite and "main" in self.components and _archive_path(self.uri)


def debian_uris(etc_apt: Path = Path("/etc/apt")) -> list[str]:
    """Return addresses of the Debian archive, best first: the machine's own mirrors, then deb.debian.org."""
    own = [source.uri.rstrip("/") for source in system_sources(etc_apt) if source.is_debian()]
    return list(dict.fromkeys([*own, DEFAULT_URI]))


def system_sources(etc_apt: Path) -> Iterator[Source]:
    """Yield every enabled binary source under `etc_apt`; files that can't be read are skipped."""
    parts = etc_apt / "sources.list.d"
    for path in [etc_apt / "sources.list", *sorted(parts.glob("*.list"))]:
        yield from parse_one_line(_lines(path))
    for path in sorted(parts.glob("*.sources")):
        yield from parse_deb822(_lines(path))


def parse_one_line(lines: Iterable[str]) -> Iterator[Source]:
    """Parse lines of the form `deb [options] uri suite component...`; skips `deb-src`, comments and cdrom."""
    for line in lines:
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match and not match["uri"].startswith("cdrom:"):
            yield Source(match["uri"], (match["suite"],), tuple(match["components"].split()))


def parse_deb822(lines: Iterable[str]) -> Iterator[Source]:
    """Parse paragraphs of `Key: value`, continued by indented lines; skips those with `Enabled: no`."""
    for fields in _paragraphs(lines):
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in {"no", "false", "0"}:
            continue
        suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
        for uri in fields.get("uris", "").split():
            yield Source(uri, tuple(suites), tuple(components))


def _paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    key = ""
    for line in [*lines, ""]:
        if line.startswith("#"):
            continue  # a comment may stand inside a field, and does not end it
        if not line.strip():
            if fields:
                yield fields
            fields, key = {}, ""
        elif line[0].isspace():
            fields[key] = f"{fields.get(key, '')} {line.strip()}"
        else:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            fields[key] = value.strip()


def _archive_path(uri: str) -> bool:
    """`.../debian`, or the list of mirrors that Debian's cloud images use (`mirror+file:/etc/apt/mirrors/debian.list`).

    Third parties use such paths too (Docker has `/linux/debian`): a wrong guess fails at Debian's signature, and the
    next address is tried.
    """
    return urlsplit(uri).path.rstrip("/").endswith(("/debian", "/debian.list"))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
