"""The conventions in which FLOPs of training are counted. They differ by 12 % on a plain 8B model, by 70 % at 128k.

All per token, forward and backward. A product of a token with W weights takes 2 W FLOPs forward and 4 W backward.
Model FLOPs never count what is computed a second time to save memory (recompute); hardware FLOPs do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pyrometer.flops.shape import Shape

RECOMPUTE = ("none", "selective", "full")
"""Activations: all kept; those of the attention product computed again; those of all layers computed again."""


class Convention(NamedTuple):
    """A way to count.

    Attributes:
        model: (shape, sequence) to model FLOPs per token.
        again: (shape, sequence, recompute) to FLOPs per token that are computed a second time.
        source: where the formula is defined.
        prints_hardware: what its framework prints as TFLOPs includes the recompute.
    """

    model: Callable[[Shape, float], float]
    again: Callable[[Shape, float, str], float]
    source: str
    prints_hardware: bool = False


def model_flops(shape: Shape, sequence: float, convention: str = "megatron") -> float:
    """Model FLOPs per token, forward and backward, at this sequence length.

    >>> llama_3_8b = Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
    >>> round(model_flops(llama_3_8b, 8192) / 1e9, 2), round(model_flops(llama_3_8b, 8192, "palm") / 1e9, 2)
    (51.47, 57.91)
    """
    return _named(convention).model(shape, _positive(sequence))


def hardware_flops(shape: Shape, sequence: float, convention: str = "megatron", recompute: str = "none") -> float:
    """FLOPs per token that the GPUs really compute: model FLOPs and what is recomputed."""
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute {recompute!r} is none of {', '.join(RECOMPUTE)}")
    named = _named(convention)
    return named.model(shape, _positive(sequence)) + named.again(shape, sequence, recompute)


def reported_flops(shape: Shape, sequence: float, convention: str, recompute: str = "none") -> float:
    """FLOPs per token behind the TFLOPs that this convention's framework prints."""
    if _named(convention).prints_hardware:
        return hardware_flops(shape, sequence, convention, recompute)
    return model_flops(shape, sequence, convention)


def convert(value: float, shape: Shape, sequence: float, *, source: str, target: str, recompute: str = "none") -> float:
    """An MFU or TFLOP/s figure printed in one convention, as model FLOPs of another.

    >>> bloom = Shape(layers=70, hidden=14336, heads=112, ffn=4 * 14336, vocab=250880, gated=False, tied=True)
    >>> round(convert(149.77, bloom, 2048, source="bloom_hw", target="megatron", recompute="full"), 1)
    111.6
    """
    return value * model_flops(shape, sequence, target) / reported_flops(shape, sequence, source, recompute)


def batch_flops(shape: Shape, lengths: Iterable[int], convention: str = "megatron") -> float:
    """Model FLOPs of one batch of sequences of these lengths: for packed or unpadded batches, ``record(flops=...)``."""
    return sum(length * model_flops(shape, length, convention) for length in lengths)


def mfu(flops_per_token: float, tokens_per_second: float, gpus: int, peak_flops: float) -> float:
    """Model FLOPs utilisation, 0 to 1: of all GPUs' peak (dense, of the dtype that is used) the part that was needed.

    With :func:`hardware_flops` it is the HFU.
    """
    return flops_per_token * tokens_per_second / (gpus * peak_flops)


def _positive(sequence: float) -> float:
    if not sequence > 0:
        raise ValueError(f"sequence is {sequence}: a sequence has at least one token")
    return sequence


def _named(convention: str) -> Convention:
    try:
        return CONVENTIONS[convention]
    except KeyError:
        raise ValueError(f"convention {convention!r} is none of {', '.join(CONVENTIONS)}") from None


def _attention(shape: Shape, sequence: float) -> float:
    """Forward FLOPs per token of queries x keys and weights x values, every key counted (the full square)."""
    return 2 * shape.layers * shape.attention_width * sequence


def _palm(shape: Shape, sequence: float) -> float:
    return 6 * shape.active_parameters + 3 * _attention(shape, sequence)


def _full_square(shape: Shape, sequence: float) -> float:
    return 6 * (shape.layer_weights + shape.head_weights) + 3 * _attention(shape, sequence)


def _causal(shape: Shape, sequence: float) -> float:
    return 6 * (shape.layer_weights + shape.head_weights) + 3 * _attention(shape, sequence) / 2


def _bloom(shape: Shape, sequence: float) -> float:
    # As the framework counts without recompute: its V/(16Lh) makes the output projection 4.5 h V instead of 6 h V.
    return _full_square(shape, sequence) - 1.5 * shape.head_weights


def _hugging_face(shape: Shape, _sequence: float) -> float:
    return 6 * (shape.parameters_in_layers + (0 if shape.tied else shape.head_weights))


def _again(shape: Shape, sequence: float, recompute: str) -> float:
    """One more forward of what is recomputed; the output projection never is."""
    return _again_of(_attention(shape, sequence), shape, recompute)


def _again_causal(shape: Shape, sequence: float, recompute: str) -> float:
    return _again_of(_attention(shape, sequence) / 2, shape, recompute)


def _again_of(attention: float, shape: Shape, recompute: str) -> float:
    if recompute == "full":
        return 2 * shape.layer_weights + attention
    return attention if recompute == "selective" else 0.0


def _again_korthikanti(shape: Shape, sequence: float, recompute: str) -> float:
    # The paper's s/(3h) in the place of s/(6h): three attention forwards, where one is recomputed. As they print it.
    if recompute == "selective":
        return 3 * _attention(shape, sequence)
    return _again(shape, sequence, recompute)


def _again_bloom(shape: Shape, sequence: float, recompute: str) -> float:
    # k = 4 also makes its output projection the right 6 h V. It knows no selective recompute.
    if recompute == "full":
        return _again(shape, sequence, recompute) + 1.5 * shape.head_weights
    return 0.0


CONVENTIONS: Mapping[str, Convention] = {
    "palm": Convention(_palm, _again, "PaLM, arXiv 2204.02311 appendix B; nanoGPT, torchtitan, llm-foundry"),
    "korthikanti": Convention(_full_square, _again_korthikanti, "arXiv 2205.05198 appendix A; nanotron"),
    "megatron": Convention(_causal, _again_causal, "Megatron-LM num_floating_point_operations; NeMo"),
    "bloom_hw": Convention(
        _bloom, _again_bloom, "arXiv 2104.04473 equation 3; Megatron-DeepSpeed", prints_hardware=True
    ),
    "hf": Convention(_hugging_face, _again, "transformers Trainer.floating_point_ops: no attention product"),
}
"""By name. ``palm`` counts every key and the norms, ``megatron`` causal attention (half the square)."""
