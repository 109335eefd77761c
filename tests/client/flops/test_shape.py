from __future__ import annotations

from typing import Any

import pytest

from pyrometer.flops import Experts, LatentAttention, Shape

SMALL: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "ffn": 256}


def test_grouped_queries_shrink_keys_and_values_only() -> None:
    full, grouped = Shape(**SMALL), Shape(**SMALL, kv_heads=1)
    assert full.parameters - grouped.parameters == 2 * 2 * 64 * 16 * 3
    assert full.attention_width == grouped.attention_width == 2 * 64


def test_a_head_may_be_wider_than_its_share_of_the_width() -> None:
    assert Shape(**SMALL, head_dim=32).attention_width == 2 * 4 * 32


def test_tied_embeddings_count_once_as_parameters_and_once_as_a_product() -> None:
    free, tied = Shape(**SMALL), Shape(**SMALL, tied=True)
    assert free.parameters - tied.parameters == 64 * 100
    assert free.active_parameters == tied.active_parameters


def test_a_gated_feed_forward_has_a_third_matrix() -> None:
    assert Shape(**SMALL).layer_weights - Shape(**SMALL, gated=False).layer_weights == 2 * 64 * 256


def test_of_the_experts_all_are_parameters_and_the_active_ones_are_used() -> None:
    shape = Shape(**SMALL, experts=Experts(count=8, active=2, ffn=32, shared_ffn=16, dense_layers=1))
    dense_layer, expert, shared, router = 3 * 64 * 256, 3 * 64 * 32, 3 * 64 * 16, 64 * 8
    attention = 2 * 4 * 64 * 64
    assert shape.layer_weights == attention + dense_layer + 2 * expert + shared + router
    assert shape.parameters_in_layers - shape.norm_weights - shape.layer_weights == 6 * expert


def test_latent_attention_without_compressed_queries() -> None:
    latent = LatentAttention(q_rank=0, kv_rank=32, nope_dim=16, rope_dim=8, v_dim=16)
    shape = Shape(**(SMALL | {"layers": 1, "ffn": 0}), latent=latent)
    assert shape.layer_weights == 64 * 4 * 24 + 64 * 40 + 32 * 4 * 32 + 4 * 16 * 64
    assert shape.attention_width == 4 * (24 + 16)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"heads": 3}, "hidden 64 is not a multiple of 3 heads"),
        ({"kv_heads": 3}, "4 heads is not a multiple of 3"),
        ({"experts": Experts(2, 4, 8)}, "4 of 2 experts"),
    ],
)
def test_a_shape_that_no_model_has_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(**(SMALL | wrong))
