"""The build of the images for several machines, as `docker buildx bake` reads it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tools import chart

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "compose/docker-bake.hcl"
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
DOCKERFILE = (ROOT / "compose/Dockerfile").read_text(encoding="utf-8")


def targets(**environment: str) -> dict[str, Any]:
    buildx = chart.program("buildx") or shutil.which("docker-buildx")
    if buildx is None:
        pytest.skip("no buildx: install docker-buildx")
    answer = subprocess.run(
        [buildx, "bake", "--file", FILE, "--print"],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)["target"]
    return found


def test_buildx_builds_every_image_for_both_machines() -> None:
    found = targets()
    assert set(found) == {"exporters", "alerting", "demo"}
    for name, target in found.items():
        assert target["platforms"] == ["linux/amd64", "linux/arm64"]
        assert target["tags"] == [f"pyrometer-{name}:{VERSION}"]
        assert (ROOT / target["dockerfile"]).exists()
        assert f" AS {target['target']}\n" in DOCKERFILE
        assert target["args"].keys() <= set(re.findall(r"ARG (\w+)", DOCKERFILE))


def test_registry_version_and_machines_are_settable() -> None:
    found = targets(IMAGE_REGISTRY="r.example.org/gpu/", PYROMETER_VERSION="9.9.9", IMAGE_PLATFORMS="linux/arm64")
    assert found["exporters"]["tags"] == ["r.example.org/gpu/pyrometer-exporters:9.9.9"]
    assert found["exporters"]["platforms"] == ["linux/arm64"]


def test_the_file_names_stages_that_exist_and_this_version() -> None:
    """Without buildx."""
    text = FILE.read_text(encoding="utf-8")
    stages = set(re.findall(r'^  target   = "(\w+)"', text, re.MULTILINE))
    assert stages == set(re.findall(r"^FROM base AS (\w+)$", DOCKERFILE, re.MULTILINE))
    assert f'variable "PYROMETER_VERSION" {{ default = "{VERSION}" }}' in text
    assert re.search(r'PYTHON_IMAGE" \{ default = "([^"]+)"', text)[1] in DOCKERFILE  # type: ignore[index]


def test_make_passes_what_buildx_reads(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$PYROMETER_VERSION|$IMAGE_REGISTRY|$IMAGE_PLATFORMS|$*"\n')
    docker.chmod(0o755)
    command = ["make", "--silent", "image", "IMAGE_REGISTRY=r.example.org/gpu", "IMAGE_FLAGS=--push"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    answer = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    asked = "buildx bake --file compose/docker-bake.hcl --push"
    assert answer.stdout == f"{VERSION}|r.example.org/gpu/|linux/amd64,linux/arm64|{asked}\n"
