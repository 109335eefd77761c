"""Run libFuzzer on a target in a child process, and read its report."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyrometer_simulator.fuzz.catalogue import corpus_of
from pyrometer_simulator.fuzz.target import Target

INPUT_SECONDS = 10  # an input that takes longer is a finding
MEMORY_MB = 1024
KEPT_BYTES = 6_000  # of each target's corpus in the tree
_STARTING_SECONDS = 300.0  # on a machine that is busy with other things


@dataclass
class Finding:
    """Hold an input and the promise that it broke."""

    why: str
    data: bytes


@dataclass
class Result:
    """The result of a target: inputs tried, edges of our code that they reached, findings."""

    name: str
    reads: str
    executions: int = 0
    edges: int = 0
    features: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    grown: list[bytes] = field(default_factory=list, repr=False)

    def as_json(self) -> dict[str, object]:
        """Return the row of the results' file."""
        return {
            "target": self.name, "reads": self.reads, "executions": self.executions, "edges": self.edges,
            "seconds": self.seconds, "findings": [finding.why for finding in self.findings],
        }  # fmt: skip


def fuzz(target: Target, work: Path, *, seconds: int, seed: int) -> Result:
    """Fuzz a target for so long, beginning with its seeds and its corpus in the tree."""
    corpus, findings = (work / target.name / part for part in ("corpus", "findings"))
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for data in (*target.seeds, *corpus_of(target.name)):
        _put(corpus, data)
    words = work / target.name / "words"
    words.write_text("".join(f"{_quoted(word)}\n" for word in target.words if len(word) < 64), encoding="ascii")
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-dict={words}",
        f"-max_len={target.longest}",
        "-reduce_inputs=1",
    ]
    report = _child(target, work, [*options, str(corpus)], seconds)
    result = Result(target.name, target.reads, findings=list(_found(findings)))
    result.executions = _last(r"number_of_executed_units:\s*(\d+)|^#(\d+)\s", report)
    result.edges, result.features = _last(r"cov: (\d+)", report), _last(r"ft: (\d+)", report)
    result.seconds = float(seconds)
    result.grown = [path.read_bytes() for path in corpus.iterdir()]
    return result


def selected(inputs: Sequence[bytes]) -> list[bytes]:
    """Return the shortest inputs that fit into the tree: libFuzzer keeps only those that reached something new."""
    found: list[bytes] = []
    for data in sorted(inputs, key=len):
        if sum(map(len, found)) + len(data) > KEPT_BYTES:
            break
        found.append(data)
    return found


def _child(target: Target, work: Path, options: Sequence[str], seconds: int) -> str:
    findings = work / target.name / "findings"
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else str(work)  # noqa: S108  a folder of its own is made in it
    command = [
        sys.executable, "-m", "pyrometer_simulator.fuzz.child", target.name, scratch, str(findings),
        f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={findings}/",
        "-print_final_stats=1", *options,
    ]  # fmt: skip
    made = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=2 * seconds + _STARTING_SECONDS, check=False
    )
    report = made.stderr.decode("utf-8", "replace")
    (work / target.name / "report.txt").write_text(report, encoding="utf-8")
    if made.returncode not in (0, 77) and "libFuzzer" not in report:
        raise RuntimeError(f"{target.name}: the fuzzer could not start: {report.strip().splitlines()[-1:]}")
    return report


def _found(folder: Path) -> list[Finding]:
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json":
            document = json.loads(path.read_text(encoding="ascii"))
            found.append(Finding(document["why"], document["input"].encode("latin-1")))
        else:  # libFuzzer's own: timeout-..., oom-..., crash-...
            found.append(Finding(path.name.partition("-")[0], path.read_bytes()))
    return found


def _put(folder: Path, data: bytes) -> None:
    (folder / hashlib.sha256(data).hexdigest()[:20]).write_bytes(data)


def _quoted(word: bytes) -> str:
    return (
        '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02X}" for byte in word) + '"'
    )


def _last(pattern: str, report: str) -> int:
    found = [group for match in re.finditer(pattern, report, re.MULTILINE) for group in match.groups() if group]
    return max(map(int, found), default=0)
