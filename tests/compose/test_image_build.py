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
DIGEST = "sha256:" + "d" * 64
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


def test_every_stage_that_fetches_takes_the_arguments_of_a_site_without_pypi() -> None:
    """Look for the arguments in each such stage: without BuildKit, docker build passes none on to the next one."""
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    fetching = [stage for stage in stages if "--requirement" in stage]
    assert len(fetching) == 4
    for stage in fetching:
        assert set(re.findall(r"^ARG (\w+)$", stage, re.MULTILINE)) == {
            "PIP_NO_INDEX",
            "PIP_FIND_LINKS",
            "PIP_INDEX_URL",
        }


def test_the_images_are_built_with_every_file_that_goes_into_their_wheels() -> None:
    """A wheel that takes a file from outside its folder needs it in the build's context, or no image is built."""
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    context = [ROOT / line.removeprefix("!") for line in ignore if line.startswith("!")]
    wheels = [ROOT / name for name in re.findall(r" \./(\w+)", DOCKERFILE.split("AS wheel")[1].split("FROM")[0])]
    assert wheels
    taken = [source for wheel in wheels for source in (wheel, *taken_from_outside(wheel))]
    assert [path for path in taken if not any(path.is_relative_to(allowed) for allowed in context)] == []


def taken_from_outside(distribution: Path) -> list[Path]:
    """Return what hatchling's force-include adds to a distribution's wheel."""
    text = (distribution / "pyproject.toml").read_text(encoding="utf-8")
    _, _, table = text.partition("[tool.hatch.build.targets.wheel.force-include]")
    names = re.findall(r'^"([^"]+)" =', table.partition("\n[")[0], re.MULTILINE)
    return [(distribution / name).resolve() for name in names]


def make_image(folder: Path, base: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `make image` in a copy of what it reads, with a Docker that says how it was called."""
    for name in ("Makefile", "VERSION", "tools/pin_images.py", "compose/.env.example"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    docker = folder / "docker"
    docker.write_text(
        '#!/bin/sh\necho "$PYROMETER_VERSION|$IMAGE_REGISTRY|$IMAGE_PLATFORMS|$PYTHON_IMAGE|$*"\n'
        f'[ -d dist ] && echo \'{{"exporters": {{"containerimage.digest": "{DIGEST}", "image.name": "r/e:1"}}}}\' '
        ">dist/images.json || true\n"
    )
    docker.chmod(0o755)
    command = ["make", "--silent", "image", "IMAGE_REGISTRY=r.example.org/gpu", f"IMAGE_FLAGS={' '.join(flags)}"]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHON_IMAGE": base}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_make_passes_what_buildx_reads_and_prints_the_digests_of_what_it_pushed(tmp_path: Path) -> None:
    base = f"mirror.example.org/python:3@{DIGEST}"
    answer = make_image(tmp_path, base, "--push")
    asked = "buildx bake --file compose/docker-bake.hcl --push --metadata-file=dist/images.json"
    assert answer.stdout.splitlines() == [
        f"{VERSION}|r.example.org/gpu/|linux/amd64,linux/arm64|{base}|{asked}",
        f"PYROMETER_EXPORTERS_IMAGE=r/e:1@{DIGEST}",
        f"# Helm: --set image.digests.exporters={DIGEST}",
    ]


def test_nothing_is_pushed_on_a_base_image_whose_bytes_are_unknown(tmp_path: Path) -> None:
    answer = make_image(tmp_path, "127.0.0.1:1/python:3", "--push")
    assert answer.returncode != 0
    assert "pin_images: https://127.0.0.1:1/v2/python/manifests/3" in answer.stderr
    assert answer.stdout == ""


def test_an_image_for_this_machine_alone_asks_no_registry(tmp_path: Path) -> None:
    answer = make_image(tmp_path, "127.0.0.1:1/python:3", "--load")
    assert answer.stdout.endswith("|127.0.0.1:1/python:3|buildx bake --file compose/docker-bake.hcl --load\n")
