"""All fuzz targets by name, and their corpus in the tree."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pyrometer_simulator.fuzz import cluster_targets, node_targets, service_targets, settings_targets
from pyrometer_simulator.fuzz.target import Target

CORPUS = Path(__file__).parents[3] / "tests" / "simulator" / "fuzz" / "corpus"


def targets() -> dict[str, Target]:
    """Return every target by its name."""
    found = (*node_targets.TARGETS, *cluster_targets.TARGETS, *service_targets.TARGETS, *settings_targets.TARGETS)
    return {target.name: target for target in found}


def corpus_of(name: str, folder: Path = CORPUS) -> list[bytes]:
    """Return the kept inputs of a target: one JSON string a line, each character a byte."""
    path = folder / f"{name}.jsonl"
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return [json.loads(line).encode("latin-1") for line in lines]


def keep(name: str, inputs: Iterable[bytes], folder: Path = CORPUS) -> None:
    """Write the kept inputs of a target, each once, the shortest first."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(data.decode("latin-1")) for data in sorted(set(inputs), key=lambda one: (len(one), one))]
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
