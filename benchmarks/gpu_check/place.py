"""Where the check runs: on a GPU, or on the project's stand-in for its driver; programs are started accordingly."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pynvml

SHARED_MEMORY = "/dev/shm"  # noqa: S108  rings belong into it
LAUNCHER = Path(__file__).resolve().parents[1] / "on_gpu.py"
_END_SECONDS = 30.0  # a program that has been asked to end puts back what it has set on the stand-in


@dataclass(frozen=True)
class Place:
    """The folder of the raw data, the stand-in's files (empty on a GPU), and a factor for how long things take."""

    out: str
    stand_in: str = ""
    scale: float = 1.0
    deadline: float = 0.0
    """When the experiment is ended, by ``time.monotonic``."""
    cuda: bool = False
    """True if PyTorch can use the GPU; looked up once, as importing it may wake the GPU and takes seconds."""

    def text(self) -> str:
        """Return what :meth:`parse` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> Place:
        """Return the place that a parent process has described."""
        return Place(**json.loads(text))

    @property
    def folder(self) -> Path:
        """The folder of the raw data."""
        return Path(self.out)

    @property
    def gpus(self) -> Path:
        """The state of the simulated GPUs."""
        return Path(self.stand_in) / "gpus"

    def seconds(self, on_a_gpu: float) -> float:
        """Return how long something takes here that takes ``on_a_gpu`` seconds on a GPU."""
        return on_a_gpu * self.scale

    def left(self) -> float:
        """Return the seconds until the experiment is ended."""
        return self.deadline - time.monotonic()

    @property
    def loads(self) -> bool:
        """True if a load can be put on the GPU."""
        return self.cuda or bool(self.stand_in)

    def torch(self) -> ModuleType | None:
        """Return PyTorch if it can be used here: on a GPU only with CUDA, on the stand-in any build."""
        try:
            import torch  # noqa: PLC0415  gigabytes, and perhaps missing
        except (ImportError, OSError):  # OSError: a library of CUDA that is missing
            return None
        usable = bool(self.stand_in) or torch.cuda.is_available()
        return torch if usable else None

    def exporter_module(self) -> list[str]:
        """Return how Python starts the node exporter here."""
        if self.stand_in:
            return ["-m", "pyrometer_simulator.node", "--gpus", str(self.gpus), "--"]
        return ["-m", "pyrometer_exporters.node.main"]

    def doctor_module(self) -> list[str]:
        """Return how Python starts the doctor here."""
        if self.stand_in:
            return ["-m", "pyrometer_simulator.doctor", "--gpus", str(self.gpus), "--"]
        return ["-m", "pyrometer_exporters.commands.doctor.main"]

    def node_paths(self) -> list[str]:
        """Return the flags of the simulated node's files; none on a GPU, where the node is the machine's own."""
        names = ("sysfs=sys", "kmsg=kmsg") if self.stand_in else ()
        return [f"--path.{name}={self.stand_in}/{where}" for name, _, where in (one.partition("=") for one in names)]

    @contextlib.contextmanager
    def nvml(self) -> Iterator[Any]:
        """Open the driver in this process, independently of our exporter's code; yield the handle of the first GPU."""
        with self._library():
            pynvml.nvmlInit()
            try:
                yield pynvml.nvmlDeviceGetHandleByIndex(0)
            finally:
                pynvml.nvmlShutdown()

    @contextlib.contextmanager
    def _library(self) -> Iterator[None]:
        if not self.stand_in:
            yield
            return
        from pyrometer_simulator.nvml import installed  # noqa: PLC0415  only of the stand-in

        with installed(self.gpus):
            yield

    @contextlib.contextmanager
    def child(self, name: str, **settings: Any) -> Iterator[Child]:  # noqa: ANN401  whatever JSON can hold
        """Run one of our own programs (of ``children.py``) for the length of the block."""
        environment = {**os.environ, **settings.pop("environment", {})}
        command = [sys.executable, str(LAUNCHER), "--child", name, self.text(), json.dumps(settings)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            child = Child(process)
            try:
                yield child
            finally:
                child.end()


class Child:
    """A program of ours under way; it writes JSON lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what it writes until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                yield json.loads(line)

    def line(self) -> dict[str, Any]:
        """Return the next line.

        Raises:
            RuntimeError: it has ended.
        """
        found = next(self.lines(), None)
        if found is None:
            msg = f"a program ended with status {self._process.wait()} instead of answering"
            raise RuntimeError(msg)
        return found

    def go(self) -> None:
        """Let it continue: it waits for a line."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end_input(self) -> None:
        """Close its standard input, which ends a program that waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, seconds: float) -> int | None:
        """Return its exit status, None if it has not ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def end(self) -> None:
        """End it, politely at first."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        if self._process.poll() is None:
            self._process.terminate()
            if self.wait(_END_SECONDS) is None:
                self._process.kill()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder in memory that is removed afterwards; rings have to be in one."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=parent, prefix="gpu-check-") as folder:
        yield Path(folder)


def say(**line: Any) -> None:  # noqa: ANN401  whatever JSON can hold
    """Write a line for the parent process."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
