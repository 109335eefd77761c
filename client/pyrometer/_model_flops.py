"""FLOPs per token of a model that is loaded: by its parameters, as they are trained and used.

torch and transformers are never imported: only the model's own methods are called.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Parameters of routed experts, in the models of transformers (Mixtral, Qwen, DeepSeek, OLMoE, gpt-oss, Llama 4):
# ``model.layers.0.mlp.experts.7.down_proj.weight``. Shared experts are ``shared_expert(s)``: every token uses them.
_EXPERTS = ".experts."
_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_USED = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_top_k")


def flops_per_token(model: Any, sequence: int | None, convention: str) -> tuple[float, str] | None:
    """Return model FLOPs per token and the convention that they are counted in, None where they can't be counted.

    By default in ``hf``: twice the parameters that a token uses, without embeddings, for the forward pass; as much for
    the gradient of what a layer was given; and as much again for the gradients of those that are trained. So a model
    of experts counts those that a token goes through, and a frozen one under an adapter 4 instead of 6 per parameter.
    Other conventions need the sequence's length and a model that :mod:`pyrometer.flops` knows by its ``config``.

    Raises:
        Exception: those of the model.
    """
    if convention not in ("", "hf"):
        return _by_shape(model, sequence, convention)
    if is_sharded(model):
        return None
    used = _share_of_experts(model)
    embeddings = _embeddings(model)
    total, below_trained = 0.0, False
    for name, parameter in model.named_parameters():
        if name in embeddings:
            continue
        count = _count(parameter)
        if _EXPERTS in name:
            if used is None:
                return None
            count *= used
        below_trained = below_trained or bool(parameter.requires_grad)
        total += count * (6 if parameter.requires_grad else 4 if below_trained else 2)
    return (total, "hf") if total > 0 else None


def is_sharded(model: Any) -> bool:
    """Return whether FSDP 1 has cut the model: its parameters are then flat, and this rank's share of them."""
    modules = model.modules() if hasattr(model, "modules") else ()
    return any(kind.__name__ == "FullyShardedDataParallel" for module in modules for kind in type(module).__mro__)


def _by_shape(model: Any, sequence: int | None, convention: str) -> tuple[float, str] | None:
    if not sequence or is_sharded(model) or any(not parameter.requires_grad for parameter in model.parameters()):
        return None
    from pyrometer import flops  # noqa: PLC0415  would add to what the import costs

    return flops.model_flops(flops.shape_of_config(model.config.to_dict()), sequence, convention), convention


def _share_of_experts(model: Any) -> float | None:
    config: Mapping[str, Any] = model.config.to_dict() if hasattr(getattr(model, "config", None), "to_dict") else {}
    for place in (config, config.get("text_config") or {}):
        count = next((place[name] for name in _EXPERT_COUNTS if place.get(name)), None)
        used = next((place[name] for name in _EXPERTS_USED if place.get(name)), None)
        if count and used:
            return float(used) / float(count)
    return None


def _embeddings(model: Any) -> set[str]:
    modules = ((name, module) for name, module in model.named_modules() if hasattr(module, "num_embeddings"))
    return {f"{name}.weight" for name, _ in modules}


def _count(parameter: Any) -> float:
    """Return a parameter's elements, of the whole where DeepSpeed has sharded it and unpacked where it has 4 bits."""
    count = getattr(parameter, "ds_numel", None) or parameter.numel()
    packed = type(parameter).__name__ == "Params4bit"
    return float(count * 2 * parameter.element_size() if packed else count)
