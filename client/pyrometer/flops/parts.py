"""The parts of a model that not every transformer has: experts, windows, compressed attention, recurrent layers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Experts:
    """The routed feed-forward layers of a mixture of experts.

    Attributes:
        count: Experts per layer.
        active: Experts a token is routed to.
        ffn: Width of one expert.
        shared_ffn: Total width of the experts that every token visits.
        dense_layers: Layers with an ordinary feed-forward instead (DeepSeek's first three).
        biases: Parameters of one expert beside its matrices (gpt-oss).
    """

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0
    biases: int = 0


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA), in the names of DeepSeek-V2, arXiv 2405.04434 section 2.1.

    Attributes:
        q_rank: Rank of the compressed queries, 0 where queries are not compressed.
        kv_rank: Rank of the compressed keys and values.
        nope_dim: Head width without position.
        rope_dim: Head width with rotary position (shared by all heads in the key).
        v_dim: Head width of the values.
    """

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True)
class Window:
    """Layers in which a token attends to the nearest tokens only.

    Attributes:
        size: Tokens that are seen, the token itself included.
        layers: How many layers have it.
        chunked: The sequence is cut into blocks of ``size`` tokens, each of which sees itself only (Llama 4), instead
            of a window that slides.
    """

    size: int
    layers: int
    chunked: bool = False

    def keys(self, sequence: float, *, causal: bool) -> float:
        """Return the keys per token, the mean over a sequence, as MaxText counts them (``maxtext_utils.py``).

        A window that is longer than the sequence sees all of it: ``sequence`` keys, half of them if causal.
        """
        size = min(float(self.size), sequence)
        if self.chunked:
            whole, rest = divmod(sequence, size)
            mean = (whole * size**2 + rest**2) / sequence
            return mean / 2 if causal else mean
        return size - size**2 / (2 * sequence) if causal else size


@dataclass(frozen=True)
class Indexer:
    """The lightning indexer of DeepSeek-V3.2: a small attention over all keys that picks those a token attends to.

    Attributes:
        heads: Its heads.
        head_dim: Width of a head; the key is shared by all heads.
        top_k: Keys it picks. In the shape they are the :class:`Window` of all layers.
    """

    heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True)
class Recurrence:
    """Layers that mix tokens through a state instead of attention: Mamba, gated delta net.

    Attributes:
        layers: How many layers have it.
        weights: Weights of one layer's matrices.
        state_flops: Forward FLOPs per token and layer of what has no matrix: convolution, update and read of the state.
    """

    layers: int
    weights: int
    state_flops: int
