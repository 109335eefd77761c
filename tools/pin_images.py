"""Pin images to their digests: ask each image's registry, and print the lines for ``compose/.env``.

    python tools/pin_images.py                                   # print the lines
    python tools/pin_images.py --write compose/.env              # put them there
    python tools/pin_images.py --check compose/.env              # 1 if a tag has moved, or an image isn't pinned

    python tools/pin_images.py --tree                            # into every file of the tree that names an image
    python tools/pin_images.py --unpinned                        # 1 with each place that has none; asks nobody
    python tools/pin_images.py --base                            # the base image by digest: what `make image` pushes on
    python tools/pin_images.py --built dist/images.json          # ours, from what `make image` has pushed

A tag may be moved to other bytes at any time; ``name:tag@sha256:...`` can't be. The program asks for the HEAD of a
manifest (Registry HTTP API V2), and nothing else. Images of ours are built here, and have no digest before they are
pushed: the tree has none of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "compose" / ".env.example"
BASE = "PYTHON_IMAGE"
# Files below compose/ that name images of others; the chart and the kustomize base have only ours.
NAMING = (".env.example", "*.yaml", "Dockerfile", "docker-bake.hcl")
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


def places(root: Path) -> Iterator[tuple[Path, int, str, str]]:
    """Yield every place of a tree that names an image of others: file, line, the name with its tag, and its digest."""
    names = sorted({name.partition("@")[0] for _, name in settings(_example(root))}, key=len, reverse=True)
    # After ":-" it is a default of compose.
    pattern = re.compile(
        rf"(?:(?<=:-)|(?<![\w./-]))({'|'.join(map(re.escape, names))})(?:@({DIGEST.pattern}))?(?![\w.@-])"
    )
    for path in sorted({path for glob in NAMING for path in (root / "compose").glob(glob)}):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for found in pattern.finditer(line):
                yield path, number, found[1], found[2] or ""


def pin_tree(root: Path, scheme: str = "https") -> int:
    """Write the digests into all places of a tree, and return their number.

    Raises:
        RegistryError: one of them has none; nothing is written.
    """
    found = pins(_example(root), scheme)
    by_name = {image.partition("@")[0]: image for image in found.values()}
    changed: dict[Path, list[str]] = {}
    count = 0
    for path, number, name, digest in places(root):
        lines = changed.setdefault(path, path.read_text(encoding="utf-8").splitlines(keepends=True))
        old = f"{name}@{digest}" if digest else name
        lines[number - 1] = lines[number - 1].replace(old, by_name[name])
        count += 1
    for path, lines in changed.items():
        path.write_text("".join(lines), encoding="utf-8")
    return count


def base_image(root: Path, scheme: str = "https") -> str:
    """Return the base image by digest: that of the environment or of the tree.

    Raises:
        RegistryError: it has none, and its registry gives none.
    """
    name = os.environ.get(BASE) or dict(settings(_example(root)))[BASE]
    return name if DIGEST.search(name) else f"{name}@{digest_of(Image.parsed(name), scheme)}"


def built(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for compose/.env and for Helm's values of the images that buildx says it has pushed."""
    for target, one in metadata.items():
        digest = one.get("containerimage.digest", "") if isinstance(one, dict) else ""
        if DIGEST.fullmatch(digest):
            name = str(one.get("image.name", "")).partition(",")[0]
            yield f"PYROMETER_{target.upper()}_IMAGE={name}@{digest}"
            yield f"# Helm: --set image.digests.{target}={digest}"


def _example(root: Path) -> str:
    return (root / "compose" / ".env.example").read_text(encoding="utf-8")


def main(argv: Sequence[str] | None = None, scheme: str = "https") -> int:
    """Print, write or check; return 1 if an image is not pinned to what its tag stands for now, 2 without an answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--write", type=Path, metavar="FILE", help="put the lines into this .env")
    where.add_argument("--check", type=Path, metavar="FILE", help="compare this .env, and change nothing")
    parser.add_argument("--images", type=Path, default=EXAMPLE, help="the file with the names (default: .env.example)")
    where.add_argument("--tree", action="store_true", help="put the digests into the files of the tree")
    where.add_argument("--unpinned", action="store_true", help="list the places of the tree without a digest")
    where.add_argument("--base", action="store_true", help=f"print the base image ({BASE}) by digest")
    where.add_argument("--built", type=Path, metavar="FILE", help="print the digests of buildx's --metadata-file")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree (default: this one)")
    options = parser.parse_args(argv)
    if options.tree or options.unpinned or options.base or options.built:
        return _of_the_tree(options, scheme)
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


def _of_the_tree(options: argparse.Namespace, scheme: str) -> int:
    if options.unpinned:
        open_places = [place for place in places(options.root) if not place[3]]
        for path, number, name, _ in open_places:
            print(f"{path.relative_to(options.root)}:{number}: {name} may be other bytes tomorrow")
        return int(bool(open_places))
    if options.built:
        print("\n".join(built(json.loads(options.built.read_text(encoding="utf-8")))))
    if options.tree or options.base:
        try:
            print(base_image(options.root, scheme) if options.base else f"{pin_tree(options.root, scheme)} places")
        except RegistryError as error:
            print(f"pin_images: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
