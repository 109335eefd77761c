"""Published figures, reproduced: each test names the source of its numbers. Tolerances are the published rounding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrometer import flops
from pyrometer.flops import Experts, LatentAttention, Shape

LLAMA_3_8B = Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
LLAMA_3_405B = Shape(layers=126, hidden=16384, heads=128, kv_heads=8, ffn=53248, vocab=128256)
SMOLLM3 = Shape(layers=36, hidden=2048, heads=16, kv_heads=4, ffn=11008, vocab=128256, tied=True)
MIXTRAL = Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000, experts=Experts(8, 2, 14336))
DEEPSEEK_V3 = Shape(
    layers=61, hidden=7168, heads=128, vocab=129280, ffn=18432,
    experts=Experts(count=256, active=8, ffn=2048, shared_ffn=2048, dense_layers=3),
    latent=LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128),
)  # fmt: skip


def gpt(layers: int, hidden: int, heads: int, vocab: int, positions: int = 0) -> Shape:
    """The shape of GPT-2, GPT-3, BLOOM: a feed-forward of four times the width in two matrices, tied embeddings."""
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab, "positions": positions}
    return Shape(ffn=4 * hidden, gated=False, tied=True, **sizes)


BLOOM = gpt(70, 14336, 112, 250880)
GPT2 = gpt(12, 768, 12, 50257, positions=1024)
A100, H100, TPU_V4 = 312e12, 989.4e12, 275e12


class TestBloom:
    """BLOOM's log at iteration 85376: 2048 sequences of 2048 at 19.561 a second on 384 A100, ``TFLOPs: 149.77``."""

    per_second_and_gpu = 19.561 * 2048 / 384

    def teraflops(self, per_token: float) -> float:
        return per_token * self.per_second_and_gpu / 1e12

    def test_its_own_line_gives_its_149_77_teraflops(self) -> None:
        reported = flops.reported_flops(BLOOM, 2048, "bloom_hw", "full")
        assert self.teraflops(reported) == pytest.approx(149.77, abs=0.005)

    @pytest.mark.parametrize(
        ("convention", "teraflops", "share"),
        [("bloom_hw", 112.32, 36.0), ("korthikanti", 112.89, 36.2), ("megatron", 111.60, 35.8)],
    )
    def test_its_model_flops_are_a_quarter_less(self, convention: str, teraflops: float, share: float) -> None:
        model = self.teraflops(flops.model_flops(BLOOM, 2048, convention))
        assert model == pytest.approx(teraflops, abs=0.005)
        assert 100 * model * 1e12 / A100 == pytest.approx(share, abs=0.05)

    def test_its_hardware_utilisation_is_48_percent(self) -> None:
        hardware = flops.hardware_flops(BLOOM, 2048, "bloom_hw", "full")
        assert flops.mfu(hardware, 19.561 * 2048, 384, A100) == pytest.approx(0.480, abs=0.0005)

    def test_what_it_printed_becomes_model_flops_of_another_convention(self) -> None:
        converted = flops.convert(149.77, BLOOM, 2048, source="bloom_hw", target="megatron", recompute="full")
        assert converted == pytest.approx(111.60, abs=0.005)

    def test_the_general_count_is_the_published_formula(self) -> None:
        layers, hidden, sequence, vocab = 70, 14336, 2048, 250880
        published = 24 * 4 * layers * hidden**2 * (1 + sequence / (6 * hidden) + vocab / (16 * layers * hidden))
        assert flops.reported_flops(BLOOM, sequence, "bloom_hw", "full") == pytest.approx(published, rel=1e-12)


@pytest.mark.parametrize(("with_attention", "mfu"), [(True, 46.2), (False, 45.7)])
def test_palm_540b(with_attention: bool, mfu: float) -> None:
    """PaLM appendix B: 238.3k tokens a second on 6144 TPU v4; the parameter count is the paper's."""
    attention = 12 * 118 * 48 * 256 * 2048 if with_attention else 0
    assert 100 * flops.mfu(6 * 540.35e9 + attention, 238.3e3, 6144, TPU_V4) == pytest.approx(mfu, abs=0.06)


