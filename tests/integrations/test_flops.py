"""The counts of ``pyrometer.flops`` against the models that transformers builds from the same fields."""

from __future__ import annotations

from typing import Any

import pytest
from tools.flops_figures import Model, models

from pyrometer.flops import shape_of_config

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_transformers_has_as_many_parameters(model: Model) -> None:
    config = _language_part(model.config)
    built = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.device("meta"):  # no memory: 1e12 parameters take a second
        network = transformers.AutoModelForCausalLM.from_config(built)
    network.tie_weights()
    assert shape_of_config(model.config).parameters == sum(each.numel() for each in network.parameters())


@pytest.mark.parametrize("name", ["Llama 3 8B", "Gemma 2 2B", "Falcon 7B", "MPT-7B", "Phi-2", "Qwen2.5 7B", "GLM-4 9B"])
def test_pytorch_counts_as_many_flops_in_the_matrices_of_a_forward_pass(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = next(each for each in models() if each.name == name)
    config, sequence = _language_part(model.config), 64
    built = transformers.AutoConfig.for_model(config.pop("model_type"), **config, attn_implementation="eager")
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        network = transformers.AutoModelForCausalLM.from_config(built)
        network(torch.zeros(1, sequence, dtype=torch.long))
    shape = shape_of_config(model.config)
    expected = 2 * (shape.layer_weights + shape.head_weights) + shape.attention_flops(sequence, causal=False)
    assert counter.get_total_flops() == pytest.approx(expected * sequence, rel=1e-3)


def _language_part(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields as transformers' text models take them; Kimi K2 is a DeepSeek-V3 to it."""
    part = dict(config.get("text_config", config))
    family = {"qwen2_vl": "qwen2", "kimi_k2": "deepseek_v3"}.get(part["model_type"], part["model_type"])
    part.pop("vision_config", None)
    return part | {"model_type": family}
