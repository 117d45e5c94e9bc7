"""The decoder of every family, in Flax NNX, as an `Architecture` describes it.

There is one decoder instead of Tunix's model for each family. Tunix's models ignore the rotary base or its scaling
(Qwen 3, Llama 3), take slots for positions in sliding windows (Gemma 2), compute only in the type of the weights
(Llama, Gemma), and cannot be rematerialised with Flax 0.12.8. The decoder has the interface of Tunix's models:
`model(tokens, positions, cache, attention_mask) -> (logits, cache)`, and a `config`. Names are those of a Hugging Face
directory, and an adapter's A and B are the matrices that PEFT stores.

The common beginning of several rows is computed once. A `Prefix` holds the keys and values of B texts. Each of the N =
B × R rows continues a text, and the R rows of a text lie side by side. Rows attend to the prefix without copies of
their own. In layers of linear attention each row begins with the state after its text. Gradients flow through both. If
the rows are known when their texts are read, both go through the layers together (`read_groups`).

Axes: B rows (N if they continue a prefix), T tokens given, S tokens attended to (T, or the slots of the cache), P
tokens of a prefix, D hidden, K key-value heads, H width of a head, V words.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from agent_tunix.policy.architecture import Architecture, LayerKind
from agent_tunix.policy.mesh import TENSOR, divide, row_parts
from agent_tunix.policy.network.attention import Groups, RowMask, wide
from agent_tunix.policy.network.deltanet import JoinedRows, LinearState, repeat_rows
from agent_tunix.policy.network.experts import ExpertLoad
from agent_tunix.policy.network.layers import DecoderLayer
from agent_tunix.policy.network.norms import RMSNorm
from agent_tunix.policy.network.projection import Projection, Quantization
from agent_tunix.policy.network.rotation import Angles, rotation

Cache = dict[str, Any]


class Prefix(NamedTuple):
    """The state of B texts in the decoder, for rows that continue them.

    Attributes:
        layers: Keys and values of each layer, [B, K, P, H]; the state of a layer with linear attention.
        positions: [B, P], position of each token in its text.
        mask: [B, P], True where there is a token.
    """

    layers: Any
    positions: Int[Array, "B P"]
    mask: Bool[Array, "B P"]


class Decoder(nnx.Module):
    """A decoder: tokens in, logits out.

    Attributes:
        config: The architecture.
        dtype: Type of the computation. Norms, rotations, the softmax and logits are float32.
        remat: True if each layer recomputes its activations in the backward pass.
        mesh: Mesh of the weights; None to follow the input.
    """

    def __init__(
        self,
        config: Architecture,
        *,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
        quantization: Quantization | None = None,
    ) -> None:
        """Create a decoder with random weights. Under `nnx.eval_shape` it has only shapes.

        Args:
            config: The architecture.
            dtype: Type of the computation.
            param_dtype: Type of the weights.
            rngs: Keys of the random weights.
            quantization: Quantisation of the layers' projections; None for none. Embeddings, head and norms are never
                quantised.
        """
        self.config = config
        self.dtype = dtype
        self.remat = False
        self.mesh: jax.sharding.Mesh | None = None
        kinds: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        few_bits: dict[str, Any] = {"quantization": quantization, **kinds}
        self.embed_tokens = nnx.Embed(
            config.vocab_size, config.hidden_size, embedding_init=_sharded("tp", "fsdp"), **kinds
        )
        if config.layer_embedding_size:
            sizes = config.hidden_size, config.num_layers * config.layer_embedding_size
            self.embed_tokens_per_layer = nnx.Embed(
                config.vocab_size, sizes[1], embedding_init=_sharded("tp", "fsdp"), **kinds
            )
            self.per_layer_model_projection = Projection(*sizes, ("fsdp", "tp"), **kinds)
            self.per_layer_projection_norm = RMSNorm(config.layer_embedding_size, config, **kinds)
        self.layers = nnx.List([DecoderLayer(config, n, few_bits, **kinds) for n in range(config.num_layers)])
        self.norm = RMSNorm(config.hidden_size, config, **kinds)
        self.lm_head = (
            None
            if config.tied_embeddings
            else Projection(config.hidden_size, config.vocab_size, ("fsdp", "tp"), **kinds)
        )

    def __call__(
        self,
        input_tokens: Int[Array, "B T"],
        positions: Int[Array, "B T"],
        cache: Cache | None,
        attention_mask: Bool[Array, "B T S"],
        *,
        prefix: Prefix | None = None,
        output_hidden: bool = False,
    ) -> tuple[Float[Array, "B T V"] | Float[Array, "B T D"], Cache | None]:
        """Return logits in float32, and the cache with these tokens added.

        Args:
            input_tokens: Ids.
            positions: Position of each token in its own text, from 0. Padding may have any.
            cache: Cache from `init_cache` or an earlier call; None to let the tokens see only one another.
            attention_mask: Tokens that each token may see, causality included. This method applies sliding windows, by
                positions. A token that may not see itself is padding.
            prefix: Prefix that the rows continue. Its texts come before everything that `attention_mask` covers. A
                cache was made for the same prefix.
            output_hidden: True to return normed hidden states instead of logits; `project` turns them into logits.
        """
        hidden, cache, _ = self._read(input_tokens, positions, cache, attention_mask, prefix)
        return (hidden if output_hidden else self.project(hidden)), cache

    def _read(
        self,
        input_tokens: Int[Array, "B T"],
        positions: Int[Array, "B T"],
        cache: Cache | None,
        attention_mask: Bool[Array, "B T S"],
        prefix: Prefix | None,
        counted: Bool[Array, "B T"] | None = None,
        *,
        whole_rows: bool = False,
    ) -> tuple[Float[Array, "B T D"], Cache | None, ExpertLoad | None]:
        """Return normed hidden states, the cache, and the load of experts by the tokens to be counted.

        With `whole_rows`, each token sees all earlier tokens of its row, as `attention_mask` says, and only `prefix`
        comes before the rows.
        """
        x = self._embed(input_tokens)
        embedded = self._embed_for_layers(input_tokens, x)
        key_positions = positions = positions.astype(jnp.int32)
        slot: jax.Array | int = 0
        if cache is not None:
            slot = cache["length"][0]
            key_positions = jax.lax.dynamic_update_slice_in_dim(cache["positions"], positions, slot, axis=1)
        kinds = set(self.config.layer_kinds)
        masks: dict[LayerKind, Any] = {
            kind: attention_mask & self._near(kind, positions, key_positions) for kind in kinds
        }
        if whole_rows:
            masks = {kind: RowMask(mask) for kind, mask in masks.items()}
        if "linear_attention" in kinds:
            masks["linear_attention"] = _sees_itself(attention_mask, slot, input_tokens.shape[1])
        prefix_masks = {}
        if prefix is not None:
            prefix_masks = {kind: self._see_text(kind, prefix.mask, prefix.positions, positions) for kind in kinds}
        angles = self._angles(positions)
        layers: list[Any] = []
        loads = []
        for number, (layer, kind) in enumerate(zip(self.layers, self.config.layer_kinds, strict=True)):
            lender = self.config.lender_of(number)
            before = None if cache is None or lender is not None else cache["layers"][number]
            shared = None if prefix is None else prefix.layers[number if lender is None else lender]
            if kind != "linear_attention":
                before = None if before is None else (*before, slot)
                shared = None if shared is None else (*shared, prefix_masks[kind])
            elif before is not None:
                shared = None  # the state of each row began with its prefix
            extra = None if lender is None else layers[lender], embedded[number], counted
            x, after, load = self._run(layer, x, angles[number], masks[kind], before, shared, *extra)
            layers.append(after)
            loads.append(load)
        if cache is not None:
            length = cache["length"] + input_tokens.shape[1]
            cache = {"layers": layers, "positions": key_positions, "length": length}
        return self.norm(x), cache, _stack_loads(loads)

    def project(self, hidden: Float[Array, "... D"]) -> Float[Array, "... V"]:
        """Return the logits of normed hidden states, in float32."""
        return self._finish(_multiply_head(self._head, hidden))

    def project_in_parts(self, num_parts: int) -> Callable[[Float[Array, "S C D"]], Float[Array, "S C V"]]:
        """Return `project` for a loop over chunks of rows that lie in S parts, each on its own devices.

        Each part has its own copy of the matrix, one on each device. The loop therefore does not gather a matrix that
        is divided over fsdp. The gradients of the parts, a matrix for each, are added once after the loop instead of
        after each chunk.
        """
        graphdef, state = nnx.split(self._head)
        copies = []
        for path, leaf in nnx.to_flat_state(state):
            axes = [TENSOR if axis == TENSOR else None for axis in leaf.get_metadata().get("out_sharding") or ()]
            array = leaf.get_value()
            copy = divide(self.mesh, jnp.broadcast_to(array, (num_parts, *array.shape)), *axes)
            copies.append((path, leaf, copy))

        def multiply(arrays: list[jax.Array], hidden_CD: jax.Array) -> jax.Array:
            own = [(path, leaf.replace(array)) for (path, leaf, _), array in zip(copies, arrays, strict=True)]
            return _multiply_head(nnx.merge(graphdef, nnx.from_flat_state(own)), hidden_CD)

        def project(hidden_SCD: Float[Array, "S C D"]) -> Float[Array, "S C V"]:
            return self._finish(jax.vmap(multiply)([copy for _, _, copy in copies], hidden_SCD))

        return project

    @property
    def head_is_frozen(self) -> bool:
        """True if an adapter trains, and the output matrix has none."""

        def has_adapter(module: nnx.Module) -> bool:
            return bool(jax.tree.leaves(nnx.state(module, nnx.LoRAParam)))

        return has_adapter(self) and not has_adapter(self._head)

    @property
    def head_rows(self) -> Float[Array, "V D"] | None:
        """Return the output matrix, one row for each word, in the type of the computation; None if it has columns."""
        return self.embed_tokens.embedding[...].astype(self.dtype) if self.lm_head is None else None

    @property
    def _head(self) -> nnx.Module:
        return self.embed_tokens if self.lm_head is None else self.lm_head

    def _finish(self, logits: Float[Array, "... V"]) -> Float[Array, "... V"]:
        logits = divide(self.mesh, logits.astype(wide(logits.dtype)), *[None] * (logits.ndim - 2), TENSOR)
        cap = self.config.final_softcap
        return logits if cap is None else jnp.tanh(logits / cap) * cap

    def init_cache(self, batch_size: int, cache_size: int, dtype: jnp.dtype, *, prefix: Prefix | None = None) -> Cache:
        """Return an empty cache: keys and values, [B, K, S, H] each, and the positions of its tokens.

        A layer that uses those of another has None. A layer with linear attention has a state for each row: the state
        after the text that the row continues, or the initial state without a prefix.
        """

        def empty(layer: int, kind: LayerKind) -> Any:
            if self.config.is_borrowing(layer):
                return None
            if kind == "linear_attention":
                if prefix is not None:
                    return repeat_rows(prefix.layers[layer], batch_size)
                return self.layers[layer].linear_attn.initial_state(batch_size)
            shape = (batch_size, self.config.num_kv_heads, cache_size, self.config.head_dim_of(layer))
            return tuple(divide(self.mesh, jnp.zeros(shape, dtype), TENSOR) for _ in range(2))

        return {
            "layers": [empty(layer, kind) for layer, kind in enumerate(self.config.layer_kinds)],
            "positions": jnp.zeros((batch_size, cache_size), jnp.int32),
            # The same number for all rows, stored once for each row, so that whole rows of a cache can be repeated.
            "length": jnp.zeros((batch_size,), jnp.int32),
        }

    def read_prefix(self, texts: Int[Array, "B P"], lengths: Int[Array, " B"]) -> tuple[Float[Array, "B D"], Prefix]:
        """Read texts that rows will continue.

        Args:
            texts: Ids, padded on the left.
            lengths: Tokens of each text.

        Returns:
            The normed hidden state after each text's last token, and the prefix.
        """
        B, P = texts.shape
        mask, positions, causal = _read_from_left(lengths, P)
        # A cache gives keys and values the layout in which a loop of decode steps reads them.
        hidden, cache = self(texts, positions, self.init_cache(B, P, self.dtype), causal, output_hidden=True)
        assert cache is not None
        return hidden[:, -1], Prefix(cache["layers"], positions, mask)

    def read_groups(
        self,
        texts: Int[Array, "B P"],
        lengths: Int[Array, " B"],
        rows: Int[Array, "N T"],
        counted: Bool[Array, "N T"] | None = None,
    ) -> tuple[Float[Array, "B D"], Float[Array, "N T D"], ExpertLoad | None]:
        """Read texts and the rows that continue them, each text once.

        The result equals that of `read_prefix` followed by a call with that prefix. But everything in a layer except
        attention is computed for texts and rows together, which means less to compile, and fewer and larger products.

        Args:
            texts: Ids, padded on the left.
            lengths: Tokens of each text.
            rows: Ids, padded on the right; R = N / B for each text, side by side.
            counted: Tokens whose load of experts is returned; None for none.

        Returns:
            The normed hidden state after each text's last token, those of the rows' tokens, and the load of experts in
                each layer that has some.
        """
        (B, P), (N, T) = texts.shape, rows.shape
        if T == 0:
            last, _ = self.read_prefix(texts, lengths)
            return last, jnp.zeros((N, 0, last.shape[-1]), last.dtype), None
        row_positions = jnp.repeat(lengths, N // B)[:, None] + jnp.arange(T)
        own = jnp.broadcast_to(jnp.tril(jnp.ones((T, T), jnp.bool_)), (N, T, T))
        if self.remat or row_parts(self.mesh, B) < row_parts(self.mesh, N):
            # Read together, a recomputed layer would hold texts and rows at once. Rows would also lie on the devices of
            # their texts, although rows alone may be divided over more devices.
            last, prefix = self.read_prefix(texts, lengths)
            hidden, _, load = self._read(rows, row_positions, None, own, prefix, counted, whole_rows=True)
            return last, hidden, load
        mask, text_positions, causal = _read_from_left(lengths, P)
        groups: dict[LayerKind, Any] = {}
        for kind in set(self.config.layer_kinds):
            groups[kind] = Groups(
                causal & self._near(kind, text_positions, text_positions),
                own & self._near(kind, row_positions, row_positions),
                self._see_text(kind, mask, text_positions, row_positions),
            )
        groups["linear_attention"] = JoinedRows(mask, jnp.ones((N, T), jnp.bool_))
        tokens = jnp.concatenate([texts, rows.reshape(B, -1)], axis=1)
        x = self._embed(tokens)
        embedded = self._embed_for_layers(tokens, x)
        angles = self._angles(jnp.concatenate([text_positions, row_positions.reshape(B, -1)], axis=1))
        if counted is not None:
            counted = jnp.pad(counted.reshape(B, -1), ((0, 0), (P, 0)))
        kept: list[Any] = []
        loads = []
        for number, (layer, kind) in enumerate(zip(self.layers, self.config.layer_kinds, strict=True)):
            lender = self.config.lender_of(number)
            extra = None if lender is None else kept[lender], embedded[number], counted
            x, after, load = self._run(layer, x, angles[number], groups[kind], None, None, *extra)
            kept.append(after)
            loads.append(load)
        hidden = self.norm(x[:, P - 1 :])
        return hidden[:, 0], hidden[:, 1:].reshape(N, T, -1), _stack_loads(loads)

    def _embed(self, tokens: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        x = self.embed_tokens(tokens) * jnp.asarray(self.config.embedding_scale, self.dtype)
        # fsdp divides the width of the table and so of the looked-up vectors. From here on it divides rows instead.
        x = divide(self.mesh, x, None, "fsdp", rows=("data",))
        return divide(self.mesh, x)

    def _embed_for_layers(
        self, tokens: Int[Array, "B T"], x: Float[Array, "B T D"]
    ) -> list[Float[Array, "B T E"] | None]:
        """Return each layer's own embeddings of the tokens; None for every layer if the family has none.

        They are the mean of two parts, times √2: an embedding of the token, and a projection of the common embedding.
        """
        count, size = self.config.num_layers, self.config.layer_embedding_size
        if not size:
            return [None] * count
        own = self.embed_tokens_per_layer(tokens) * jnp.asarray(size**0.5, self.dtype)
        common = self.per_layer_model_projection(x) * jnp.asarray(self.config.hidden_size**-0.5, self.dtype)
        common = self.per_layer_projection_norm(common.reshape(*tokens.shape, count, size))
        both = divide(self.mesh, (common + own.reshape(common.shape)) * jnp.asarray(0.5**0.5, self.dtype))
        return [both[:, :, layer] for layer in range(count)]

    def _angles(self, positions: Int[Array, "B T"]) -> list[Angles | None]:
        """Return the angles for each layer; None for one without rotary embedding."""
        config = self.config
        widths = {
            kind: config.head_dim_of(config.layer_kinds.index(kind))
            for kind in set(config.layer_kinds) & set(config.rope)
        }
        angles = {kind: rotation(config.rope[kind], width, positions) for kind, width in widths.items()}
        return [
            None if number in config.unrotated_layers else angles.get(kind)
            for number, kind in enumerate(config.layer_kinds)
        ]

    def _run(
        self, layer: nnx.Module, x: Float[Array, "B T D"], *args: Any
    ) -> tuple[Float[Array, "B T D"], Any, ExpertLoad | None]:
        """Run a layer. Return its output, its keys and values or state for a cache, and the load of experts."""
        run = jax.checkpoint(_run_layer) if self.remat else _run_layer
        x, after, load = run(*nnx.split(layer), x, *args)
        return divide(self.mesh, x), after, load

    def _near(
        self, kind: LayerKind, positions_BT: Int[Array, "B T"], key_positions_BS: Int[Array, "B S"]
    ) -> Bool[Array, "B T S"] | bool:
        """Return a mask of the keys within the window of a kind of layer, or True if it sees all."""
        if kind != "sliding_attention":
            return True
        assert self.config.window is not None
        return positions_BT[:, :, None] - key_positions_BS[:, None, :] < self.config.window

    def _see_text(
        self,
        kind: LayerKind,
        mask_BP: Bool[Array, "B P"],
        text_positions_BP: Int[Array, "B P"],
        positions_NT: Int[Array, "N T"],
    ) -> Bool[Array, "B R T P"]:
        """Return, for each token of a row, the mask of its text that it may see; R and T are 1 if all are equal."""
        (B, P), (N, T) = mask_BP.shape, positions_NT.shape
        near = self._near(kind, positions_NT.reshape(B, -1), text_positions_BP)
        if near is True:
            return mask_BP[:, None, None, :]
        return (mask_BP[:, None, :] & near).reshape(B, N // B, T, P)


def _read_from_left(
    lengths_B: Int[Array, " B"], num_slots: int
) -> tuple[Bool[Array, "B P"], Int[Array, "B P"], Bool[Array, "B P P"]]:
    """Return the token mask, the positions and the causal mask of texts that are padded on the left."""
    mask = jnp.arange(num_slots) >= num_slots - lengths_B[:, None]
    positions = jnp.maximum(jnp.arange(num_slots) - (num_slots - lengths_B[:, None]), 0).astype(jnp.int32)
    return mask, positions, jnp.tril(jnp.ones((num_slots, num_slots), jnp.bool_)) & mask[:, None, :]


def _sees_itself(mask: Bool[Array, "B T S"], slot: jax.Array | int, num_tokens: int) -> Bool[Array, "B T"]:
    """Return True at each token, from a slot on, that may see itself. Padding may not."""
    own = jax.lax.dynamic_slice_in_dim(mask, slot, num_tokens, axis=2)
    return jnp.asarray(jnp.diagonal(own, axis1=1, axis2=2))


def map_layers(of_slots: Callable[..., Any], of_rows: Callable[..., Any], layers: Any, *others: Any) -> Any:
    """Apply a function to all keys and values of caches, and another one to all states, which have no slots."""

    def apply(layer: Any, *rest: Any) -> Any:
        return jax.tree.map(of_rows if isinstance(layer, LinearState) else of_slots, layer, *rest)

    return jax.tree.map(apply, layers, *others, is_leaf=lambda layer: isinstance(layer, LinearState))


def grow_cache(cache: Cache, cache_size: int) -> Cache:
    """Return the cache with empty slots added at its end."""
    more = cache_size - cache["positions"].shape[1]

    def grow(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, 0), (0, 0), (0, more), (0, 0)))

    return {
        "layers": map_layers(grow, lambda x: x, cache["layers"]),
        "positions": jnp.pad(cache["positions"], ((0, 0), (0, more))),
        "length": cache["length"],
    }


def _stack_loads(loads: list[ExpertLoad | None]) -> ExpertLoad | None:
    """Return the loads of all layers that have one, or None."""
    found = [load for load in loads if load is not None]
    return jax.tree.map(lambda *sums: jnp.stack(sums), *found) if found else None


def _multiply_head(head: nnx.Module, hidden: Float[Array, "... D"]) -> Float[Array, "... V"]:
    logits: jax.Array = head.attend(hidden) if isinstance(head, nnx.Embed) else head(hidden)
    return logits


def _sharded(*axes: str) -> Any:
    """Return an initializer of small random weights that records their mesh axes."""
    return nnx.with_partitioning(jax.nn.initializers.normal(0.02), axes)


@jax.jit
def _run_layer(graphdef: Any, state: Any, *args: Any) -> Any:
    """Run a layer as a function, which is traced once for all layers that differ only in their weights.

    With `jax.checkpoint` it recomputes its activations; `nnx.remat` fails with Flax 0.12.8.
    """
    module: Any = nnx.merge(graphdef, state)
    return module(*args)
