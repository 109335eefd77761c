"""Shapes from ``config.json`` and FLOPs against the figures in ``published``."""

from __future__ import annotations

import pytest
from tools.flops_figures import Model, Speed, maxtext, models, number, speeds

from pyrometer import flops
from pyrometer.flops import shape_of_config

BY_NAME = {model.name: model for model in models()}


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_a_file_gives_every_parameter_of_the_model(model: Model) -> None:
    assert shape_of_config(model.config).parameters == model.parameters


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_the_authors_figure_is_the_same_but_for_its_rounding(model: Model) -> None:
    """The coarsest are GPT-2's "1.5B" for 1.558 and Falcon's "40B" for 41.3."""
    assert model.parameters == pytest.approx(number(model.published), rel=0.04)


@pytest.mark.parametrize("model", [each for each in models() if each.published_active], ids=lambda model: model.name)
def test_active_parameters_are_those_the_authors_print(model: Model) -> None:
    """Some count the input embedding as active, some (gpt-oss) don't; Llama 4's 17B include the images' part."""
    shape, published = shape_of_config(model.config), number(model.published_active)
    assert any(
        count == pytest.approx(published, rel=0.03) for count in (shape.active_parameters, shape.all_active_parameters)
    )


@pytest.mark.parametrize("row", speeds(), ids=lambda row: f"{row.model} at {row.sequence} on {row.gpus} {row.gpu}")
def test_llm_foundrys_table_to_its_digits(row: Speed) -> None:
    """Its tokens per second lack their fraction, which is all that the tolerance allows for."""
    shape = row.shape
    assert shape.parameters == row.parameters
    model = flops.model_flops(shape, row.sequence, "llm_foundry")
    hardware = flops.hardware_flops(shape, row.sequence, "llm_foundry", row.recompute)
    for printed, per_token in ((row.mfu, model), (row.hfu, hardware)):
        low, high = (
            100 * flops.mfu(per_token, row.tokens_per_second + more, row.gpus, row.peak) for more in (0.0, 1.0)
        )
        assert low - 0.00501 <= printed <= high + 0.00501
    assert model * row.tokens_per_second / row.gpus / 1e12 == pytest.approx(row.teraflops + 0.5, abs=0.51)


def test_llm_foundrys_table_is_whole() -> None:
    assert len(speeds()) == 216
    assert len({(row.model, row.sequence) for row in speeds()}) == 61


def test_palm_leaves_out_learned_positions_and_biases() -> None:
    """They are up to 3.6 % of what llm-foundry counts: of its smallest model with its longest sequence."""
    gaps = {
        (row.model, row.sequence): 1
        - flops.model_flops(row.shape, row.sequence, "palm") / flops.model_flops(row.shape, row.sequence, "llm_foundry")
        for row in speeds()
    }
    assert max(gaps, key=gaps.__getitem__) == ("125m", 65536)
    assert max(gaps.values()) == pytest.approx(0.0365, abs=5e-5)
    assert min(gaps.values()) > 0


@pytest.mark.parametrize(("name", "sequence", "per_token"), maxtext())
def test_maxtext_counts_the_same(name: str, sequence: int, per_token: float) -> None:
    shape = shape_of_config(BY_NAME[name].config)
    # MaxText has no gate in Qwen3-Next's attention: 12 layers, 2048 x 16 heads of 256.
    gate = 6 * 12 * 2048 * 16 * 256 if shape.gated_attention else 0
    assert flops.model_flops(shape, sequence, "megatron") - gate == pytest.approx(per_token, abs=1e5)
