"""From fields to a shape, for the families that are a stack of equal layers."""

from __future__ import annotations

from pyrometer.flops.families import Family, Widths
from pyrometer.flops.fields import Fields
from pyrometer.flops.parts import Experts, Indexer, LatentAttention, Window
from pyrometer.flops.shape import Shape

# OPT numbers positions from 2.
_OPT_OFFSET = 2


def stack(fields: Fields, family: Family) -> Shape:
    """Return the shape.

    Raises:
        ValueError: a number is missing, or the file has what isn't counted.
    """
    hidden = fields.number("hidden_size", "n_embd", "n_embed")
    layers, widths = fields.layers(), _widths(fields, family, hidden)
    indexer = _indexer(fields)
    norms = family.norms * layers + (1 if family.norms else 0)
    others = layers * family.others(fields, widths) + family.others_once(fields, widths)
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=widths.heads,
        vocab=fields.number("vocab_size"),
        ffn=widths.ffn,
        kv_heads=fields.number("num_key_value_heads", default=0),
        head_dim=fields.number("head_dim", default=0),
        gated=family.gated,
        tied=fields.flag("tie_word_embeddings", default=family.tied),
        positions=_positions(fields),
        experts=_experts(fields, family),
        latent=_latent(fields),
        window=Window(indexer.top_k, layers) if indexer else family.window(fields),
        indexer=indexer,
        norms=norms,
        other_parameters=others + (norms * hidden if family.norm_biases else 0),
    )


def _widths(fields: Fields, family: Family, hidden: int) -> Widths:
    heads = fields.number("num_attention_heads", "n_head")
    head = fields.number("head_dim", default=None if family.own_heads else 0) or hidden // max(heads, 1)
    return Widths(
        hidden=hidden,
        queries=heads * head,
        keys=(fields.number("num_key_value_heads", default=0) or heads) * head,
        head=head,
        ffn=fields.number("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
        heads=heads,
    )


def _positions(fields: Fields) -> int:
    if fields.family == "gpt2":
        return fields.number("n_positions", "n_ctx")
    if fields.family != "opt":
        return 0
    hidden = fields.number("hidden_size")
    if fields.number("word_embed_proj_dim", default=hidden) != hidden:
        raise ValueError(
            "word_embed_proj_dim is not hidden_size: this variant of opt is not supported; give flops_per_token"
        )
    return fields.number("max_position_embeddings") + _OPT_OFFSET


def _experts(fields: Fields, family: Family) -> Experts | None:
    names = ("n_routed_experts", "num_local_experts", "num_experts")
    count = fields.number(*names, default=None if family.sparse else 0)
    if not count:
        return None
    ffn = fields.number("moe_intermediate_size", "intermediate_size")
    shared = fields.number("n_shared_experts", default=0) * ffn
    hidden = fields.number("hidden_size")
    return Experts(
        count=count,
        active=fields.number("num_experts_per_tok", "experts_per_token"),
        ffn=ffn,
        shared_ffn=fields.number("shared_expert_intermediate_size", default=shared),
        dense_layers=family.dense(fields),
        biases=2 * ffn + hidden if fields.family == "gpt_oss" else 0,
    )


def _latent(fields: Fields) -> LatentAttention | None:
    rank = fields.number("kv_lora_rank", default=0)
    if not rank:
        return None
    return LatentAttention(
        q_rank=fields.number("q_lora_rank", default=0),
        kv_rank=rank,
        nope_dim=fields.number("qk_nope_head_dim"),
        rope_dim=fields.number("qk_rope_head_dim"),
        v_dim=fields.number("v_head_dim"),
    )


def _indexer(fields: Fields) -> Indexer | None:
    """Return the indexer of DeepSeek-V3.2.

    Raises:
        ValueError: the family has one, and the file doesn't describe it.
    """
    if fields.family != "deepseek_v32":
        return None
    number = fields.number
    return Indexer(number("index_n_heads"), number("index_head_dim"), number("index_topk"))
