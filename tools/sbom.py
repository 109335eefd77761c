"""Write what an image contains as CycloneDX 1.5: ``make sbom``.

    python tools/sbom.py exporters dist/pyrometer-exporters.cdx.json

The packages are those of compose/requirements/<image>.txt with the hashes of their files, and our own wheels.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OWN = {
    "exporters": ("pyrometer", "pyrometer-kit", "pyrometer-exporters"),
    "alerting": ("pyrometer-kit", "pyrometer-alerting"),
    "demo": ("pyrometer", "pyrometer-kit", "pyrometer-exporters", "pyrometer-alerting", "pyrometer-simulator"),
}


def document(image: str) -> dict[str, Any]:
    """Return the bill of materials of an image."""
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    ours = [_component(name, version, "Apache-2.0") for name in OWN[image]]
    name = f"pyrometer-{image}"
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version, "bom-ref": name}},
        "components": [*ours, *_packages(ROOT / f"compose/requirements/{image}.txt")],
    }  # fmt: skip


def _packages(path: Path) -> Iterator[dict[str, Any]]:
    for block in re.split(r"\n(?=[A-Za-z])", path.read_text(encoding="utf-8"))[1:]:
        requirement = Requirement(block.splitlines()[0].removesuffix("\\").strip())
        component = _component(canonicalize_name(requirement.name), str(requirement.specifier).removeprefix("=="))
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", block)
        component["hashes"] = [{"alg": "SHA-256", "content": content} for content in hashes]
        if requirement.marker is not None:
            component["properties"] = [{"name": "pyrometer:marker", "value": str(requirement.marker)}]
        yield component


def _component(name: str, version: str, licence: str = "") -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    licences = {"licenses": [{"license": {"id": licence}}]} if licence else {}
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl, **licences}


def main(argv: Sequence[str] | None = None) -> int:
    """Write one image's bill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("image", choices=OWN)
    parser.add_argument("file", type=Path)
    options = parser.parse_args(argv)
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(json.dumps(document(options.image), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
