"""The features of the decoder, in one vocabulary for all families; `families` reads them from a `config.json`."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["full_attention", "sliding_attention", "linear_attention"]


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding (https://arxiv.org/abs/2104.09864) and the scaling of its frequencies.

    Attributes:
        theta: Base of the wavelengths.
        kind: `default`; `linear` divides all frequencies by `factor`; `llama3` and `yarn`
            (https://arxiv.org/abs/2309.00071) divide only those of long wavelengths; `proportional` rotates only the
            pairs of short wavelengths (Gemma 4).
        factor: Divisor of frequencies, at least 1.
        low_freq_factor: llama3, yarn: frequencies with wavelengths above `original_length / low_freq_factor` are
            divided in full.
        high_freq_factor: llama3, yarn: frequencies with wavelengths below `original_length / high_freq_factor` do not
            change.
        original_length: llama3, yarn: context length before scaling, in tokens.
        magnitude: yarn: factor of rotated queries and keys.
        rotated_share: proportional: share of a head's pairs that rotate. default: share of a head's dimensions that
            rotate, counted from the first (Qwen 3.5).
    """

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn", "proportional"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192
    magnitude: float = 1.0
    rotated_share: float = 1.0


# Tokens that a layer of linear attention computes together.
DELTA_CHUNK = 64


@dataclass(frozen=True)
class DeltaNetSizes:
    """The sizes of gated DeltaNet layers (`network/deltanet.py`).

    Attributes:
        key_heads: Heads of queries and keys.
        value_heads: Heads of values and of the state; a multiple of `key_heads`.
        key_dim: Width of a query or key.
        value_dim: Width of a value.
        conv_width: Tokens that the causal convolution sees, the current one included.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int

    @property
    def conv_channels(self) -> int:
        """The numbers of a token that the convolution reads: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer.

    Attributes:
        model_type: The family, as in `config.json`.
        vocab_size: Rows of the embedding.
        hidden_size: Width of the residual stream.
        intermediate_size: Width inside the MLP.
        num_layers: Decoder layers.
        num_heads: Query heads.
        num_kv_heads: Key and value heads; divides `num_heads`.
        head_dim: Width of a head; even.
        norm_eps: Added to the mean square in every norm.
        tied_embeddings: True if the output projection is the embedding.
        activation: Activation of the MLP's gate.
        query_scale: Factor of queries before the dot product.
        layer_kinds: Kind of each layer: it sees all earlier positions, a window of them, or a recurrent state.
        rope: Rotary embedding by kind of layer. A kind without an entry has none.
        unrotated_layers: Numbers of the layers without rotary embedding, from 0 (SmolLM 3).
        window: Positions that a sliding layer sees, its own included.
        delta_net: Sizes of the layers of linear attention; None if there are none.
        attention_gate: True if attention's output is multiplied by a gate, the second half of each head of `q_proj`
            (Qwen 3.5).
        qkv_bias: True if query, key and value projections have a bias.
        qk_norm: True if queries and keys are normalised, head by head or all heads together.
        joint_qk_norm: True if those norms are over all heads together (OLMo 3).
        input_norms: True if the inputs of attention and MLP are normalised: all families except OLMo 3.
        output_norms: True if the outputs of attention and MLP are normalised (Gemma 2 and 3, OLMo 3).
        norm_offset: Added to the weight of every norm outside DeltaNet: 1 for Gemma and Qwen 3.5.
        embedding_scale: Factor of embeddings.
        attention_softcap: Bound of attention logits through tanh; None for no bound.
        final_softcap: Bound of output logits through tanh; None for no bound.
        global_head_dim: Width of a head in layers that see all positions; None for `head_dim` (Gemma 4).
        value_norm: True if values are normalised, without a weight (Gemma 4).
        num_borrowing_layers: Number of last layers without keys and values of their own (Gemma 4); see `lender_of`.
        wide_borrowing_mlps: True if the MLPs of those layers are twice as wide.
        layer_embedding_size: Width of the embedding that each layer has for each token; 0 for none (Gemma 4).
        layer_scalars: True if the output of each layer is multiplied by a number of its own (Gemma 4).
        num_experts: Experts of a layer; 0 if all layers have an MLP.
        num_experts_per_token: Experts that each token goes through.
        moe_intermediate_size: Width inside an expert.
        norm_topk_prob: True if the weights of a token's experts are divided by their sum.
        dense_layers: Numbers of the layers with an MLP among those with experts, from 0.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    tied_embeddings: bool
    activation: Literal["silu", "gelu_tanh"]
    query_scale: float
    layer_kinds: tuple[LayerKind, ...]
    rope: Mapping[LayerKind, Rope]
    unrotated_layers: tuple[int, ...] = ()
    window: int | None = None
    delta_net: DeltaNetSizes | None = None
    attention_gate: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    joint_qk_norm: bool = False
    input_norms: bool = True
    output_norms: bool = False
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    attention_softcap: float | None = None
    final_softcap: float | None = None
    global_head_dim: int | None = None
    value_norm: bool = False
    num_borrowing_layers: int = 0
    wide_borrowing_mlps: bool = False
    layer_embedding_size: int = 0
    layer_scalars: bool = False
    num_experts: int = 0
    num_experts_per_token: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = False
    dense_layers: tuple[int, ...] = ()

    def head_dim_of(self, layer: int) -> int:
        """Return the width of a head in a layer, counted from 0."""
        is_global = self.layer_kinds[layer] == "full_attention"
        return self.global_head_dim if is_global and self.global_head_dim is not None else self.head_dim

    def lender_of(self, layer: int) -> int | None:
        """Return the layer whose keys and values `layer` uses, the last of its kind that has some; None for its own."""
        if not self.is_borrowing(layer):
            return None
        own = range(self.num_layers - self.num_borrowing_layers)
        return max(other for other in own if self.layer_kinds[other] == self.layer_kinds[layer])

    def is_borrowing(self, layer: int) -> bool:
        """Return True if a layer has no keys and values of its own."""
        return self.num_layers - self.num_borrowing_layers <= layer < self.num_layers

    def lends(self, layer: int) -> bool:
        """Return True if later layers use the keys and values of a layer."""
        return layer in self._lenders

    @functools.cached_property
    def _lenders(self) -> frozenset[int | None]:
        kinds: dict[LayerKind, int] = {kind: layer for layer, kind in enumerate(self.layer_kinds)}
        return frozenset(self.lender_of(layer) for layer in kinds.values())

    def mlp_size_of(self, layer: int) -> int:
        """Return the width inside the MLP of a layer."""
        return self.intermediate_size * (2 if self.wide_borrowing_mlps and self.is_borrowing(layer) else 1)

    def has_experts(self, layer: int) -> bool:
        """Return True if a layer, counted from 0, has a mixture of experts instead of an MLP."""
        return self.num_experts > 0 and layer not in self.dense_layers

    @property
    def num_linear_layers(self) -> int:
        """The number of layers with a recurrent state instead of keys and values."""
        return self.layer_kinds.count("linear_attention")

    @property
    def num_attention_layers(self) -> int:
        """The number of layers with keys and values."""
        return self.num_layers - self.num_linear_layers
