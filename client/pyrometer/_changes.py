"""Changes of what the description says: tokens and FLOPs of one step, and settings that hold from a step on."""

from __future__ import annotations

from pyrometer import ring
from pyrometer._cuda import is_on_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pyrometer._names import Names
    from pyrometer._step import Step

SETTINGS = frozenset(("recompute", "flops_per_token", "tokens_per_step", "global_batch_size", "sequence_length"))
# Values above these are rejected as garbage; the sums in the header could not hold them.
MAX_TOKENS, MAX_FLOPS = 1 << 53, 1e30


class Changes:
    """Sets what holds from the step under way on, and lets tokens per step follow batch size and length.

    None of these may be a step late, as a loss may: a tensor on a GPU is reported and left out.
    """

    __slots__ = ("_batch_size", "_names", "_sequence_length", "_step")

    def __init__(self, step: Step, names: Names, description: dict[str, Any]) -> None:
        self._step = step
        self._names = names
        self._batch_size: int = description.get("global_batch_size") or 0
        self._sequence_length: int = description.get("sequence_length") or 0

    def override(self, tokens: Any, flops: Any) -> None:
        """Set tokens and FLOPs of the step under way, unless they are None or garbage."""
        step = self._step
        try:
            if tokens is not None and self._is_at_hand("tokens", tokens) and 0 <= tokens < MAX_TOKENS:
                step.slots[step.offset + ring.TOKENS] = int(tokens)
                step.flags |= ring.FLAG_TOKENS
        except Exception:  # noqa: BLE001  a tensor of several elements raises RuntimeError, others whatever they like
            pass
        try:
            if flops is not None and self._is_at_hand("flops", flops) and 0 <= flops < MAX_FLOPS:
                step.doubles[step.offset + ring.FLOPS] = flops
                step.flags |= ring.FLAG_FLOPS
        except Exception:  # noqa: BLE001  as above
            pass

    def is_skip(self, skipped: Any) -> bool:
        """Return whether the step under way was left out by the optimizer."""
        try:
            return self._is_at_hand("skipped", skipped) and bool(skipped)
        except Exception:  # noqa: BLE001  as in override
            return False

    def _is_at_hand(self, name: str, value: object) -> bool:
        """Return whether a value can be read without waiting for the GPU; report one that can't."""
        if type(value) is int or not is_on_device(value):
            return True
        self._names.dropped(f"{name}, a tensor on the GPU,", "the client never waits for the GPU: pass a Python number")
        return False

    def set(self, name: str, value: Any) -> None:
        """Set one of SETTINGS, unless it is None or garbage.

        Raises:
            Exception: the value can't be converted; whatever it raises.
        """
        step = self._step
        if value is None or not self._is_at_hand(name, value):
            return
        if name == "recompute":
            step.recompute_index = ring.RECOMPUTE.index(value)
            step.add_persistent_flag(ring.FLAG_RECOMPUTE)
        elif name == "flops_per_token" and 0 < value < MAX_FLOPS:
            step.set_flops_per_token(float(value))
        elif name == "tokens_per_step" and 0 < value < MAX_TOKENS:
            step.set_tokens(int(value))
        elif name == "global_batch_size" and 0 < value < MAX_TOKENS:
            step.global_batch_size = int(value)
            step.add_persistent_flag(ring.FLAG_GLOBAL_BATCH_SIZE)
            self._rescale_tokens()
        elif name == "sequence_length" and 0 < value < MAX_TOKENS:
            step.sequence_length = int(value)
            step.add_persistent_flag(ring.FLAG_SEQUENCE_LENGTH)
            self._rescale_tokens()

    def _rescale_tokens(self) -> None:
        """Scale the tokens per step with batch size and length; else take their product, where both are known."""
        step, first_batch, first_length = self._step, self._batch_size, self._sequence_length
        batch, length = step.global_batch_size or first_batch, step.sequence_length or first_length
        scalable = (first_batch or not step.global_batch_size) and (first_length or not step.sequence_length)
        if step.default_tokens and scalable:
            first_size = (first_batch or 1) * (first_length or 1)
            step.set_tokens(step.default_tokens * (batch or 1) * (length or 1) // first_size)
        elif batch and length:
            step.set_tokens(batch * length)
