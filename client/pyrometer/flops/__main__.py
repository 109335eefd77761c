"""``python -m pyrometer.flops config.json --sequence 8192``: FLOPs per token of a model, in every convention."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyrometer.flops.arguments import positive, positive_int
from pyrometer.flops.config import read_config, shape_of_config
from pyrometer.flops.conventions import CONVENTIONS, RECOMPUTE, hardware_flops, mfu, model_flops
from pyrometer.flops.shape import Shape


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 2 and one line where the file or a number can't be used."""
    asked = _parser().parse_args(arguments)
    try:
        shape = shape_of_config(read_config(asked.config))
        lines = list(_table(shape, asked))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"pyrometer.flops: {asked.config}: {error}\n")
        return 2
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyrometer.flops", description=__doc__)
    parser.add_argument("config", type=Path, help="the model's config.json")
    parser.add_argument("--sequence", type=positive_int, required=True, help="sequence length in tokens")
    parser.add_argument("--recompute", choices=RECOMPUTE, default="none", help="activations that are computed again")
    parser.add_argument("--tokens-per-second", type=positive, help="of the whole job: prints MFU and HFU as well")
    parser.add_argument("--gpus", type=positive_int, default=1, help="GPUs of the job (1)")
    parser.add_argument("--peak-flops", type=positive, help="dense FLOP/s of one GPU, such as 989.4e12")
    return parser


def _table(shape: Shape, asked: argparse.Namespace) -> Iterator[str]:
    total, active = shape.parameters / 1e9, shape.active_parameters / 1e9
    yield f"{total:.3f}e9 parameters, {active:.3f}e9 meet a token; GFLOP per token:"
    speed = asked.tokens_per_second if asked.peak_flops else None
    yield f"{'convention':<12} {'model':>10} {'hardware':>10}" + ("     MFU     HFU" if speed else "")
    for name in CONVENTIONS:
        model = model_flops(shape, asked.sequence, name)
        hardware = hardware_flops(shape, asked.sequence, name, asked.recompute)
        row = f"{name:<12} {model / 1e9:>10.3f} {hardware / 1e9:>10.3f}"
        if speed:
            shares = (mfu(flops, speed, asked.gpus, asked.peak_flops) for flops in (model, hardware))
            row += "".join(f" {100 * share:6.1f}%" for share in shares)
        yield row


if __name__ == "__main__":
    sys.exit(main())
