"""Fuzz one target in this process with atheris: ``child TARGET SCRATCH FINDINGS [libFuzzer's options]``.

An exception doesn't end the run: it is written down once, by its kind and place. Only a hang, a crash of the
interpreter or too much memory ends it, and libFuzzer then leaves the input beside the findings.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from pyrometer_simulator.fuzz.target import Check

WATCHED = ["pyrometer", "pyrometer_kit", "pyrometer_exporters", "pyrometer_alerting"]


class Findings:
    """Writes each new kind of failure as ``<folder>/<hash>.json``."""

    def __init__(self, folder: Path, check: Check) -> None:
        """Remember what the folder has already."""
        self._folder, self._check = folder, check
        self._known = {path.stem for path in folder.glob("*.json")}

    def __call__(self, data: bytes) -> None:
        """Check an input, and note what it broke."""
        try:
            self._check(data)
        except Exception as error:  # noqa: BLE001  each of them is what we look for
            self._note(data, error)

    def _note(self, data: bytes, error: BaseException) -> None:
        where = _place(error)
        name = hashlib.sha256(f"{type(error).__name__} {where}".encode()).hexdigest()[:12]
        if name not in self._known:
            self._known.add(name)
            why = f"{type(error).__name__} at {where}: {str(error)[:120]}"
            text = json.dumps({"why": why, "input": data.decode("latin-1")})
            (self._folder / f"{name}.json").write_text(text, encoding="ascii")
            sys.stderr.write(f"finding: {why}\n")


def _place(error: BaseException) -> str:
    """Return the innermost line of ours; of a logged error the one behind the log."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    ours = [frame for frame in frames if "pyrometer" in frame.filename and "/fuzz/child" not in frame.filename]
    frame = (ours or list(frames))[-1]
    return f"{frame.filename.rpartition('/pyrometer')[2]}:{frame.name}:{frame.line}"


def main() -> None:
    """Run libFuzzer until its limit; its report is on standard error."""
    atheris = importlib.import_module("atheris")
    from pyrometer_simulator.fuzz.catalogue import targets  # noqa: PLC0415
    from pyrometer_simulator.fuzz.target import forbid_tracebacks  # noqa: PLC0415

    name, scratch, findings, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=scratch) as folder, contextlib.ExitStack() as at_end:
        with atheris.instrument_imports(include=WATCHED):
            check = targets()[name].build(Path(folder), at_end)
        forbid_tracebacks()
        os.chdir(folder)
        atheris.Setup([sys.argv[0], *options], Findings(Path(findings), check))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
