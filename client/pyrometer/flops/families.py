"""The families of models whose layers are known, by ``model_type``: how each differs from Llama.

Layers and parameters are those of transformers 5.23 (``src/transformers/models/<family>/modeling_<family>.py``); a
published model of each family is counted to the last parameter in ``tests/client/flops/test_published.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyrometer.flops import layers
from pyrometer.flops.fields import Fields
from pyrometer.flops.parts import Window


class Widths(NamedTuple):
    """Widths of one layer.

    Attributes:
        hidden: Of the residual stream.
        queries: Of all heads.
        keys: Of all key heads; as wide as the values.
        head: Of one head.
        ffn: Of the feed-forward.
        heads: Number of heads.
    """

    hidden: int
    queries: int
    keys: int
    head: int
    ffn: int
    heads: int


Count = Callable[[Fields, Widths], int]


class Family(NamedTuple):
    """How the layers of one family differ from Llama's.

    Attributes:
        gated: Three feed-forward matrices.
        tied: Embeddings are tied unless the file says otherwise.
        norms: Norms of the full width in a layer.
        norm_biases: They have biases (LayerNorm), the last one included.
        others: Counts the parameters of a layer that are in no matrix, norms of the full width apart.
        others_once: Counts those of the model outside its layers.
        window: Reads the window.
        sparse: It has experts; a file without them is refused.
        dense: Counts the dense layers of a mixture of experts.
        own_heads: Heads are not hidden / heads wide unless the file says so, so it must.
    """

    gated: bool = True
    tied: bool = False
    norms: int = 2
    norm_biases: bool = False
    others: Count = lambda _fields, _widths: 0
    others_once: Count = lambda _fields, _widths: 0
    window: Callable[[Fields], Window | None] = layers.not_windowed
    sparse: bool = False
    dense: Callable[[Fields], int] = lambda _fields: 0
    own_heads: bool = False


def _switched(fields: Fields, widths: Widths) -> int:
    """Count Llama's biases, which the file switches: of all four projections, and of the feed-forward."""
    attention = widths.queries + 2 * widths.keys + widths.hidden
    ffn = 2 * widths.ffn + widths.hidden
    switch = fields.flag
    return switch("attention_bias", default=False) * attention + switch("mlp_bias", default=False) * ffn


def _queries_keys_values(_fields: Fields, widths: Widths) -> int:
    return widths.queries + 2 * widths.keys


def _qwen2_moe(fields: Fields, widths: Widths) -> int:
    return (widths.queries + 2 * widths.keys) * fields.flag("qkv_bias", default=True) + widths.hidden


def _head_norms(fields: Fields, widths: Widths) -> int:
    return 2 * widths.head + _switched(fields, widths)


def _wide_norms(_fields: Fields, widths: Widths) -> int:
    return widths.queries + widths.keys


def _glm(fields: Fields, widths: Widths) -> int:
    norms = 2 * widths.head * fields.flag("use_qk_norm", default=False)
    return norms + (widths.queries + 2 * widths.keys) * fields.flag("attention_bias", default=fields.family == "glm")


def _gpt_oss(fields: Fields, widths: Widths) -> int:
    """Count the biases of four projections and of the router, and a sink per head."""
    router = fields.number("num_local_experts", "num_experts", default=0)
    return widths.queries + 2 * widths.keys + widths.hidden + widths.heads + router


def _deepseek(fields: Fields, _widths: Widths) -> int:
    """Count the norms of the compressed queries, keys and values, and the indexer's LayerNorm."""
    indexer = 2 * fields.number("index_head_dim", default=0)
    return fields.number("q_lora_rank", default=0) + fields.number("kv_lora_rank", default=0) + indexer


def _everywhere(_fields: Fields, widths: Widths) -> int:
    """Count GPT's biases: of all four projections and of the feed-forward."""
    return widths.queries + 2 * widths.keys + 2 * widths.hidden + widths.ffn


def _first_norm(_fields: Fields, widths: Widths) -> int:
    return 2 * widths.hidden


def _head_bias(fields: Fields, _widths: Widths) -> int:
    return fields.number("vocab_size")


LLAMA = Family(others=_switched)
GPT = Family(gated=False, tied=True, norm_biases=True, others=_everywhere)
_QWEN2 = Family(others=_queries_keys_values, window=layers.windowed_by_switch)
_QWEN3 = Family(others=_head_norms, window=layers.windowed_by_switch, own_heads=True)
_DEEPSEEK = Family(others=_deepseek, sparse=True, dense=layers.dense_first)
_GEMMA2 = Family(tied=True, norms=4, window=layers.windowed_every_second, own_heads=True)
_GLM = Family(others=_glm, own_heads=True)

FAMILIES: Mapping[str, Family] = {
    "llama": LLAMA,
    "mistral": Family(window=layers.windowed_all),
    "mixtral": Family(window=layers.windowed_all, sparse=True),
    "qwen2": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": _QWEN2._replace(others=_qwen2_moe, sparse=True, dense=layers.dense_by_step),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3._replace(sparse=True, dense=layers.dense_by_step),
    "olmo": Family(norms=0),
    "olmo2": Family(others=_wide_norms),
    "olmo3": Family(others=_wide_norms, window=layers.windowed_but_every_fourth),
    "olmoe": Family(others=_wide_norms, sparse=True),
    "smollm3": Family(tied=True, others=_switched, window=layers.windowed_by_switch),
    "gemma": Family(tied=True, own_heads=True),
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2._replace(others=_head_norms, window=layers.windowed_but_every_sixth),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm": _GLM,
    "glm4": _GLM._replace(norms=4),
    "glm4_moe": _GLM._replace(sparse=True, dense=layers.dense_first),
    "gpt_oss": Family(others=_gpt_oss, window=layers.windowed_every_second, sparse=True, own_heads=True),
    "phi": GPT._replace(tied=False, norms=1, others_once=_head_bias),
    "phi3": Family(window=layers.windowed_all),
    "gpt2": GPT,
    "gpt_neox": GPT._replace(tied=False),
    "bloom": GPT._replace(others_once=_first_norm),
    "opt": GPT,
}
"""Families that are a stack of equal layers, read by :func:`pyrometer.flops.stack.stack`."""
