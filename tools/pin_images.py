"""Pin the images of compose/ to their digests: ask each image's registry, and print the lines for ``compose/.env``.

    python tools/pin_images.py                                   # print the lines
    python tools/pin_images.py --write compose/.env              # put them there
    python tools/pin_images.py --check compose/.env              # 1 if a tag has moved, or an image isn't pinned

A tag may be moved to other bytes at any time; ``name:tag@sha256:...`` can't be. The program asks for the HEAD of a
manifest (Registry HTTP API V2), and nothing else. Images of ours are built here, and have no digest before they are
pushed: they are left out.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "compose" / ".env.example"
# Multi-platform indexes first: the digest then fits nodes of any architecture.
MANIFESTS = ", ".join((
    "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json",
))  # fmt: skip
HUB, HUB_REGISTRY = "docker.io", "registry-1.docker.io"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
SECONDS = 20.0


class RegistryError(Exception):
    """A registry did not say which bytes a tag stands for; the message is one line."""


@dataclass(frozen=True)
class Image:
    """An image's name taken apart, as Docker reads it."""

    registry: str
    repository: str
    tag: str

    @classmethod
    def parsed(cls, name: str) -> Image:
        """Take apart ``prom/prometheus:v3`` or ``registry.example.org/x/y:1@sha256:...``; the digest is dropped.

        Raises:
            RegistryError: it has no tag.
        """
        path, _, tag = name.partition("@")[0].rpartition(":")
        if not path or "/" in tag:
            raise RegistryError(f"{name}: no tag, which is what a digest is asked for")
        first, _, rest = path.partition("/")
        if rest and ("." in first or ":" in first or first == "localhost"):
            return cls(first, rest, tag)
        return cls(HUB, path if rest else f"library/{path}", tag)


def settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield (variable, image) of .env.example's images that others build."""
    for name, image in re.findall(r"^#?([A-Z_]+_IMAGE)=(\S+)", text, re.MULTILINE):
        if not name.startswith("PYROMETER_"):
            yield name, image


def digest_of(image: Image, scheme: str = "https") -> str:
    """Return the digest that the registry has for the tag now.

    Raises:
        RegistryError: it did not answer, or with something else.
    """
    host = HUB_REGISTRY if image.registry == HUB else image.registry
    url = f"{scheme}://{host}/v2/{image.repository}/manifests/{urllib.parse.quote(image.tag)}"
    try:
        try:
            headers = _head(url, {})
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            headers = _head(url, {"Authorization": f"Bearer {_token(error.headers.get('WWW-Authenticate', ''))}"})
    except urllib.error.HTTPError as error:
        raise RegistryError(f"{url}: {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise RegistryError(f"{url}: {getattr(error, 'reason', error)}") from None
    digest = headers.get("Docker-Content-Digest", "")
    if not DIGEST.fullmatch(digest):
        raise RegistryError(f"{url}: no digest in the answer")
    return digest


def _head(url: str, headers: Mapping[str, str]) -> Message:
    request = urllib.request.Request(url, method="HEAD", headers={"Accept": MANIFESTS, **headers})  # noqa: S310
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        found: Message = answer.headers
        return found


def _token(challenge: str) -> str:
    """Return the token that a registry's ``WWW-Authenticate: Bearer realm=...`` asks for, as anybody gets it."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if not challenge.lower().startswith("bearer ") or not fields.get("realm", "").startswith(
        ("https://", "http://127.")
    ):
        raise ValueError("it asks for a login")
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    with urllib.request.urlopen(f"{fields['realm']}?{query}", timeout=SECONDS) as answer:  # noqa: S310
        document = json.loads(answer.read(1 << 20))
    if not isinstance(document, dict) or not (token := document.get("token") or document.get("access_token")):
        raise ValueError("it gives no token")
    return str(token)


def pins(text: str, scheme: str = "https") -> dict[str, str]:
    """Return by variable the image with its digest.

    Raises:
        RegistryError: one of them has none.
    """
    return {
        name: f"{image.partition('@')[0]}@{digest_of(Image.parsed(image), scheme)}" for name, image in settings(text)
    }


def pinned(text: str, found: Mapping[str, str]) -> str:
    """Return the text of a .env with these lines, each in the place of the variable's old one or at the end."""
    for name, image in found.items():
        line = f"{name}={image}"
        text, changed = re.subn(rf"^{name}=.*$", line, text, count=1, flags=re.MULTILINE)
        text = text if changed else f"{text.rstrip()}\n{line}\n".lstrip("\n")
    return text


def main(argv: Sequence[str] | None = None, scheme: str = "https") -> int:
    """Print, write or check; return 1 if an image is not pinned to what its tag stands for now, 2 without an answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--write", type=Path, metavar="FILE", help="put the lines into this .env")
    where.add_argument("--check", type=Path, metavar="FILE", help="compare this .env, and change nothing")
    parser.add_argument("--images", type=Path, default=EXAMPLE, help="the file with the names (default: .env.example)")
    options = parser.parse_args(argv)
    file = options.write or options.check
    before = file.read_text(encoding="utf-8") if file and file.exists() else ""
    own = dict(settings(before))  # a site's own registry or version comes first
    wanted = {**dict(settings(options.images.read_text(encoding="utf-8"))), **own}
    try:
        found = pins("".join(f"{name}={image}\n" for name, image in wanted.items()), scheme)
    except RegistryError as error:
        print(f"pin_images: {error}", file=sys.stderr)
        return 2
    if options.check:
        moved = [name for name, image in found.items() if own.get(name) != image]
        for name in moved:
            print(f"{name}: {own.get(name, 'not pinned')}; its tag is {found[name]} now")
        return int(bool(moved))
    if options.write:
        options.write.write_text(pinned(before, found), encoding="utf-8")
    else:
        print("\n".join(f"{name}={image}" for name, image in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