def test_palm_counts_attention_as_its_paper_does() -> None:
    """12 L a d s, with a head width that is not hidden / heads: PaLM's own 48 heads of 256 at a width of 18432."""
    shape = Shape(layers=118, hidden=18432, heads=48, head_dim=256, vocab=256000, ffn=4 * 18432)
    attention = flops.model_flops(shape, 2048, "palm") - 6 * shape.active_parameters
    assert attention == 12 * 118 * 48 * 256 * 2048


def test_megatron_turing_530b_as_palm_counts_it() -> None:
    """PaLM's table: MT-NLG at 65.43k tokens a second on 2240 A100 is 30.2 %."""
    shape = gpt(105, 20480, 128, 51200)
    per_token = flops.model_flops(shape, 2048, "palm")
    assert 100 * flops.mfu(per_token, 65.43e3, 2240, A100) == pytest.approx(30.2, abs=0.06)


@pytest.mark.parametrize(
    ("shape", "rate", "gpus", "mfu", "hfu"),
    [
        (gpt(48, 6144, 64, 51200), 4 * 2048 / 1.10, 8, 41.5, 43.7),
        (gpt(96, 12288, 96, 51200), 64 * 2048 / 13.75, 64, 51.4, 52.8),
    ],
)
def test_korthikanti_table_5(shape: Shape, rate: float, gpus: int, mfu: float, hfu: float) -> None:
    """arXiv 2205.05198 table 5, with selective recompute. Their step times are rounded: 1.10 s is 0.5 % wide."""
    model = flops.mfu(flops.model_flops(shape, 2048, "korthikanti"), rate, gpus, A100)
    hardware = flops.mfu(flops.hardware_flops(shape, 2048, "korthikanti", "selective"), rate, gpus, A100)
    assert 100 * model == pytest.approx(mfu, rel=0.005)
    assert 100 * hardware == pytest.approx(hfu, rel=0.005)


@pytest.mark.parametrize(
    ("gpus", "batch", "seconds", "mfu"),
    [
        (256, 768, 40.0, 53.0),
        (512, 768, 21.2, 49.9),
        (3072, 6144, 29.02, 48.7),
        (6144, 6144, 14.78, 47.8),
        (8192, 6144, 12.24, 43.3),
        (12288, 6144, 8.57, 41.2),
    ],
)
def test_megascale_table_2_megatron_rows(gpus: int, batch: int, seconds: float, mfu: float) -> None:
    """MegaScale (arXiv 2402.15627) table 2: 175B at 2048 tokens; the vocabulary isn't given, 51200 to 64000 all fit."""
    rate = batch * 2048 / seconds
    for vocab in (51200, 64000):
        per_token = flops.model_flops(gpt(96, 12288, 96, vocab), 2048, "korthikanti")
        assert 100 * flops.mfu(per_token, rate, gpus, A100) == pytest.approx(mfu, rel=0.003)


def test_gpt_2_of_nanogpt_to_the_last_flop() -> None:
    """nanoGPT's transformer_sizing notebook: 124337664 parameters; 100 sequences in 0.755 s on one A100 are 37.14 %."""
    assert GPT2.parameters == 124337664
    assert flops.model_flops(GPT2, 1024, "palm") * 1024 == 875_062_886_400
    assert flops.model_flops(GPT2, 1024, "korthikanti") * 1024 == 874_944_921_600
    share = flops.mfu(flops.model_flops(GPT2, 1024, "korthikanti"), 100 * 1024 / 0.755, 1, A100)
    assert 100 * share == pytest.approx(37.14, abs=0.005)


