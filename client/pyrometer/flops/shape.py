"""The shape of a language model, and the counts of its parameters and weights that FLOPs follow from."""

from __future__ import annotations

from dataclasses import dataclass

from pyrometer.flops.parts import Experts, Indexer, LatentAttention, Recurrence, Window


@dataclass(frozen=True)
class Shape:
    """A decoder-only language model.

    Attributes:
        layers: Number of layers.
        hidden: Width of the residual stream.
        heads: Attention heads per layer, 0 where no layer has attention.
        vocab: Vocabulary size, padded, since that is what is multiplied.
        ffn: Width of the (dense) feed-forward layer, 0 where layers have none.
        kv_heads: Key and value heads (GQA), 0 for as many as heads.
        head_dim: Width of a head, 0 for hidden / heads.
        gated: Three feed-forward matrices (SwiGLU, GeGLU) instead of two.
        tied: The output projection is the input embedding.
        positions: Learned position embeddings, 0 where positions are rotary or none.
        experts: Mixture of experts, None for a dense model.
        latent: Multi-head latent attention, None for the ordinary kind.
        window: Layers that see the nearest tokens only, None where all see all.
        indexer: That picks the keys of each token, None where there is none.
        recurrence: Layers without attention, None where all have it.
        gated_attention: Queries come with a gate of the same width for the attention's output (Qwen3-Next).
        norms: Norms of the full width, None for two a layer and the last one.
        other_parameters: That are in no matrix: biases, norms of queries and keys, convolutions.

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
    window: Window | None = None
    indexer: Indexer | None = None
    recurrence: Recurrence | None = None
    gated_attention: bool = False
    norms: int | None = None
    other_parameters: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "vocab", *(("heads",) if self.attention_layers else ())):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        self._check_heads()
        self._check_layers()

    def _check_heads(self) -> None:
        if self.heads and not self.head_dim and not self.latent and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of {self.heads} heads: give head_dim")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads is not a multiple of {self.kv_heads} key and value heads")

    def _check_layers(self) -> None:
        experts, window = self.experts, self.window
        if experts and not (0 < experts.active <= experts.count and 0 <= experts.dense_layers <= self.layers):
            raise ValueError(
                f"{experts.active} of {experts.count} experts active, "
                f"{experts.dense_layers} of {self.layers} layers dense: no such mixture"
            )
        if self.attention_layers < 0:
            raise ValueError(f"more recurrent layers than the {self.layers} layers of the model")
        if window and not (window.size > 0 and 0 <= window.layers <= self.attention_layers):
            raise ValueError(f"a window of {window.size} tokens in {window.layers} layers: no such attention")

    @property
    def attention_layers(self) -> int:
        """Layers with attention."""
        return self.layers - (self.recurrence.layers if self.recurrence else 0)

    @property
    def attention_width(self) -> int:
        """Multiplications per token, key and layer: heads x (width of a key + width of a value)."""
        if self.latent:
            return self.heads * (self.latent.nope_dim + self.latent.rope_dim + self.latent.v_dim)
        return 2 * self.heads * self._head_dim

    def attention_flops(self, sequence: float, *, causal: bool) -> float:
        """Return the forward FLOPs per token of what has no weights: attention products, recurrent states.

        Args:
            sequence: Length in tokens.
            causal: Count the keys up to each token, half of the square, instead of all of them.
        """
        keys = sequence / 2 if causal else sequence
        windowed = self.window.layers if self.window else 0
        seen = (self.attention_layers - windowed) * keys
        if self.window:
            seen += windowed * self.window.keys(sequence, causal=causal)
        flops = 2 * self.attention_width * seen
        if self.indexer:  # per key a product of each head, and its weighted sum over the heads
            flops += 2 * self.indexer.heads * (self.indexer.head_dim + 1) * self.attention_layers * keys
        return flops + (self.recurrence.layers * self.recurrence.state_flops if self.recurrence else 0)

    @property
    def layer_weights(self) -> int:
        """Weights of all layers' matrices that a token is multiplied with, the active experts only."""
        return self._mixer_weights + self._feed_forward_weights(everything=False)

    @property
    def head_weights(self) -> int:
        """Weights of the output projection, tied or not."""
        return self.hidden * self.vocab

    @property
    def norm_weights(self) -> int:
        """Weights of the norms of the full width, without biases."""
        return (2 * self.layers + 1 if self.norms is None else self.norms) * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        embeddings = self.head_weights * (1 if self.tied else 2) + self.positions * self.hidden
        return embeddings + self.parameters_in_layers

    @property
    def parameters_in_layers(self) -> int:
        """All parameters except embeddings and output projection, every expert included."""
        experts = self.experts
        biases = self._sparse_layers * experts.count * experts.biases if experts else 0
        matrices = self._mixer_weights + self._feed_forward_weights(everything=True)
        return matrices + self.norm_weights + self.other_parameters + biases

    @property
    def active_parameters(self) -> int:
        """Parameters that multiply a token: output projection and active experts, not the input embedding or biases."""
        return self.layer_weights + self.norm_weights + self.head_weights

    @property
    def all_active_parameters(self) -> int:
        """All parameters but those of the experts that a token is not routed to."""
        idle = self.experts.count - self.experts.active if self.experts else 0
        unused = self._feed_forward_weights(everything=True) - self._feed_forward_weights(everything=False)
        return self.parameters - unused - (self._sparse_layers * idle * self.experts.biases if self.experts else 0)

    @property
    def _head_dim(self) -> int:
        return self.head_dim or (self.hidden // self.heads if self.heads else 0)

    @property
    def _sparse_layers(self) -> int:
        return self.layers - self.experts.dense_layers if self.experts else 0

    @property
    def _mixer_weights(self) -> int:
        """Weights of what mixes tokens in all layers: attention or recurrence."""
        recurrent = self.recurrence.layers * self.recurrence.weights if self.recurrence else 0
        return self.attention_layers * self._attention_weights + recurrent

    @property
    def _attention_weights(self) -> int:
        """Weights of one layer's queries, keys, values, output projection, and of what comes with them."""
        if self.latent:
            return self._latent_weights(self.latent)
        kv_heads = self.kv_heads or self.heads
        gate = self.heads if self.gated_attention else 0
        return self.hidden * self._head_dim * (2 * self.heads + 2 * kv_heads + gate)

    def _latent_weights(self, latent: LatentAttention) -> int:
        query = self.heads * (latent.nope_dim + latent.rope_dim)
        queries = latent.q_rank * (self.hidden + query) if latent.q_rank else self.hidden * query
        down = self.hidden * (latent.kv_rank + latent.rope_dim)
        up = latent.kv_rank * self.heads * (latent.nope_dim + latent.v_dim)
        return queries + down + up + self.heads * latent.v_dim * self.hidden + self._indexer_weights(latent)

    def _indexer_weights(self, latent: LatentAttention) -> int:
        """Weights of the indexer's queries, shared key, and weights of its heads."""
        indexer = self.indexer
        if indexer is None:
            return 0
        queries = (latent.q_rank or self.hidden) * indexer.heads * indexer.head_dim
        return queries + self.hidden * (indexer.head_dim + indexer.heads)

    def _feed_forward_weights(self, *, everything: bool) -> int:
        """Return the feed-forward weights of all layers, with all experts or those a token is routed to."""
        per_width = self.hidden * (3 if self.gated else 2)
        experts = self.experts
        if experts is None:
            return self.layers * per_width * self.ffn
        routed = experts.count if everything else experts.active
        width = routed * experts.ffn + experts.shared_ffn
        sparse = self._sparse_layers * (per_width * width + self.hidden * experts.count)
        return sparse + experts.dense_layers * per_width * self.ffn
