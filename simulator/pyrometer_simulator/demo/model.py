"""A small network that truly learns: two layers in numpy, gradients by hand, its FLOPs counted.

One row is one "token". For batch B, input D, hidden H, output O:
forward 2BDH + 2BHO; backward 2BHO (dW2) + 2BHO (dh) + 2BDH (dW1): together B x (4DH + 6HO).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

INPUT, HIDDEN, OUTPUT = 512, 1024, 256
FLOPS_PER_ROW = 4 * INPUT * HIDDEN + 6 * HIDDEN * OUTPUT
LEARNING_RATE = 0.005  # the largest that learns without diverging for these sizes: 0.01 overflows


def peak_flops(seconds: float = 1.0) -> float:
    """Measure this machine's peak in FLOP/s: the best rate of a square float32 product on numpy's threads."""
    size = 1024
    left = np.ones((size, size), dtype=np.float32)
    right = np.ones((size, size), dtype=np.float32)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        np.matmul(left, right)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


@dataclass
class Model:
    """The network and the function that it learns."""

    first: Array
    second: Array
    teacher: Array
    random: np.random.Generator

    @classmethod
    def fresh(cls, seed: int = 7) -> Model:
        """Return a network with random weights and a random linear function to learn."""
        random = np.random.default_rng(seed)
        return cls(
            first=_weights(random, INPUT, HIDDEN),
            second=_weights(random, HIDDEN, OUTPUT),
            teacher=_weights(random, INPUT, OUTPUT),
            random=random,
        )

    def batch(self, rows: int) -> tuple[Array, Array]:
        """Return inputs, rows x INPUT, and what the network should answer, rows x OUTPUT."""
        inputs = self.random.standard_normal((rows, INPUT), dtype=np.float32)
        return inputs, inputs @ self.teacher

    def forward(self, inputs: Array) -> tuple[Array, Array]:
        """Hidden activations and outputs."""
        hidden = np.maximum(inputs @ self.first, 0)
        return hidden, hidden @ self.second

    def backward(self, inputs: Array, hidden: Array, error: Array) -> tuple[Array, Array]:
        """Gradients of the mean squared error by both weight matrices."""
        slope: Array = np.multiply(error, np.float32(2 / len(inputs)), dtype=np.float32)
        through = (slope @ self.second.T) * (hidden > 0)
        return inputs.T @ through, hidden.T @ slope

    def update(self, gradients: tuple[Array, Array]) -> None:
        """One step of gradient descent."""
        self.first -= np.float32(LEARNING_RATE) * gradients[0]
        self.second -= np.float32(LEARNING_RATE) * gradients[1]


def rows_for(seconds: float, step: Callable[[int], None]) -> int:
    """Return the number of rows with which one step takes about ``seconds``; ``step`` runs one of so many rows."""
    rows = 256
    while True:
        step(rows)
        start = time.perf_counter()
        step(rows)
        took = time.perf_counter() - start
        if took > seconds / 4 or rows >= 1 << 16:
            return max(64, int(rows * seconds / took))
        rows *= 2


def _weights(random: np.random.Generator, rows: int, columns: int) -> Array:
    return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(rows**-0.5)
