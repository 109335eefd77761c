"""FLOPs of a loaded model count what a token uses and what is trained."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest

from pyrometer._model_flops import flops_per_token


class Parameter:
    def __init__(self, count: int, *, trained: bool = True) -> None:
        self.count = count
        self.requires_grad = trained

    def numel(self) -> int:
        return self.count

    def element_size(self) -> int:
        return 1


class Params4bit(Parameter):
    pass


class Model:
    def __init__(self, parameters: dict[str, Parameter], **config: Any) -> None:
        self._parameters = parameters
        self.config = types.SimpleNamespace(to_dict=lambda: config)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        return iter(self._parameters.items())

    def parameters(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        yield "embed", types.SimpleNamespace(num_embeddings=8)
        yield "layer", types.SimpleNamespace()


def dense(**more: Parameter) -> dict[str, Parameter]:
    return {"embed.weight": Parameter(1000), "layer.weight": Parameter(10), **more}


def test_a_dense_model_is_six_times_its_parameters_without_embeddings() -> None:
    assert flops_per_token(Model(dense()), None, "") == (60.0, "hf")


def test_of_experts_those_that_a_token_uses_count() -> None:
    parameters = dense()
    parameters |= {f"layer.experts.{n}.weight": Parameter(10) for n in range(8)}
    model = Model(parameters, num_local_experts=8, num_experts_per_tok=2)
    assert flops_per_token(model, None, "hf") == (6 * (10 + 20), "hf")


def test_experts_of_an_unknown_kind_have_no_flops() -> None:
    parameters = dense() | {"layer.experts.w": Parameter(80)}
    assert flops_per_token(Model(parameters, num_local_experts=8), None, "") is None


def test_frozen_weights_have_no_gradients_of_their_own() -> None:
    parameters = {
        "embed.weight": Parameter(1000, trained=False),
        "first.weight": Parameter(10, trained=False),
        "first.lora.weight": Parameter(1),
        "last.weight": Parameter(10, trained=False),
    }
    assert flops_per_token(Model(parameters), None, "") == (2 * 10 + 6 * 1 + 4 * 10, "hf")


def test_weights_of_four_bits_are_unpacked() -> None:
    assert flops_per_token(Model({"layer.weight": Params4bit(5)}), None, "") == (60.0, "hf")


def test_sharded_weights_count_whole() -> None:
    empty = Parameter(0)
    empty.ds_numel = 10  # type: ignore[attr-defined]
    assert flops_per_token(Model({"layer.weight": empty}), None, "") == (60.0, "hf")
    assert flops_per_token(Model({"layer.weight": Parameter(0)}), None, "") is None


LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


@pytest.mark.parametrize(("convention", "expected"), [("megatron", 51.47e9), ("palm", 57.91e9)])
def test_another_convention_is_counted_from_the_config(convention: str, expected: float) -> None:
    counted = flops_per_token(Model(dense(), **LLAMA), 8192, convention)
    assert counted == (pytest.approx(expected, rel=1e-3), convention)


def test_another_convention_needs_the_length_and_all_weights_trained() -> None:
    assert flops_per_token(Model(dense(), **LLAMA), None, "palm") is None
    frozen = Model(dense(more=Parameter(1, trained=False)), **LLAMA)
    assert flops_per_token(frozen, 8192, "palm") is None
