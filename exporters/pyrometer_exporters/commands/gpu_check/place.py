"""Where the check runs: this machine's first GPU, the programs that are started for it, and scratch folders."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import IO, Any, ClassVar, cast

import pynvml

SHARED_MEMORY = "/dev/shm"  # noqa: S108  rings belong into it
_END_SECONDS = 30.0  # a program that has been asked to end puts back what it has set on the stand-in


@dataclass(frozen=True)
class Place:
    """The machine's first GPU, the folder of the raw data, and a factor for how long things take.

    A subclass stands in for the GPU: its methods start and open a simulated driver.
    """

    out: str
    scale: float = 1.0
    deadline: float = 0.0
    """When the experiment is ended, by ``time.monotonic``."""
    cuda: bool = False
    """True if PyTorch can use the GPU; looked up once, as importing it may wake the GPU and takes seconds."""

    stand_in: ClassVar[bool] = False
    """True where a simulated driver answers: costs are measured, not judged."""
    program: ClassVar[tuple[str, ...]] = ("-m", "pyrometer_exporters.commands.gpu_check")
    """How Python starts this command."""
    children: ClassVar[Mapping[str, Callable[..., None]]] = MappingProxyType({})
    """Programs in place of the command's own, by name."""
    device: ClassVar[str] = "cuda"
    """PyTorch's name of the device that trains."""
    backend: ClassVar[str] = "nccl"
    """PyTorch's name of the library for collectives."""
    capability: ClassVar[tuple[float, int] | None] = None
    """A simulated GPU's FLOPs per cycle and SM, and its number of SMs; a real one is asked."""
    bandwidth: ClassVar[float | None] = None
    """A simulated GPU's bytes per second of memory; a real one is asked."""

    @classmethod
    @contextlib.contextmanager
    def made(cls, out: Path, scale: float) -> Iterator[Place]:
        """Yield a place for the length of a run."""
        yield cls(str(out), scale)

    def text(self) -> str:
        """Return what :meth:`parse` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that a parent process has described."""
        return cls(**json.loads(text))

    @property
    def folder(self) -> Path:
        """The folder of the raw data."""
        return Path(self.out)

    def seconds(self, on_a_gpu: float) -> float:
        """Return how long something takes here that takes ``on_a_gpu`` seconds on a GPU."""
        return on_a_gpu * self.scale

    def left(self) -> float:
        """Return the seconds until the experiment is ended."""
        return self.deadline - time.monotonic()

    @property
    def loads(self) -> bool:
        """True if a load can be put on the GPU."""
        return self.cuda or self.stand_in

    def torch(self) -> ModuleType | None:
        """Return PyTorch if it can be used here: with CUDA on a GPU, any build on the stand-in."""
        try:
            torch = importlib.import_module("torch")  # gigabytes, and perhaps missing
        except (ImportError, OSError):  # OSError: a library of CUDA that is missing
            return None
        return torch if self.stand_in or torch.cuda.is_available() else None

    def exporter_module(self) -> list[str]:
        """Return how Python starts the node exporter here."""
        return ["-m", "pyrometer_exporters.node.main"]

    def doctor_module(self) -> list[str]:
        """Return how Python starts the doctor here."""
        return ["-m", "pyrometer_exporters.commands.doctor.main"]

    def node_paths(self) -> list[str]:
        """Return the flags that name the node's files, where they are not the machine's own."""
        return []

    def library(self) -> contextlib.AbstractContextManager[None]:
        """Have pynvml use this place's driver."""
        return contextlib.nullcontext()

    def nvidia_smi(self) -> contextlib.AbstractContextManager[None]:
        """Have an nvidia-smi on the path, where there is one for this driver."""
        return contextlib.nullcontext()

    def ras(self, address: tuple[str, int]) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002  NCCL listens
        """Have a RAS socket at an address, where NCCL opens none."""
        return contextlib.nullcontext()

    def show_tensor_work(self, share: float) -> None:
        """Have a simulated GPU report this tensor activity, 0 to 1; a real one is at work."""

    def show_rest(self) -> None:
        """Have a simulated GPU report that it is idle."""

    @contextlib.contextmanager
    def nvml(self) -> Iterator[Any]:
        """Open the driver in this process, independently of our exporter's code; yield the handle of the first GPU."""
        with self.library():
            pynvml.nvmlInit()
            try:
                yield pynvml.nvmlDeviceGetHandleByIndex(0)
            finally:
                pynvml.nvmlShutdown()

    @contextlib.contextmanager
    def child(self, name: str, **settings: Any) -> Iterator[Child]:  # noqa: ANN401  whatever JSON can hold
        """Run one of the command's programs for the length of the block."""
        environment = {**os.environ, **settings.pop("environment", {})}
        command = [sys.executable, *self.program, "--child", name, self.text(), json.dumps(settings)]
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
        self._input, self._output = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        self.pid = process.pid

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what it writes until it ends."""
        for line in self._output:
            if line.startswith("{"):
                yield json.loads(line)

    def line(self) -> dict[str, Any]:
        """Return the next line.

        Raises:
            RuntimeError: it has ended.
        """
        answer = next(self.lines(), None)
        if answer is None:
            msg = f"a program ended with status {self._process.wait()} instead of answering"
            raise RuntimeError(msg)
        return answer

    def go(self) -> None:
        """Let it continue: it waits for a line."""
        self._input.write("\n")
        self._input.flush()

    def end_input(self) -> None:
        """Close its standard input, which ends a program that waits for that."""
        self._input.close()

    def wait(self, seconds: float) -> int | None:
        """Return its exit status, None if it has not ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def end(self) -> None:
        """End it, politely at first."""
        with contextlib.suppress(OSError):
            self._input.close()
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
