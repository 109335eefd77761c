"""The families that are more than a stack of equal layers, or that name their fields in their own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyrometer.flops import layers
from pyrometer.flops.families import FAMILIES, GPT, LLAMA, Family, Widths
from pyrometer.flops.fields import Fields
from pyrometer.flops.parts import Recurrence
from pyrometer.flops.shape import Shape
from pyrometer.flops.stack import stack

# Forward FLOPs per element of a Mamba layer's state, of the gated delta net's: Megatron-LM, training.py.
_MAMBA_SCAN = 7
_DELTA_NET = 8


def _llama4(fields: Fields) -> Shape:
    """Llama 4: dense layers are wider than experts, and each sparse one has a shared expert."""
    family = LLAMA._replace(window=layers.chunked_where_rotary, sparse=True, dense=layers.dense_by_interleaving)
    shape = stack(fields, family)
    if shape.experts is None:
        raise ValueError("num_local_experts is 0: this variant of llama4 is not supported; give flops_per_token")
    experts = replace(shape.experts, shared_ffn=shape.experts.ffn)
    return replace(shape, ffn=fields.number("intermediate_size_mlp"), experts=experts)


def _falcon(fields: Fields) -> Shape:
    """Falcon: one key head (7B) or groups (40B), and norms that depend on whether attention is parallel."""
    grouped, parallel = (fields.flag(name, default=False) for name in ("new_decoder_architecture", "parallel_attn"))
    if grouped:
        kv_heads, norms = fields.number("num_kv_heads"), fields.number("num_ln_in_parallel_attn", default=2)
    else:
        kv_heads, norms = int(fields.flag("multi_query", default=True)), 1 if parallel else 2
    family = GPT._replace(norms=norms, others=lambda _fields, widths: _biases_of_falcon(fields, widths, kv_heads))
    ffn = fields.number("ffn_hidden_size", default=4 * fields.number("hidden_size"))
    return replace(stack(fields, family), kv_heads=kv_heads, ffn=ffn)


def _biases_of_falcon(fields: Fields, widths: Widths, kv_heads: int) -> int:
    keys = (kv_heads or widths.heads) * widths.head
    everything = widths.queries + 2 * keys + 2 * widths.hidden + widths.ffn
    return everything if fields.flag("bias", default=False) else 0


def _mpt(fields: Fields) -> Shape:
    """MPT, with llm-foundry's names: ALiBi replaces learned positions, and there may be no biases."""
    hidden, count, heads = fields.number("d_model"), fields.number("n_layers"), fields.number("n_heads")
    attention = fields.section("attn_config")
    if fields.has("ffn_config"):
        raise ValueError("ffn_config: this variant of mpt is not supported; give flops_per_token")
    ffn = fields.number("expansion_ratio", default=4) * hidden
    learned = fields.flag("learned_pos_emb", default=True) and not attention.flag("alibi", default=False)
    norms = 2 * count + 1
    biases = 0 if fields.flag("no_bias", default=False) else norms * hidden + count * (5 * hidden + ffn)
    return Shape(
        layers=count, hidden=hidden, heads=heads, vocab=fields.number("vocab_size"), ffn=ffn,
        kv_heads=attention.number("kv_n_heads", default=0), gated=False,
        tied=fields.flag("tie_word_embeddings", default=True),
        positions=fields.number("max_seq_len") if learned else 0, other_parameters=biases,
    )  # fmt: skip


def _qwen3_next(fields: Fields) -> Shape:
    """Qwen3-Next: three of four layers are gated delta nets, the others' attention has a gate."""
    shape = stack(fields, _QWEN3_NEXT)
    number = fields.number
    kinds, interval = fields.layer_types(), number("full_attention_interval", default=4) or 1
    count = kinds.count("linear_attention") if kinds is not None else shape.layers - shape.layers // interval
    value_heads, value_dim = number("linear_num_value_heads"), number("linear_value_head_dim")
    keys, key_dim = number("linear_num_key_heads") * number("linear_key_head_dim"), number("linear_key_head_dim")
    values, kernel = value_heads * value_dim, number("linear_conv_kernel_dim")
    convolution = kernel * (2 * keys + values)
    recurrence = Recurrence(
        layers=count,
        weights=shape.hidden * (2 * keys + 3 * values + 2 * value_heads),
        state_flops=2 * convolution + _DELTA_NET * value_heads * key_dim * value_dim,
    )
    norms = 2 * shape.head_dim * (shape.layers - count)  # of queries and keys
    others = count * (convolution + 2 * value_heads + value_dim) + shape.layers * shape.hidden + norms
    return replace(shape, recurrence=recurrence, gated_attention=True, other_parameters=others)


def _mamba_layer(hidden: int, inner: int, state: int, kernel: int, rank: int) -> tuple[int, int]:
    """Return a Mamba layer's weights and its forward FLOPs per token that have none."""
    weights = hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    return weights, 2 * inner * kernel + _MAMBA_SCAN * inner * state


def _mamba_others(inner: int, state: int, kernel: int, *, convolution_bias: bool) -> int:
    """Count a Mamba layer's convolution, step bias, matrix A and vector D."""
    return inner * kernel + inner * convolution_bias + inner + inner * state + inner


def _mamba(fields: Fields) -> Shape:
    """Mamba: no attention, no feed-forward, one norm a layer."""
    number, hidden, count = fields.number, fields.number("hidden_size", "d_model"), fields.layers()
    inner = number("intermediate_size", default=number("expand", default=2) * hidden)
    state, kernel, rank = number("state_size"), number("conv_kernel"), number("time_step_rank")
    weights, state_flops = _mamba_layer(hidden, inner, state, kernel, rank)
    others = _mamba_others(inner, state, kernel, convolution_bias=fields.flag("use_conv_bias", default=True))
    projections = (2 * inner + hidden) * fields.flag("use_bias", default=False)
    return Shape(
        layers=count, hidden=hidden, heads=0, vocab=number("vocab_size"), ffn=0,
        tied=fields.flag("tie_word_embeddings", default=True), recurrence=Recurrence(count, weights, state_flops),
        norms=count + 1, other_parameters=count * (others + projections),
    )  # fmt: skip


def _jamba(fields: Fields) -> Shape:
    """Jamba: Mamba layers with an attention layer in every eight, experts in every second layer."""
    shape = stack(fields, _JAMBA)
    number = fields.number
    inner = number("mamba_expand") * shape.hidden
    state, kernel, rank = number("mamba_d_state"), number("mamba_d_conv"), number("mamba_dt_rank")
    count = shape.layers - layers.periodic(fields, "attn_layer", 8, 4)
    weights, state_flops = _mamba_layer(shape.hidden, inner, state, kernel, rank)
    others = _mamba_others(inner, state, kernel, convolution_bias=fields.flag("mamba_conv_bias", default=True))
    projections = (2 * inner + shape.hidden) * fields.flag("mamba_proj_bias", default=False)
    norms = rank + 2 * state
    return replace(
        shape,
        recurrence=Recurrence(count, weights, state_flops),
        other_parameters=count * (others + projections + norms),
    )


_QWEN3_NEXT = FAMILIES["qwen3_moe"]
_JAMBA = Family(window=layers.windowed_all, sparse=True, dense=layers.dense_by_period)

SPECIAL: Mapping[str, Callable[[Fields], Shape]] = {
    "falcon": _falcon,
    "jamba": _jamba,
    "llama4_text": _llama4,
    "mamba": _mamba,
    "mpt": _mpt,
    "qwen3_next": _qwen3_next,
}
"""Readers by ``model_type``."""
