"""Read a model's shape from its ``config.json``, the format of Hugging Face's hub and most trainers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyrometer.flops.families import FAMILIES
from pyrometer.flops.fields import Fields
from pyrometer.flops.shape import Shape
from pyrometer.flops.special import SPECIAL
from pyrometer.flops.stack import stack

# Models of text and images, and the family of their language part where its section doesn't name it.
_WRAPPERS: Mapping[str, str] = {
    "gemma3": "gemma3_text", "kimi_k25": "kimi_k2", "llama4": "llama4_text", "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_5_vl_text", "qwen2_vl": "qwen2_vl_text",
}  # fmt: skip


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


def has_other_parts(config: Mapping[str, Any]) -> bool:
    """Return whether the model also reads images or sound: only its language part is counted."""
    return any(config.get(name) for name in ("vision_config", "audio_config"))


def shape_of_config(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a parsed ``config.json`` describes; nothing is guessed.

    A model that reads images as well gives the shape of its language part.

    Raises:
        ValueError: the family or the kind of attention is unknown, or a number is missing.
    """
    fields = _language_part(config)
    if fields.family in SPECIAL:
        return SPECIAL[fields.family](fields)
    if fields.family not in FAMILIES:
        families = ", ".join(sorted({*FAMILIES, *SPECIAL, *_WRAPPERS}))
        raise ValueError(f"unknown model_type {fields.family}; known are {families}: use flops.Shape")
    return stack(fields, FAMILIES[fields.family])


def _language_part(config: Mapping[str, Any]) -> Fields:
    """Return the fields of the text model; older files of Qwen2-VL have them beside those of the images."""
    family = str(config.get("model_type", "absent"))
    if family not in _WRAPPERS:
        return Fields(config)
    section = config.get("text_config")
    if isinstance(section, dict):
        return Fields(section, str(section.get("model_type") or _WRAPPERS[family]))
    return Fields(config, _WRAPPERS[family])
