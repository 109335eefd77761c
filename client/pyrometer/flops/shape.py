"""The shape of a transformer, and the counts of its parameters and weights that FLOPs follow from."""

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
    """

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0


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
class Shape:
    """A decoder-only transformer.

    Attributes:
        layers: Number of layers.
        hidden: Width of the residual stream.
        heads: Attention heads per layer.
        vocab: Vocabulary size, padded, since that is what is multiplied.
        ffn: Width of the (dense) feed-forward layer.
        kv_heads: Key and value heads (GQA), 0 for as many as heads.
        head_dim: Width of a head, 0 for hidden / heads.
        gated: Three feed-forward matrices (SwiGLU, GeGLU) instead of two.
        tied: The output projection is the input embedding.
        positions: Learned position embeddings, 0 where positions are rotary or none.
        experts: Mixture of experts, None for a dense model.
        latent: Multi-head latent attention, None for the ordinary kind.

    Raises:
        ValueError: the numbers don't make a model.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    ffn: int
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = True
    tied: bool = False
    positions: int = 0
    experts: Experts | None = None
    latent: LatentAttention | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "vocab"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not self.head_dim and not self.latent and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of {self.heads} heads: give head_dim")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads is not a multiple of {self.kv_heads} key and value heads")
        experts = self.experts
        if experts and not (0 < experts.active <= experts.count and 0 <= experts.dense_layers <= self.layers):
            raise ValueError(
                f"{experts.active} of {experts.count} experts active, "
                f"{experts.dense_layers} of {self.layers} layers dense: no such mixture"
            )

    @property
    def attention_width(self) -> int:
        """Multiplications per token, key and layer: heads x (width of a key + width of a value)."""
        if self.latent:
            return self.heads * (self.latent.nope_dim + self.latent.rope_dim + self.latent.v_dim)
        return 2 * self.heads * self._head_dim

    @property
    def layer_weights(self) -> int:
        """Weights of all layers' matrices that a token is multiplied with, the active experts only."""
        return self.layers * self._attention_weights + self._feed_forward_weights(everything=False)

    @property
    def head_weights(self) -> int:
        """Weights of the output projection, tied or not."""
        return self.hidden * self.vocab

    @property
    def norm_weights(self) -> int:
        """Weights of the norms: two a layer and the last one, without biases."""
        return (2 * self.layers + 1) * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, biases left out (under 0.1 % where a model has them)."""
        embeddings = self.head_weights * (1 if self.tied else 2) + self.positions * self.hidden
        return embeddings + self.parameters_in_layers

    @property
    def parameters_in_layers(self) -> int:
        """All parameters except embeddings and output projection, every expert included."""
        return self.layers * self._attention_weights + self._feed_forward_weights(everything=True) + self.norm_weights

    @property
    def active_parameters(self) -> int:
        """Parameters used for one token: output projection and active experts included, input embedding not."""
        return self.layer_weights + self.norm_weights + self.head_weights

    @property
    def _head_dim(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def _attention_weights(self) -> int:
        """Weights of one layer's queries, keys, values and output projection."""
        if self.latent:
            return self._latent_weights(self.latent)
        kv_heads = self.kv_heads or self.heads
        return 2 * self.hidden * self._head_dim * (self.heads + kv_heads)

    def _latent_weights(self, latent: LatentAttention) -> int:
        query = self.heads * (latent.nope_dim + latent.rope_dim)
        queries = latent.q_rank * (self.hidden + query) if latent.q_rank else self.hidden * query
        down = self.hidden * (latent.kv_rank + latent.rope_dim)
        up = latent.kv_rank * self.heads * (latent.nope_dim + latent.v_dim)
        return queries + down + up + self.heads * latent.v_dim * self.hidden

    def _feed_forward_weights(self, *, everything: bool) -> int:
        """Return the feed-forward weights of all layers, with all experts or those a token is routed to."""
        per_width = self.hidden * (3 if self.gated else 2)
        experts = self.experts
        if experts is None:
            return self.layers * per_width * self.ffn
        routed = experts.count if everything else experts.active
        width = routed * experts.ffn + experts.shared_ffn
        router = self.hidden * experts.count
        sparse = (self.layers - experts.dense_layers) * (per_width * width + router)
        return sparse + experts.dense_layers * per_width * self.ffn
