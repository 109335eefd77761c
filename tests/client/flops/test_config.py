"""The files are written by hand after the published ones: the keys a shape needs."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.flops_figures import models

from pyrometer.flops import model_flops, shape_of_config
from pyrometer.flops.__main__ import main

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "vocab_size": 128256, "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": False,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257,
    "n_inner": None,
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "vocab_size": 129280, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
LLAMA4 = {"model_type": "llama4_text", "num_local_experts": 16, "num_experts_per_tok": 1}
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
    "sliding_window": 4096, "use_sliding_window": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions"),
    [(LLAMA, 8.030), (GPT2, 0.1243), (MIXTRAL, 46.70), (DEEPSEEK, 671.0), (QWEN_MOE, 30.5)],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_a_file_gives_the_published_number_of_parameters(config: dict[str, Any], billions: float) -> None:
    assert shape_of_config(config).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "rwkv"}, "unknown model_type rwkv; known are"),
        ({"model_type": None}, "unknown model_type None; known are"),
        ({"num_hidden_layers": None}, "num_hidden_layers or n_layer is missing"),
        ({"hidden_size": "4096"}, "hidden_size is '4096', not a whole number"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"sliding_window": 4096}, "sliding_window in a llama is not supported"),
        ({"model_type": "mixtral"}, "n_routed_experts or num_local_experts or num_experts is missing"),
        ({"model_type": "gemma2"}, "head_dim is missing"),
        ({"model_type": "gemma2", "head_dim": 256}, "sliding_window is missing"),
        ({"model_type": "mistral", "sliding_window": 64, "layer_types": ["rotated"] * 32}, "attention of kind rotated"),
        ({"model_type": "mistral", "sliding_window": 64, "layer_types": ["full_attention"]}, "each of 32 layers"),
        (
            {"model_type": "llama4_text", "no_rope_layers": "all", "num_local_experts": 16, "num_experts_per_tok": 1},
            "no_rope_layers is not a list of whole numbers",
        ),
        ({"model_type": "opt", "word_embed_proj_dim": 512, "max_position_embeddings": 2048}, "this variant of opt"),
        ({"model_type": "deepseek_v32", "n_routed_experts": 8, "num_experts_per_tok": 2}, "index_n_heads is missing"),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma9"}}, "unknown model_type gemma9"),
        ({"num_hidden_layers": 10**9, "model_type": "qwen2"}, "no model has that many"),
    ],
)
def test_what_is_not_known_is_never_guessed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shape_of_config(LLAMA | change)


PUBLISHED = {model.config["model_type"]: model.config for model in models()}


@given(st.data())
def test_any_file_is_a_shape_or_one_line(data: st.DataObject) -> None:
    config = PUBLISHED[data.draw(st.sampled_from(sorted(PUBLISHED)))]
    broken = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2) | st.just({"a": 1})
    change = data.draw(st.dictionaries(st.sampled_from(sorted(config)[:-1]), broken, max_size=3))
    try:
        shape = shape_of_config(config | change)
        said = repr(shape) + str(model_flops(shape, 4096))
    except ValueError as error:
        said = str(error)
    assert "\n" not in said


class TestCommand:
    @pytest.fixture
    def config(self, tmp_path: Path) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(LLAMA))
        return path

    def test_prints_every_convention_and_the_utilisation(
        self, config: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        speed = ["--tokens-per-second", "35008", "--gpus", "8", "--peak-flops", "989e12"]
        assert main([str(config), "--sequence", "8192", "--recompute", "full", *speed]) == 0
        assert capsys.readouterr().out == (
            "8.030e9 parameters, 7.505e9 active per token; GFLOP per token:\n"
            "convention        model   hardware     MFU     HFU\n"
            "palm             57.914     76.168   25.6%   33.7%\n"
            "llm_foundry      61.066     81.422   27.0%   36.0%\n"
            "korthikanti      57.913     76.166   25.6%   33.7%\n"
            "megatron         51.470     67.577   22.8%   29.9%\n"
            "bloom_hw         57.125     76.166   25.3%   33.7%\n"
            "hf               45.030     63.283   19.9%   28.0%\n"
        )

    @pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"model_type": "llama"}', "\x00"])
    def test_a_file_it_cannot_use_is_one_line(
        self, config: Path, content: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config.write_text(content)
        assert main([str(config), "--sequence", "8192"]) == 2
        assert capsys.readouterr().err.count("\n") == 1

    @pytest.mark.parametrize("flag", ["--gpus=0", "--sequence=-1", "--tokens-per-second=nan", "--peak-flops=x"])
    def test_a_number_that_cannot_be_is_refused(
        self, config: Path, flag: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            main([str(config), "--sequence=8192", flag])
        assert raised.value.code == 2
        assert f"argument {flag.partition('=')[0]}" in capsys.readouterr().err

    def test_a_missing_file_is_named_with_the_reason(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(tmp_path / "absent.json"), "--sequence", "8192"]) == 2
        assert capsys.readouterr().err == f"pyrometer.flops: {tmp_path}/absent.json: No such file or directory\n"

    def test_the_version_is_that_of_the_installed_distribution(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["--version"])
        assert raised.value.code == 0
        version = importlib.metadata.version("pyrometer")
        assert capsys.readouterr().out.startswith(f"python -m pyrometer.flops, version {version} (python 3.")

    def test_the_client_itself_never_imports_it(self) -> None:
        code = "import sys, pyrometer; sys.exit('pyrometer.flops' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
