"""Read a model's shape from its ``config.json``, the format of Hugging Face's hub and most trainers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyrometer.flops.shape import Experts, LatentAttention, Shape

# The families whose layers are known: (gated feed-forward, embeddings tied unless the file says otherwise).
_FAMILIES: Mapping[str, tuple[bool, bool]] = {
    "llama": (True, False), "mistral": (True, False), "mixtral": (True, False), "qwen2": (True, False),
    "qwen2_moe": (True, False), "qwen3": (True, False), "qwen3_moe": (True, False), "olmo": (True, False),
    "olmo2": (True, False), "olmoe": (True, False), "smollm3": (True, True), "gemma": (True, True),
    "deepseek_v2": (True, False), "deepseek_v3": (True, False), "gpt2": (False, True), "gpt_neox": (False, False),
    "bloom": (False, True), "opt": (False, True),
}  # fmt: skip
# In these the file has a switch for the sliding window; in the others a window that is given is used.
_WINDOW_BY_SWITCH = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3")


def read_config(path: Path) -> Mapping[str, Any]:
    """Return the content of a ``config.json``.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def shape_of_config(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a parsed ``config.json`` describes; nothing is guessed.

    Raises:
        ValueError: the family or the kind of attention is unknown, or a number is missing.
    """
    family = str(config.get("model_type", "absent"))
    if family not in _FAMILIES:
        raise ValueError(f"unknown model_type {family}; known are {', '.join(sorted(_FAMILIES))}: use flops.Shape")
    _refuse_windows(family, config)
    gated, tied = _FAMILIES[family]
    hidden = _number(config, "hidden_size", "n_embd", "n_embed")
    return Shape(
        layers=_number(config, "num_hidden_layers", "n_layer"),
        hidden=hidden,
        heads=_number(config, "num_attention_heads", "n_head"),
        vocab=_number(config, "vocab_size"),
        ffn=_number(config, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
        kv_heads=_number(config, "num_key_value_heads", default=0),
        head_dim=_number(config, "head_dim", default=0),
        gated=gated,
        tied=bool(config.get("tie_word_embeddings", tied)),
        positions=_positions(family, config),
        experts=_experts(config),
        latent=_latent(config),
    )


def _refuse_windows(family: str, config: Mapping[str, Any]) -> None:
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", family not in _WINDOW_BY_SWITCH):
        raise ValueError(f"sliding_window {window}: sliding-window attention is not counted; give flops_per_token")


def _positions(family: str, config: Mapping[str, Any]) -> int:
    if family == "gpt2":
        return _number(config, "n_positions", "n_ctx")
    return _number(config, "max_position_embeddings") if family == "opt" else 0


def _experts(config: Mapping[str, Any]) -> Experts | None:
    count = _number(config, "n_routed_experts", "num_local_experts", "num_experts", default=0)
    if not count:
        return None
    ffn = _number(config, "moe_intermediate_size", "intermediate_size")
    shared = _number(config, "n_shared_experts", default=0) * ffn
    return Experts(
        count=count,
        active=_number(config, "num_experts_per_tok"),
        ffn=ffn,
        shared_ffn=_number(config, "shared_expert_intermediate_size", default=shared),
        dense_layers=_number(config, "first_k_dense_replace", default=0),
    )


def _latent(config: Mapping[str, Any]) -> LatentAttention | None:
    rank = _number(config, "kv_lora_rank", default=0)
    if not rank:
        return None
    return LatentAttention(
        q_rank=_number(config, "q_lora_rank", default=0),
        kv_rank=rank,
        nope_dim=_number(config, "qk_nope_head_dim"),
        rope_dim=_number(config, "qk_rope_head_dim"),
        v_dim=_number(config, "v_head_dim"),
    )


def _number(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """Return the first of these numbers that the file has; null counts as absent.

    Raises:
        ValueError: it is not a whole number, or is missing without a default.
    """
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}, not a whole number")
        return value
    if default is None:
        raise ValueError(f"{' or '.join(names)} is missing")
    return default
