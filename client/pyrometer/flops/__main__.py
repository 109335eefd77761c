"""``python -m pyrometer.flops config.json --sequence 8192``: print a model's FLOPs per token in every convention."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyrometer._command_line import add_version_flag, positive, positive_int
from pyrometer.flops.config import has_other_parts, read_config, shape_of_config
from pyrometer.flops.conventions import CONVENTIONS, RECOMPUTE, hardware_flops, mfu, model_flops
from pyrometer.flops.shape import Shape


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Return the exit status: 2, after one line, if the file or a number can't be used."""
    options = _parser().parse_args(arguments)
    try:
        config = read_config(options.config)
        lines = list(_table(shape_of_config(config), options))
    except OSError as error:
        return _fail(f"{options.config}: {error.strerror or error}")
    except ValueError as error:
        return _fail(f"{options.config}: {error}")
    if has_other_parts(config):
        lines.insert(0, "Count the language part only, not the encoders for images or sound.")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"pyrometer.flops: {reason}\n")
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyrometer.flops", description="Print the FLOPs per token of a model, in every convention."
    )
    parser.add_argument("config", type=Path, help="The model's config.json.")
    parser.add_argument("--sequence", type=positive_int, required=True, help="Sequence length in tokens.")
    parser.add_argument("--recompute", choices=RECOMPUTE, default="none", help="Activations that are computed twice.")
    parser.add_argument(
        "--tokens-per-second",
        type=positive,
        help="Tokens per second of the whole job; with --peak-flops, MFU and HFU are printed as well.",
    )
    parser.add_argument("--gpus", type=positive_int, default=1, help="Number of GPUs of the job (default: 1).")
    parser.add_argument("--peak-flops", type=positive, help="Peak dense FLOP/s of one GPU, such as 989.4e12.")
    add_version_flag(parser)
    return parser


def _table(shape: Shape, options: argparse.Namespace) -> Iterator[str]:
    total, active = shape.parameters / 1e9, shape.active_parameters / 1e9
    yield f"{total:.3f}e9 parameters, {active:.3f}e9 active per token; GFLOP per token:"
    speed = options.tokens_per_second if options.peak_flops else None
    yield f"{'convention':<12} {'model':>10} {'hardware':>10}" + ("     MFU     HFU" if speed else "")
    for name in CONVENTIONS:
        model = model_flops(shape, options.sequence, name)
        hardware = hardware_flops(shape, options.sequence, name, options.recompute)
        row = f"{name:<12} {model / 1e9:>10.3f} {hardware / 1e9:>10.3f}"
        if speed:
            ratios = (mfu(flops, speed, options.gpus, options.peak_flops) for flops in (model, hardware))
            row += "".join(f" {100 * ratio:6.1f}%" for ratio in ratios)
        yield row


if __name__ == "__main__":
    sys.exit(main())
