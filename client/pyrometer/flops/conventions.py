"""The conventions for counting the FLOPs of training. They differ by 12 % on a plain 8B model, by 70 % at 128k.

All numbers are per token, forward and backward. Multiplying a token with W weights takes 2 W FLOPs forward and 4 W
backward. Hardware FLOPs include what is computed a second time to save memory (recompute); model FLOPs never do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pyrometer.flops.shape import Shape

RECOMPUTE = ("none", "selective", "full")
"""Activations: all kept; those of the attention product recomputed; those of all layers recomputed."""


class Convention(NamedTuple):
    """A way to count.

    Attributes:
        model: From (shape, sequence) to model FLOPs per token.
        recomputed: From (shape, sequence, recompute) to FLOPs per token that are computed a second time.
        source: Where the formula is defined.
        prints_hardware: Whether the TFLOPs that its framework prints include the recompute.
    """

    model: Callable[[Shape, float], float]
    recomputed: Callable[[Shape, float, str], float]
    source: str
    prints_hardware: bool = False


def model_flops(shape: Shape, sequence: float, convention: str = "megatron") -> float:
    """Return the model FLOPs per token, forward and backward.

    Args:
        shape: The model's.
        sequence: Length in tokens.
        convention: One of :data:`CONVENTIONS`.

    Raises:
        ValueError: the convention is unknown, or the sequence has no token.

    >>> llama_3_8b = Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
    >>> round(model_flops(llama_3_8b, 8192) / 1e9, 2), round(model_flops(llama_3_8b, 8192, "palm") / 1e9, 2)
    (51.47, 57.91)
    """
    return _named(convention).model(shape, _positive(sequence))


def hardware_flops(shape: Shape, sequence: float, convention: str = "megatron", recompute: str = "none") -> float:
    """Return the FLOPs per token that the GPUs really compute: model FLOPs and what is recomputed.

    Raises:
        ValueError: the convention or ``recompute`` is unknown, or the sequence has no token.
    """
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute {recompute!r} is not one of {', '.join(RECOMPUTE)}")
    named = _named(convention)
    return named.model(shape, _positive(sequence)) + named.recomputed(shape, sequence, recompute)


def reported_flops(shape: Shape, sequence: float, convention: str, recompute: str = "none") -> float:
    """Return the FLOPs per token behind the TFLOPs that this convention's framework prints.

    Raises:
        ValueError: the convention or ``recompute`` is unknown, or the sequence has no token.
    """
    if _named(convention).prints_hardware:
        return hardware_flops(shape, sequence, convention, recompute)
    return model_flops(shape, sequence, convention)


def convert(value: float, shape: Shape, sequence: float, *, source: str, target: str, recompute: str = "none") -> float:
    """Convert an MFU or TFLOP/s figure printed in one convention to model FLOPs of another.

    Raises:
        ValueError: a convention or ``recompute`` is unknown, or the sequence has no token.

    >>> bloom = Shape(layers=70, hidden=14336, heads=112, ffn=4 * 14336, vocab=250880, gated=False, tied=True)
    >>> round(convert(149.77, bloom, 2048, source="bloom_hw", target="megatron", recompute="full"), 1)
    111.6
    """
    return value * model_flops(shape, sequence, target) / reported_flops(shape, sequence, source, recompute)


def batch_flops(shape: Shape, lengths: Iterable[int], convention: str = "megatron") -> float:
    """Return the model FLOPs of one batch of sequences of these lengths, for ``record(flops=...)``.

    Use it for packed or unpadded batches.

    Raises:
        ValueError: the convention is unknown, or a sequence has no token.
    """
    return sum(length * model_flops(shape, length, convention) for length in lengths)


def mfu(flops_per_token: float, tokens_per_second: float, gpus: int, peak_flops: float) -> float:
    """Return the model FLOPs utilisation, 0 to 1: the share of all GPUs' peak that the model needs.

    Args:
        flops_per_token: Model FLOPs; with :func:`hardware_flops` the result is the HFU.
        tokens_per_second: Of the whole job.
        gpus: Number of GPUs.
        peak_flops: Peak dense FLOP/s of one GPU, for the dtype in use.
    """
    return flops_per_token * tokens_per_second / (gpus * peak_flops)


def _positive(sequence: float) -> float:
    if not sequence > 0:
        raise ValueError(f"sequence is {sequence}: it must have at least one token")
    return sequence


def _named(convention: str) -> Convention:
    try:
        return CONVENTIONS[convention]
    except KeyError:
        raise ValueError(f"convention {convention!r} is not one of {', '.join(CONVENTIONS)}") from None


def _attention(shape: Shape, sequence: float) -> float:
    """Return the forward FLOPs per token of attention, counting every key (full square)."""
    return shape.attention_flops(sequence, causal=False)


def _palm(shape: Shape, sequence: float) -> float:
    return 6 * shape.active_parameters + 3 * _attention(shape, sequence)


def _full_square(shape: Shape, sequence: float) -> float:
    return 6 * (shape.layer_weights + shape.head_weights) + 3 * _attention(shape, sequence)


def _causal(shape: Shape, sequence: float) -> float:
    return 6 * (shape.layer_weights + shape.head_weights) + 3 * shape.attention_flops(sequence, causal=True)


def _llm_foundry(shape: Shape, sequence: float) -> float:
    return 6 * shape.all_active_parameters + 3 * _attention(shape, sequence)


def _bloom(shape: Shape, sequence: float) -> float:
    # As the framework counts without recompute: its V/(16Lh) makes the output projection 4.5 h V instead of 6 h V.
    return _full_square(shape, sequence) - 1.5 * shape.head_weights


def _hugging_face(shape: Shape, _sequence: float) -> float:
    return 6 * (shape.parameters_in_layers + (0 if shape.tied else shape.head_weights))


def _recompute(shape: Shape, sequence: float, recompute: str) -> float:
    """Return one more forward pass of what is recomputed; the output projection never is."""
    return _recompute_with(_attention(shape, sequence), shape, recompute)


def _recompute_causal(shape: Shape, sequence: float, recompute: str) -> float:
    return _recompute_with(shape.attention_flops(sequence, causal=True), shape, recompute)


def _recompute_with(attention: float, shape: Shape, recompute: str) -> float:
    if recompute == "full":
        return 2 * shape.layer_weights + attention
    return attention if recompute == "selective" else 0.0


def _recompute_korthikanti(shape: Shape, sequence: float, recompute: str) -> float:
    # As printed in the paper: s/(3h) in place of s/(6h), three attention forwards where one is recomputed.
    if recompute == "selective":
        return 3 * _attention(shape, sequence)
    return _recompute(shape, sequence, recompute)


def _recompute_llm_foundry(shape: Shape, sequence: float, recompute: str) -> float:
    # Its HFU is 4/3 of its MFU: a second forward pass of everything.
    if recompute == "full":
        return _llm_foundry(shape, sequence) / 3
    return _recompute(shape, sequence, recompute)


def _recompute_bloom(shape: Shape, sequence: float, recompute: str) -> float:
    # With k = 4 its output projection becomes the right 6 h V. It has no selective recompute.
    if recompute == "full":
        return _recompute(shape, sequence, recompute) + 1.5 * shape.head_weights
    return 0.0


CONVENTIONS: Mapping[str, Convention] = {
    "palm": Convention(_palm, _recompute, "PaLM, arXiv 2204.02311 appendix B; nanoGPT, torchtitan"),
    "llm_foundry": Convention(
        _llm_foundry, _recompute_llm_foundry, "llm-foundry scripts/train/benchmarking/README.md; Composer"
    ),
    "korthikanti": Convention(_full_square, _recompute_korthikanti, "arXiv 2205.05198 appendix A; nanotron"),
    "megatron": Convention(_causal, _recompute_causal, "Megatron-LM num_floating_point_operations; NeMo"),
    "bloom_hw": Convention(
        _bloom, _recompute_bloom, "arXiv 2104.04473 equation 3; Megatron-DeepSpeed", prints_hardware=True
    ),
    "hf": Convention(_hugging_face, _recompute, "transformers Trainer.floating_point_ops: no attention product"),
}
"""Conventions by name.

``palm`` counts 6 FLOPs for each parameter that multiplies a token: matrices, norms and output projection, but neither
learned positions nor biases, nor an input embedding of its own. ``llm_foundry`` counts 6 for every parameter there is,
those included. Both count every key, ``megatron`` causal attention: half the square. Where attention has a window, each
counts the keys in it, and where a layer is recurrent, the update of its state.
"""