def test_llama_3_8b_of_torchtitan() -> None:
    """torchtitan's log: ``tps: 4,376  tflops: 253.41  mfu: 25.62%`` at 8192 tokens; tps is rounded to 1 in 4,376."""
    per_token = flops.model_flops(LLAMA_3_8B, 8192, "palm")
    assert per_token * 4376 / 1e12 == pytest.approx(253.41, rel=0.5 / 4376)
    assert 100 * flops.mfu(per_token, 4376, 1, 989e12) == pytest.approx(25.62, abs=0.01)


def test_llama_3_8b_of_nemo() -> None:
    """NeMo's log: batch 128 of 8192 on 8 GPUs in 3.684 s, ``TFLOPS_per_GPU: 1.831e+03`` (causal)."""
    per_token = flops.model_flops(LLAMA_3_8B, 8192)
    assert per_token * 128 * 8192 / 3.684 / 8 / 1e12 == pytest.approx(1831, abs=0.5)


@pytest.mark.parametrize(("teraflops", "mfu"), [(430, 43), (400, 41), (380, 38)])
def test_llama_3_405b_table_4(teraflops: float, mfu: float) -> None:
    """Llama 3 (arXiv 2407.21783) table 4: TFLOP/s per GPU and its MFU, in whole percent."""
    assert 100 * flops.mfu(teraflops * 1e12, 1, 1, H100) == pytest.approx(mfu, abs=0.7)


def test_llama_3_405b_parameters_and_long_context() -> None:
    """405.85e9 parameters; 2625 GFLOP a token full, 2524 causal at 8k; at 131k attention is 57 % (causal 40 %)."""
    assert LLAMA_3_405B.parameters / 1e9 == pytest.approx(405.85, abs=0.005)
    assert flops.model_flops(LLAMA_3_405B, 8192, "korthikanti") / 1e9 == pytest.approx(2625, abs=0.5)
    assert flops.model_flops(LLAMA_3_405B, 8192, "megatron") / 1e9 == pytest.approx(2524, abs=0.5)
    weights = 6 * (LLAMA_3_405B.layer_weights + LLAMA_3_405B.head_weights)
    full, causal = (flops.model_flops(LLAMA_3_405B, 131072, name) for name in ("korthikanti", "megatron"))
    assert round(100 * (1 - weights / full)) == 57
    assert round(100 * (1 - weights / causal)) == 40


@pytest.mark.parametrize(("rate", "full", "causal"), [(13.5e3, 30.1, 27.7), (14e3, 31.2, 28.7)])
def test_smollm3_playbook(rate: float, full: float, causal: float) -> None:
    """SmolLM3: 3.075e9 parameters, 13.5 to 14 thousand tokens a second on an H100 are "around 30 % MFU"."""
    assert SMOLLM3.parameters / 1e9 == pytest.approx(3.075, abs=0.0005)
    for convention, share in (("korthikanti", full), ("megatron", causal)):
        assert 100 * flops.mfu(flops.model_flops(SMOLLM3, 4096, convention), rate, 1, H100) == pytest.approx(
            share, abs=0.06
        )


@pytest.mark.parametrize(
    ("tokens", "parameters", "gpus", "teraflops", "days"),
    [(300e9, 175e9, 1024, 140, 34), (450e9, 1008e9, 3072, 163, 84)],
)
def test_days_of_training_of_the_sc21_paper(
    tokens: float, parameters: float, gpus: int, teraflops: float, days: float
) -> None:
    """arXiv 2104.04473 section 5.1: 8 FLOPs per token and parameter (full recompute), GPT-3 in 34 days, 1T in 84."""
    seconds = flops.mfu(8 * parameters, tokens, gpus, teraflops * 1e12)  # that all tokens in one second would be
    assert seconds / 86400 == pytest.approx(days, rel=0.005)


