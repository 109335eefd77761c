"""Which layers of a ``config.json`` are different: windowed, sparse or recurrent. Rules are those of transformers."""

from __future__ import annotations

from pyrometer.flops.fields import Fields
from pyrometer.flops.parts import Window


def windowed_all(fields: Fields) -> Window | None:
    """Return the window of Mistral and Phi-3: every layer's, where one is given."""
    return _window(fields, fields.layers())


def windowed_by_switch(fields: Fields) -> Window | None:
    """Return Qwen's window: only with ``use_sliding_window``, and from layer ``max_window_layers`` on."""
    if not fields.flag("use_sliding_window", default=False):
        return None
    return _window(fields, max(0, fields.layers() - fields.number("max_window_layers", default=0)))


def windowed_every_second(fields: Fields) -> Window | None:
    """Return the window of Gemma 2 and gpt-oss: layers 0, 2, 4, ..."""
    return _stated_window(fields, (fields.layers() + 1) // 2)


def windowed_but_every_fourth(fields: Fields) -> Window | None:
    """Return OLMo 3's window: all layers but 3, 7, 11, ..."""
    return _stated_window(fields, fields.layers() - fields.layers() // 4)


def windowed_but_every_sixth(fields: Fields) -> Window | None:
    """Return Gemma 3's window: all layers but 5, 11, 17, ..., or as ``sliding_window_pattern`` has it."""
    period = fields.number("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _stated_window(fields, fields.layers() - (fields.layers() // period if period else 0))


def chunked_where_rotary(fields: Fields) -> Window | None:
    """Return Llama 4's chunks: the layers with rotary positions, 1 in ``no_rope_layers``, by default 3 of 4."""
    rotary = fields.indices("no_rope_layers")
    step = fields.number("no_rope_layer_interval", default=4)
    global_layers = fields.layers() // step if step else 0
    layers = sum(map(bool, rotary)) if rotary else fields.layers() - global_layers
    size = fields.number("attention_chunk_size", default=0)
    return Window(size, layers, chunked=True) if size else None


def not_windowed(fields: Fields) -> Window | None:
    """Return none, for the families without windows.

    Raises:
        ValueError: the file has one nevertheless.
    """
    if fields.has("sliding_window") and fields.flag("use_sliding_window", default=True):
        raise ValueError(f"sliding_window in a {fields.family} is not supported; give flops_per_token")
    return None


def _stated_window(fields: Fields, layers: int) -> Window | None:
    """Return the window of a family that always has one, so that a file without it would be guessed at."""
    if not fields.states("sliding_window"):
        raise ValueError("sliding_window is missing")
    return _window(fields, layers)


def _window(fields: Fields, layers: int) -> Window | None:
    """Return the window, with the number of layers from ``layer_types`` where the file has it."""
    size = fields.number("sliding_window", default=0)
    kinds = fields.layer_types()
    layers = layers if kinds is None else kinds.count("sliding_attention")
    return Window(size, layers) if size and layers else None


def dense_first(fields: Fields) -> int:
    """Return the dense layers of DeepSeek, GLM and Kimi: the first, and those that ``moe_layer_freq`` skips."""
    layers, first = fields.layers(), fields.number("first_k_dense_replace", default=0)
    every = fields.number("moe_layer_freq", default=1) or 1
    return layers - sum(1 for layer in range(first, layers) if layer % every == 0)


def dense_by_step(fields: Fields) -> int:
    """Return the dense layers of Qwen: those ``mlp_only_layers`` lists and ``decoder_sparse_step`` skips."""
    only, step = set(fields.indices("mlp_only_layers") or ()), fields.number("decoder_sparse_step", default=1) or 1
    return fields.layers() - sum(1 for layer in range(fields.layers()) if layer not in only and (layer + 1) % step == 0)


def dense_by_interleaving(fields: Fields) -> int:
    """Return the dense layers of Llama 4: all but those of ``moe_layers``, or each ``interleave_moe_layer_step``-th."""
    sparse = fields.indices("moe_layers")
    step = fields.number("interleave_moe_layer_step", default=1) or 1
    return fields.layers() - (len(sparse) if sparse is not None else fields.layers() // step)


def dense_by_period(fields: Fields) -> int:
    """Return Jamba's dense layers: those off ``expert_layer_offset`` in each ``expert_layer_period``."""
    return fields.layers() - periodic(fields, "expert_layer", 2, 1)


def periodic(fields: Fields, name: str, period: int, offset: int) -> int:
    """Return how many layers have number ``offset`` in each ``period``, by the fields of that name."""
    every = fields.number(f"{name}_period", default=period) or 1
    at = fields.number(f"{name}_offset", default=offset)
    return sum(1 for layer in range(fields.layers()) if layer % every == at)
