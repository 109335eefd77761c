"""Run the doctor over the tape of a real NVIDIA driver: a fixture from a machine with GPUs.

    python -m pyrometer_simulator.nvml.recording record FILE [-- flags of pyrometer-doctor]
    python -m pyrometer_simulator.nvml.recording play FILE [-- flags of pyrometer-doctor]

`record` runs it over the machine's own libnvidia-ml and writes a tape, with serial numbers and UUIDs as they are;
`pyrometer-doctor --field-report` writes one that is redacted. `play` takes either.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path

from pyrometer_exporters.commands.doctor.main import main as doctor
from pyrometer_exporters.commands.doctor.tape import Recorder, load, under_pynvml

__all__ = ["Recorder", "load", "main", "under_pynvml"]


def main(argv: Sequence[str] | None = None) -> int:
    """Record or replay; return the doctor's exit status."""
    program = "python -m pyrometer_simulator.nvml.recording"
    parser = argparse.ArgumentParser(prog=program, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("record", "play"))
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("doctor", nargs="*", metavar="-- FLAGS", help="flags of the doctor")
    flags = parser.parse_args(argv)
    try:
        return _play(flags.file, flags.doctor) if flags.what == "play" else _record(flags.file, flags.doctor)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _play(file: Path, arguments: Sequence[str]) -> int:
    with under_pynvml(load(file)):
        return doctor(arguments)


def _record(file: Path, arguments: Sequence[str]) -> int:
    file.touch()  # fail before the GPUs are queried if the file can't be written
    try:
        recorder = Recorder(ctypes.CDLL("libnvidia-ml.so.1"))
    except OSError as error:
        msg = f"no NVIDIA driver on this machine: {error}"
        raise ValueError(msg) from None
    with under_pynvml(recorder):
        status = doctor(arguments)
    recorder.save(file)
    return status


if __name__ == "__main__":
    sys.exit(main())
