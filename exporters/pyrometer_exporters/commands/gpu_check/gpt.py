"""A GPT of about 350 million parameters in bf16, its FLOPs counted by hand, and marks on the GPU's own time line."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, NamedTuple

from pyrometer_exporters.commands.gpu_check.place import Place

# A peak for torch's CPU build, where there is none: it only has to be the same on both sides.
CPU_PEAK = 1e11


class Size(NamedTuple):
    """Layers, width, heads, vocabulary, tokens of a sequence, sequences of a step."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    batch: int

    @property
    def tokens(self) -> int:
        """The tokens of one step."""
        return self.length * self.batch

    @property
    def flops_per_token(self) -> float:
        """Return 6 FLOPs for each weight that a token meets, and 12 x layers x length x width for attention (PaLM)."""
        weights = 12 * self.layers * self.width**2 + self.vocabulary * self.width
        return 6.0 * weights + 12.0 * self.layers * self.length * self.width


GPT_350M = Size(layers=24, width=1024, heads=16, vocabulary=50304, length=1024, batch=16)
# 20 ms a step on a quiet core: what the loop does between two steps, some 20 us, is far below the 0.5 % compared.
SMALL = Size(layers=2, width=64, heads=4, vocabulary=256, length=64, batch=16)


class Training:
    """Hold a model, its optimizer and a batch; :meth:`step` is forward, backward and update, never a synchronise."""

    def __init__(self, place: Place) -> None:
        self.torch: Any = place.torch()
        self.device = place.device
        self.size = GPT_350M if place.device == "cuda" else SMALL
        torch: Any = self.torch
        torch.manual_seed(0)
        if self.device == "cpu":
            torch.set_num_threads(1)
        self.model = _model(torch, self.size).to(self.device, torch.float32 if self.device == "cpu" else torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        shape = (self.size.batch, self.size.length)
        self.batch = torch.randint(self.size.vocabulary, shape, device=self.device)
        # Measured now: it waits for the GPU, which a step must not.
        self._cycles_per_second = 0.0 if self.device == "cpu" else _cycles_per_second(torch)

    @property
    def flops_per_step(self) -> float:
        """The model FLOPs of one step."""
        return self.size.flops_per_token * self.size.tokens

    def step(self, micro_batches: int = 1) -> Any:  # noqa: ANN401  a tensor
        """Run one step, its batch in so many parts; return the loss, which is not waited for."""
        loss: Any = None
        for part in self.batch.chunk(micro_batches):
            loss = self.model(part, part)["loss"] / micro_batches
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def mark(self) -> Any:  # noqa: ANN401  an event, or the time
        """Return a mark at the present end of the GPU's queue."""
        if self.device == "cpu":
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, marks: list[Any]) -> list[float]:
        """Return the seconds between neighbouring marks, as the GPU passed them."""
        self.synchronize()
        if self.device == "cpu":
            return [after - before for before, after in pairwise(marks)]
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)]

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def busy_kernel(self, seconds: float) -> None:
        """Queue a kernel that keeps the GPU busy for so long."""
        if self.device == "cpu":
            time.sleep(seconds)
        else:
            self.torch.cuda._sleep(int(seconds * self._cycles_per_second))  # noqa: SLF001  there is no public one


def _cycles_per_second(torch: Any) -> float:  # noqa: ANN401  torch's
    """Return the rate at which torch's busy kernel counts."""
    for cycles in (20_000_000, 200_000_000):  # the first one wakes the clocks
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(cycles)  # noqa: SLF001  there is no public one
        end.record()
        end.synchronize()
    return float(cycles / (begin.elapsed_time(end) / 1e3))


def _model(torch: Any, size: Size) -> Any:  # noqa: ANN401  torch's
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
            self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
            self.out = nn.Linear(size.width, size.width, bias=False)
            self.up = nn.Linear(size.width, 4 * size.width, bias=False)
            self.down = nn.Linear(4 * size.width, size.width, bias=False)

        def forward(self, x: Any) -> Any:  # noqa: ANN401  a tensor
            shape = (*x.shape[:2], size.heads, size.width // size.heads)
            q, k, v = (part.reshape(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocabulary, size.width)
            self.positions = nn.Parameter(torch.zeros(size.length, size.width))
            self.blocks = nn.ModuleList(Block() for _ in range(size.layers))
            self.norm = nn.LayerNorm(size.width)
            self.head = nn.Linear(size.width, size.vocabulary, bias=False)

        def forward(self, input_ids: Any, labels: Any) -> dict[str, Any]:  # noqa: ANN401  tensors
            x = self.tokens(input_ids) + self.positions
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return {"loss": functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}

    return Gpt()
