"""FLOPs of a training step: from the model's shape, in the convention you name.

    from pyrometer import flops

    shape = flops.Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
    flops.model_flops(shape, sequence=8192)                       # per token, megatron: 51.47e9
    flops.model_flops(shape, sequence=8192, convention="palm")    # per token, palm: 57.91e9
    flops.mfu(51.47e9, tokens_per_second=76_000, gpus=8, peak_flops=989.4e12)

``python -m pyrometer.flops config.json --sequence 8192`` prints the same for a model's ``config.json``.
``import pyrometer`` does not import this package: a training job that gives its number pays nothing for it.
"""

from pyrometer.flops.config import has_other_parts, read_config, shape_of_config
from pyrometer.flops.conventions import (
    CONVENTIONS,
    RECOMPUTE,
    batch_flops,
    convert,
    hardware_flops,
    mfu,
    model_flops,
    reported_flops,
)
from pyrometer.flops.parts import Experts, Indexer, LatentAttention, Recurrence, Window
from pyrometer.flops.shape import Shape

__all__ = [
    "CONVENTIONS",
    "RECOMPUTE",
    "Experts",
    "Indexer",
    "LatentAttention",
    "Recurrence",
    "Shape",
    "Window",
    "batch_flops",
    "convert",
    "hardware_flops",
    "has_other_parts",
    "mfu",
    "model_flops",
    "read_config",
    "reported_flops",
    "shape_of_config",
]
