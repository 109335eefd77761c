"""The shape of a transformer: what its parameters and its matrix products follow from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Experts:
    """The routed feed-forward layers of a mixture of experts.

    Attributes:
        count: experts per layer.
        active: experts a token is routed to.
        ffn: width of one expert.
        shared_ffn: width of all experts that every token visits, together.
        dense_layers: layers that have an ordinary feed-forward instead (DeepSeek's first three).
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
        q_rank: rank of the compressed queries, 0 where queries are not compressed.
        kv_rank: rank of the compressed keys and values.
        nope_dim: head width without position, rope_dim: with rotary position (shared by all heads in the key).
        v_dim: head width of the values.
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
        layers, hidden, heads, vocab: as everywhere; vocab is the padded one, since that is what is multiplied.
        ffn: width of the (dense) feed-forward layer.
        kv_heads: key and value heads (GQA), 0 for as many as heads.
        head_dim: width of a head, 0 for hidden / heads.
        gated: three feed-forward matrices (SwiGLU, GeGLU) instead of two.
        tied: the output projection is the input embedding.
        positions: learned position embeddings, 0 where positions are rotary or none.
        experts: mixture of experts, None for a dense model.
        latent: multi-head latent attention, None for the ordinary kind.

    Raises:
        ValueError: a number that no model has.
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
                raise ValueError(f"{name} is {getattr(self, name)}: a model has at least one")
        if not self.head_dim and not self.latent and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is no multiple of {self.heads} heads: give head_dim")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads can't share {self.kv_heads} key and value heads")
        experts = self.experts
        if experts and not (0 < experts.active <= experts.count and 0 <= experts.dense_layers <= self.layers):
            raise ValueError(f"{experts.active} of {experts.count} experts, {experts.dense_layers} dense layers")

    @property
    def attention_width(self) -> int:
        """Multiplications per token, key and layer: heads x (width of a key + width of a value)."""
        if self.latent:
            return self.heads * (self.latent.nope_dim + self.latent.rope_dim + self.latent.v_dim)
        return 2 * self.heads * self._head_dim

    @property
    def layer_weights(self) -> int:
        """Weights of all layers' matrices that a token is multiplied with: of the experts the active ones only."""
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
        """All parameters but embeddings and output projection; every expert counts."""
        return self.layers * self._attention_weights + self._feed_forward_weights(everything=True) + self.norm_weights

    @property
    def active_parameters(self) -> int:
        """Parameters a token meets: without the input embedding, with the output projection and the active experts."""
        return self.layer_weights + self.norm_weights + self.head_weights

    @property
    def _head_dim(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def _attention_weights(self) -> int:
        """Of one layer: queries, keys, values and the output projection."""
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
        """Of all layers; of the experts all, or those a token is routed to."""
        per_width = self.hidden * (3 if self.gated else 2)
        experts = self.experts
        if experts is None:
            return self.layers * per_width * self.ffn
        routed = experts.count if everything else experts.active
        width = routed * experts.ffn + experts.shared_ffn
        router = self.hidden * experts.count
        sparse = (self.layers - experts.dense_layers) * (per_width * width + router)
        return sparse + experts.dense_layers * per_width * self.ffn
