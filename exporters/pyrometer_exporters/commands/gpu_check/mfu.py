"""Experiment d: the run's MFU against the count by hand, and each step's time against the GPU's own events.

A launch returns before the GPU has done the work, so a loop that never synchronises sees steps begin and end on the
CPU. Here it shows by how much that differs, and in which step a slow one appears.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyrometer
from pyrometer_exporters.commands.gpu_check.check import Check, Experiment, Report
from pyrometer_exporters.commands.gpu_check.cost import judge_pairs
from pyrometer_exporters.commands.gpu_check.gpt import CPU_PEAK, Training
from pyrometer_exporters.commands.gpu_check.place import Place, scratch
from pyrometer_exporters.commands.gpu_check.trainers import huggingface_steps, lightning_steps
from pyrometer_exporters.node.train.peaks import peak_flops
from pyrometer_exporters.node.train.rank import Rank
from pyrometer_exporters.node.train.rings import Record, RingFile
from pyrometer_exporters.node.train.tracker import to_point

_SHARE = 0.005
_STEPS, _SETTLE = 30, 6
_SLOW_SECONDS = 0.2
_CLIENT_PERCENT = 0.1
_LEAST_SECONDS = 10.0
_LOOPS = {
    "plain": "a plain loop that never synchronises",
    "compiled": "with torch.compile",
    "accumulated": "with gradients of four micro-batches",
    "auto": "under auto()",
    "huggingface": "under Hugging Face's Trainer",
    "lightning": "under Lightning's Trainer",
}
CHECKS = (
    *(Check(name, f"MFU of a GPT of 350 M parameters, {what}, against the count by hand", "within 0.5 %")
      for name, what in _LOOPS.items()),
    Check("steps", "each step's time over that of CUDA events, plain loop: p5, p50, p95", "median within 1 %"),
    Check("slow_step", "a step with a busy kernel of 200 ms: where it shows", "in that step, by 200 ms"),
    Check("client", "the client's cost in a step, in pairs of steps with and without", "at most 0.1 %"),
    Check("peak", "the peak that MFU is counted against", "known for this GPU"),
)  # fmt: skip
Marks = list[Any]


def run(place: Place, report: Report) -> None:
    """Train with each loop for a few seconds; one that fails costs itself alone."""
    if place.torch() is None:
        report.skipped_rest("no PyTorch that can be used here")
        return
    with scratch() as rings:
        bench = Bench(place, report, rings)
        bench.peak_known()
        for name, loop in (("plain", bench.plain), ("slow_step", bench.slow_step), ("accumulated", bench.accumulated),
                           ("client", bench.client), ("auto", bench.auto), ("huggingface", bench.huggingface),
                           ("lightning", bench.lightning), ("compiled", bench.compiled)):  # fmt: skip
            try:
                if place.left() < _LEAST_SECONDS:
                    report.skipped(name, "no time left")
                    continue
                loop()
            except ImportError as error:
                report.skipped(name, f"not installed: {error.name or error}")
            except Exception as error:  # noqa: BLE001  the others are still measured
                report.skipped(name, f"{type(error).__name__}: {str(error)[:300]}")
    report.skipped_rest("its loop failed")


class Bench:
    """One model that all loops train."""

    def __init__(self, place: Place, report: Report, rings: Path) -> None:
        self._report, self._rings = report, rings
        self._training = training = Training(place)
        self._model = training.torch.cuda.get_device_name() if training.device == "cuda" else ""
        listed = peak_flops(self._model, "bf16")
        self._peak = listed or CPU_PEAK
        self._warm()

    def peak_known(self) -> None:
        """Check that the GPU's name is in the table of peaks."""
        if not self._model:
            self._report.skipped("peak", "no GPU")
            return
        peak = peak_flops(self._model, "bf16")
        measured = f"{self._model}: {'unknown' if peak is None else f'{peak / 1e12:g} TFLOP/s'}"
        self._report.passed("peak", measured, ok=peak is not None)

    def plain(self) -> None:
        """Train with ``with run.step()``, which never waits for the GPU."""
        marks, records = self._in_steps("plain", lambda _: self._training.step())
        self._mfu("plain", marks, records)
        ours = [(record.end - record.start) / 1e9 for record in records][_SETTLE:]
        theirs = self._training.between(marks)[_SETTLE:]
        ratios = sorted(recorded / event for recorded, event in zip(ours, theirs, strict=True))
        self._report.raw("steps, s", {"ours": ours, "events": theirs})
        low, middle, high = (ratios[round(share * (len(ratios) - 1))] for share in (0.05, 0.5, 0.95))
        self._report.passed("steps", f"{low:.3f}, {middle:.3f}, {high:.3f}", ok=abs(middle - 1) <= 0.01)

    def slow_step(self) -> None:
        """Make one step in the middle slow on the GPU alone."""
        slow = _STEPS // 2

        def step(number: int) -> None:
            if number == slow:
                self._training.busy_kernel(_SLOW_SECONDS)
            self._training.step()

        marks, records = self._in_steps("slow-step", step)
        seconds = [(record.end - record.start) / 1e9 for record in records]
        usual = statistics.median(seconds)
        late = [1e3 * (step_seconds - usual) for step_seconds in seconds]
        worst = max(range(_SETTLE, len(late)), key=lambda number: late[number])
        self._report.raw("slow step", {"slow": slow, "ours": seconds, "events": self._training.between(marks)})
        near = ", ".join(f"{number - slow:+d}: {late[number]:+.0f} ms" for number in range(slow - 1, slow + 4))
        exact = worst == slow and abs(late[slow] - 1e3 * _SLOW_SECONDS) <= 20
        self._report.passed("slow_step", f"step {worst - slow:+d} from it ({near})", ok=exact)

    def accumulated(self) -> None:
        """Train with the gradients of four micro-batches."""
        self._mfu("accumulated", *self._in_steps("accumulated", lambda _: self._training.step(4)))

    def compiled(self) -> None:
        """Train with torch.compile, last as it may take minutes; without a C compiler it is skipped with its reason."""
        training = self._training
        # On a CPU without code generation, which takes minutes there.
        backend = "eager" if training.device == "cpu" else "inductor"
        for block in training.model.blocks:  # one after the other, as all are alike: a whole model takes a minute
            block.compile(backend=backend)
        self._warm()
        self._mfu("compiled", *self._in_steps("compiled", lambda _: training.step()))

    def auto(self) -> None:
        """Train with the optimizer's hook, which stays, but writes to nothing once its run is closed."""
        marks: Marks = []
        with pyrometer.auto("auto", **self._settings()) as run:
            handle = self._training.optimizer.register_step_post_hook(lambda *_: marks.append(self._training.mark()))
            for _ in range(_STEPS + 1):
                self._training.step()
            handle.remove()
            self._mfu("auto", marks, self._records(run))

    def huggingface(self) -> None:
        """Train with Hugging Face's Trainer."""
        self._mfu("huggingface", *self._with_trainer(huggingface_steps))

    def lightning(self) -> None:
        """Train with Lightning's Trainer."""
        self._mfu("lightning", *self._with_trainer(lightning_steps))

    def client(self) -> None:
        """Run steps with and without the client in turn; each is waited for, so that it counts alone."""
        training, pairs = self._training, []
        with pyrometer.start("pairs", **self._settings()) as run:
            for _ in range(_STEPS):
                plain = self._timed(training.step)
                with_client = self._timed(lambda: self._stepped(run))
                pairs.append((plain, with_client))
        shares = [100 * (after / before - 1) for before, after in pairs]
        self._report.raw("pairs of steps, s", pairs)
        judge_pairs(self._report, "client", shares, _CLIENT_PERCENT)

    def _stepped(self, run: pyrometer.Run) -> None:
        with run.step():
            run.record(loss=self._training.step())

    def _timed(self, body: Callable[[], object]) -> float:
        self._training.synchronize()
        begin = time.perf_counter()
        body()
        self._training.synchronize()
        return time.perf_counter() - begin

    def _warm(self) -> None:
        for _ in range(3):
            self._training.step()
        self._training.synchronize()

    def _settings(self) -> dict[str, Any]:
        size = self._training.size
        return {
            "rings": str(self._rings), "flops_per_token": size.flops_per_token, "tokens_per_step": size.tokens,
            "peak_flops": self._peak, "dtype": "bf16", "warmup_steps": 0,
        }  # fmt: skip

    def _in_steps(self, name: str, step: Callable[[int], object]) -> tuple[Marks, list[Record]]:
        marks: Marks = []
        with pyrometer.start(name, **self._settings()) as run:
            for number in range(_STEPS):
                with run.step():
                    marks.append(self._training.mark())
                    step(number)
            marks.append(self._training.mark())
            self._training.synchronize()
            return marks, self._records(run)

    def _with_trainer(self, train: Callable[..., None]) -> tuple[Marks, list[Record]]:
        """Run a framework's trainer; return a mark at the end of each step, and the records."""
        before = set(self._rings.glob("*.ring"))
        marks: Marks = []
        train(self._training, _STEPS, self._settings(), lambda: marks.append(self._training.mark()))
        self._training.synchronize()
        (path,) = set(self._rings.glob("*.ring")) - before
        return marks, _records(str(path))

    def _records(self, run: pyrometer.Run) -> list[Record]:
        return _records(run.path)

    def _mfu(self, check: str, marks: Marks, records: list[Record]) -> None:
        """Compare the MFU of the settled steps with the count by hand: FLOPs over the GPU's own time."""
        points = [to_point(record, self._rank(), 0) for record in records]
        theirs = self._training.between(marks)[_SETTLE:]
        # Both end with the same step; a trainer's first one has no mark at its beginning.
        settled = [(point.mfu or 0.0, point.seconds) for point in points][-len(theirs) :]
        ours = sum(mfu * seconds for mfu, seconds in settled) / sum(seconds for _, seconds in settled)
        by_hand = self._training.flops_per_step * len(theirs) / sum(theirs) / self._peak
        self._report.raw(f"{check}: MFU", {"ours": ours, "by hand": by_hand, "steps": len(settled), "events": theirs})
        apart = 100 * (ours / by_hand - 1)
        measured = f"{ours:.4f} for {by_hand:.4f} ({apart:+.2f} %)"
        self._report.passed(check, measured, ok=abs(apart) <= 100 * _SHARE)

    def _rank(self) -> Rank:
        (path, *_) = sorted(self._rings.glob("*.ring"))
        file = RingFile(str(path))
        try:
            return Rank(file, file.header(), 0, self._peak)
        finally:
            file.close()


def _records(path: str) -> list[Record]:
    file = RingFile(path)
    try:
        return list(file.records(0, file.header().count))
    finally:
        file.close()


EXPERIMENT = Experiment("d", "MFU", 130, CHECKS, run)
