"""Measure the step time of a real PyTorch run with and without the client, and its MFU; on a GPU if available.

Steps with and without take turns, so that both see the same machine, and each pair gives a difference. The cost
of the client is far below the noise of a shared machine, so the result is the median of the differences with its
interval.

Run: .venv-integrations/bin/python benchmarks/bench_pytorch.py (`make test-integrations` makes that environment)
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from harness import need_pytorch

import pyrometer
from pyrometer_exporters.node.train.rings import RingFile
from pyrometer_exporters.node.train.tracker import Rank, to_point

PAIRS, WARMUP = 2000, 50
LAYERS, WIDTH, BATCH = 4, 256, 128
FLOPS_PER_ROW = 6.0 * LAYERS * WIDTH * WIDTH


def model_step(torch: Any, device: str) -> Callable[[], Any]:  # noqa: ANN401  a module that need not be there
    """Run one training step: forward, backward, optimizer, and on a GPU a synchronisation, as logging needs."""
    torch.set_num_threads(1)  # the machine is shared: a step on all cores would wait for them
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False, device=device) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(BATCH, WIDTH, device=device, requires_grad=True)

    def step() -> Any:  # noqa: ANN401  a tensor
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device != "cpu":
            torch.cuda.synchronize()
        return loss

    return step


def timed(body: Callable[[], object]) -> float:
    begin = time.perf_counter()
    body()
    return time.perf_counter() - begin


def interval(differences: list[float]) -> tuple[float, float]:
    """Return the interval of 95 % of the medians of samples drawn with replacement."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(differences, k=len(differences))) for _ in range(1000))
    return medians[25], medians[974]


def main() -> None:
    torch: Any = need_pytorch()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = model_step(torch, device)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run = pyrometer.start(
            "bench", rings=folder, tokens_per_step=BATCH, flops_per_token=FLOPS_PER_ROW, peak_flops=1e12
        )

        def with_client() -> None:
            with run.step():
                with run.part("forward"):
                    pass
                run.record(loss=step())

        for _ in range(WARMUP):
            step()
        pairs = []
        for _ in range(PAIRS):
            plain = timed(step)
            pairs.append((plain, timed(with_client)))
        report(pairs, run, device)


def report(pairs: list[tuple[float, float]], run: pyrometer.Run, device: str) -> None:
    plain, measured = (statistics.median(column) for column in zip(*pairs, strict=True))
    low, high = interval([after - before for before, after in pairs])
    print(
        f"{device}: {len(pairs)} pairs of steps, {plain * 1e3:.2f} ms without, {measured * 1e3:.2f} ms with the client"
    )
    print(f"difference in a pair: median within {low * 1e6:+.0f} and {high * 1e6:+.0f} us (95 %)")
    print(f"a step's own spread: {statistics.stdev(before for before, _ in pairs) * 1e6:.0f} us")
    file = RingFile(run.path)
    rank = Rank(file, file.header(), 0, 1e12)
    mfu = [to_point(record, rank, 0).mfu or 0.0 for record in file.records(0, rank.header.count)]
    by_hand = [FLOPS_PER_ROW * BATCH / seconds / 1e12 for _, seconds in pairs]
    file.close()
    print(f"MFU of 1 TFLOP/s: {statistics.mean(mfu):.5f} by the client, {statistics.mean(by_hand):.5f} by hand")


if __name__ == "__main__":
    main()
