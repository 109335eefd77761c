"""FLOPs per token of Hugging Face's callback, against real models: experts, adapters, windows.

PyTorch counts what a model multiplies in a forward and a backward pass.
"""

from __future__ import annotations

from typing import Any

import pytest
from tools.flops_figures import Model, models

from pyrometer._model_flops import flops_per_token
from pyrometer.flops import model_flops, shape_of_config

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 96, "tie_word_embeddings": False,
}  # fmt: skip
SEQUENCE = 32
SPARSE = [model for model in models() if model.published_active]
WINDOWED = [model for model in models() if model.name in {"Mistral 7B v0.1", "Gemma 2 2B", "gpt-oss-20b"}]


def build(model: Model) -> Any:
    """Build the published model on no device, where it takes no memory."""
    config = {name: value for name, value in model.config.items() if name != "vision_config"}
    config = dict(config.get("text_config", config))
    family = config.pop("model_type")
    built = transformers.AutoConfig.for_model({"kimi_k2": "deepseek_v3"}.get(family, family), **config)
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(built)
    network.tie_weights()
    return network


@pytest.mark.parametrize("model", SPARSE, ids=lambda model: model.name)
def test_a_published_mixture_counts_the_experts_that_a_token_uses(model: Model) -> None:
    shape = shape_of_config(model.config)
    expected = 6.0 * (shape.all_active_parameters - shape.head_weights)
    assert flops_per_token(build(model), None, "") == (pytest.approx(expected, rel=1e-3), "hf")


@pytest.mark.parametrize("model", WINDOWED, ids=lambda model: model.name)
def test_a_published_window_counts_its_keys_alone(model: Model) -> None:
    """At 32,768 tokens those of a windowed layer are less than a quarter of all."""
    counted = flops_per_token(build(model), 32_768, "megatron")
    shape = shape_of_config(model.config)
    assert counted == (model_flops(shape, 32_768, "megatron"), "megatron")
    window = shape.window
    assert window is not None
    seen = 12 * shape.heads * shape.head_dim if shape.head_dim else 12 * shape.hidden
    without = counted[0] - 6 * (shape.layer_weights + shape.head_weights)
    keys = (shape.layers - window.layers) * 32_768 / 2 + window.layers * window.size
    assert without == pytest.approx(seen * keys, rel=0.07), "the first tokens of a window see fewer"


def multiplied(network: Any) -> float:
    """Return the FLOPs per token that PyTorch counts, those of attention's products left out."""
    from torch.utils.flop_counter import FlopCounterMode

    numbers = torch.arange(2 * SEQUENCE).reshape(2, SEQUENCE) % SIZES["vocab_size"]
    with FlopCounterMode(display=False) as counter:
        network(input_ids=numbers, labels=numbers).loss.backward()
    flops = counter.get_flop_counts()["Global"]
    return float(sum(flops.values()) - flops.get(torch.ops.aten.bmm, 0)) / numbers.numel()


def tiny() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, attn_implementation="eager"))


def test_a_dense_model_multiplies_as_much() -> None:
    network = tiny()
    counted = flops_per_token(network, None, "")
    assert counted is not None
    assert multiplied(network) == pytest.approx(counted[0], rel=0.01)


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], "all-linear"])
def test_an_adapter_multiplies_as_much(targets: Any) -> None:
    """Frozen weights have no gradients of their own, and below the first adapter none at all."""
    network = peft.get_peft_model(tiny(), peft.LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
    counted = flops_per_token(network, None, "")
    assert counted is not None
    assert multiplied(network) == pytest.approx(counted[0], rel=0.03)


def test_an_adapter_of_the_last_layer_leaves_the_others_without_gradients() -> None:
    """Keys and values of the adapter's own layer count as if their input had a gradient."""
    adapter = peft.LoraConfig(r=4, target_modules=["q_proj"], layers_to_transform=[2], task_type="CAUSAL_LM")
    network = peft.get_peft_model(tiny(), adapter)
    counted = flops_per_token(network, None, "")
    assert counted is not None
    assert multiplied(network) == pytest.approx(counted[0], rel=0.05)