def test_mixtral_counts_the_experts_a_token_visits() -> None:
    """At 4096 tokens: 280.2 GFLOP for 6 N, 76.5 for what is active, 79.7 causal, 82.9 full; 46.7e9 parameters."""
    assert MIXTRAL.parameters == 46_702_792_704
    assert 6 * (MIXTRAL.layer_weights + MIXTRAL.head_weights) / 1e9 == pytest.approx(76.5, abs=0.05)
    assert flops.model_flops(MIXTRAL, 4096) / 1e9 == pytest.approx(79.7, abs=0.05)
    assert flops.model_flops(MIXTRAL, 4096, "korthikanti") / 1e9 == pytest.approx(82.9, abs=0.05)
    assert flops.model_flops(MIXTRAL, 4096, "hf") / flops.model_flops(MIXTRAL, 4096) > 3  # all experts, as it does


def test_deepseek_v3_has_its_671_billion_parameters_of_which_37_are_active() -> None:
    """arXiv 2412.19437: 671B in all, 37B for each token (the input embedding counted in)."""
    assert DEEPSEEK_V3.parameters / 1e9 == pytest.approx(671.03, abs=0.005)
    assert (DEEPSEEK_V3.active_parameters + DEEPSEEK_V3.head_weights) / 1e9 == pytest.approx(37.5, abs=0.1)


def test_hugging_face_leaves_out_attention_and_a_tied_projection() -> None:
    assert flops.model_flops(LLAMA_3_8B, 8192, "hf") == 6 * (LLAMA_3_8B.parameters - LLAMA_3_8B.head_weights)
    assert flops.model_flops(SMOLLM3, 4096, "hf") == 6 * (SMOLLM3.parameters - SMOLLM3.head_weights)
    assert flops.model_flops(GPT2, 1024, "hf") == flops.model_flops(GPT2, 64, "hf")


def test_a_batch_of_unequal_sequences_counts_each_at_its_own_length() -> None:
    one = flops.batch_flops(LLAMA_3_8B, [8192])
    halves = flops.batch_flops(LLAMA_3_8B, [4096, 4096])
    assert one == 8192 * flops.model_flops(LLAMA_3_8B, 8192)
    assert one - halves == pytest.approx(8192 * 3 * LLAMA_3_8B.layers * LLAMA_3_8B.attention_width * 4096)


shapes = st.builds(
    Shape,
    layers=st.integers(1, 200), hidden=st.sampled_from([768, 4096, 16384]), heads=st.sampled_from([8, 64, 128]),
    vocab=st.integers(1, 300_000), ffn=st.integers(1, 60_000), kv_heads=st.sampled_from([0, 1, 8]),
    gated=st.booleans(), tied=st.booleans(), experts=st.none() | st.just(Experts(8, 2, 1024)),
)  # fmt: skip


@given(shapes, st.integers(1, 200_000), st.sampled_from(sorted(flops.CONVENTIONS)))
def test_recompute_only_adds_and_more_of_it_adds_more(shape: Shape, sequence: int, convention: str) -> None:
    model = flops.model_flops(shape, sequence, convention)
    none = flops.hardware_flops(shape, sequence, convention)
    full = flops.hardware_flops(shape, sequence, convention, "full")
    assert 0 < model == none < full
    assert none <= flops.hardware_flops(shape, sequence, convention, "selective")
    if convention != "hf":  # which leaves out the attention product, and so knows too little of the whole
        assert full <= 4 / 3 * model * (1 + 1e-12)


@given(shapes, st.integers(1, 200_000), st.sampled_from(sorted(flops.CONVENTIONS)), st.sampled_from(flops.RECOMPUTE))
def test_a_figure_converted_to_a_convention_of_model_flops_and_back_is_the_same(
    shape: Shape, sequence: int, source: str, recompute: str
) -> None:
    there = flops.convert(0.4, shape, sequence, source=source, target="megatron", recompute=recompute)
    scale = flops.reported_flops(shape, sequence, source, recompute) / flops.model_flops(shape, sequence, "megatron")
    assert there * scale == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flops.model_flops(GPT2, 1024, "mine"), "convention 'mine' is not one of palm"),
        (lambda: flops.model_flops(GPT2, 0), "sequence is 0"),
        (lambda: flops.hardware_flops(GPT2, 1024, recompute="some"), "recompute 'some' is not one of none"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
