"""The mapping between the tensors of a Hugging Face directory and the weights of the decoder; loads no JAX.

A file's tensor and a model's weight have the same numbers. The matrix of a projection is transposed: PyTorch stores
[out, in], and the decoder multiplies by [in, out].
"""

from dataclasses import dataclass

from agent_tunix.policy.architecture import Architecture

# For quantised weights: bits of a code, and the maximum number of neighbouring inputs that share a scale.
CODE_BITS = {"int8": 8, "nf4": 4}
_BLOCK = 64

WeightPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the files and its place in the decoder.

    Attributes:
        name: Name without the prefix in the files: `layers.0.mlp.up_proj.weight`.
        shape: Shape in the files.
        path: Path of the weight in the decoder's state; that of an expert ends with its number in the stack.
    """

    name: str
    shape: tuple[int, ...]
    path: WeightPath

    @property
    def transposed(self) -> bool:
        """True if the weight is the transpose of the tensor."""
        return self.path[-1] == "kernel" or self.of_expert

    @property
    def of_expert(self) -> bool:
        """True if the tensor is a matrix of one expert."""
        return isinstance(self.path[-1], int)


def list_tensors(architecture: Architecture) -> list[Tensor]:
    """Return every tensor of a directory of this architecture, in the order of the model."""
    a, hidden = architecture, architecture.hidden_size
    tensors = [Tensor("embed_tokens.weight", (a.vocab_size, hidden), ("embed_tokens", "embedding"))]
    if size := a.num_layers * a.layer_embedding_size:
        name = "embed_tokens_per_layer"
        tensors += [
            Tensor(f"{name}.weight", (a.vocab_size, size), (name, "embedding")),
            _place("", "per_layer_model_projection.weight", (size, hidden)),
            _place("", "per_layer_projection_norm.weight", (a.layer_embedding_size,)),
        ]
    for layer in range(a.num_layers):
        tensors += _list_layer(a, layer)
    tensors.append(Tensor("norm.weight", (hidden,), ("norm", "weight")))
    if not a.tied_embeddings:
        tensors.append(Tensor("lm_head.weight", (a.vocab_size, hidden), ("lm_head", "kernel")))
    return tensors


def _list_layer(a: Architecture, layer: int) -> list[Tensor]:
    hidden, inner, head = a.hidden_size, a.mlp_size_of(layer), a.head_dim_of(layer)
    queries, keys = a.num_heads * head, a.num_kv_heads * head
    is_linear = a.layer_kinds[layer] == "linear_attention"
    has_keys = not is_linear and not a.is_borrowing(layer)
    matrices = _delta_net_matrices(a) if is_linear else {"self_attn.q_proj": ((1 + a.attention_gate) * queries, hidden)}
    if has_keys:
        matrices |= {"self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden)}
    biases = tuple(matrices) if a.qkv_bias else ()
    if not is_linear:
        matrices["self_attn.o_proj"] = (hidden, queries)
    experts = range(a.num_experts if a.has_experts(layer) else 0)
    if experts:
        matrices["mlp.gate"] = (a.num_experts, hidden)
    else:
        matrices |= {f"mlp.{name}": shape for name, shape in _mlp(hidden, inner).items()}
    norms = {"post_attention_layernorm": hidden}
    if a.input_norms:
        norms["input_layernorm"] = hidden
    if a.output_norms:
        norms["post_feedforward_layernorm"] = hidden
    if a.input_norms and a.output_norms:
        norms["pre_feedforward_layernorm"] = hidden
    if a.qk_norm and not is_linear:
        norms["self_attn.q_norm"] = queries if a.joint_qk_norm else head
        if has_keys:
            norms["self_attn.k_norm"] = keys if a.joint_qk_norm else head
    if size := a.layer_embedding_size:
        matrices |= {"per_layer_input_gate": (size, hidden), "per_layer_projection": (hidden, size)}
        norms["post_per_layer_input_norm"] = hidden
    prefix = f"layers.{layer}."
    return [
        *(_place(prefix, f"{name}.weight", shape) for name, shape in matrices.items()),
        *(_place(prefix, f"{name}.bias", matrices[name][:1]) for name in biases),
        *(_place(prefix, f"{name}.weight", (size,)) for name, size in norms.items()),
        *(_place(prefix, name, shape) for name, shape in (_delta_net_vectors(a) if is_linear else {}).items()),
        *([Tensor(f"{prefix}layer_scalar", (1,), ("layers", layer, "layer_scalar"))] if a.layer_scalars else ()),
        *(
            Tensor(f"{prefix}mlp.experts.{n}.{name}.weight", shape, ("layers", layer, "mlp", "experts", name, n))
            for name, shape in _mlp(hidden, a.moe_intermediate_size).items()
            for n in experts
        ),
    ]


def _mlp(hidden: int, inner: int) -> dict[str, tuple[int, int]]:
    return {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}


def _place(prefix: str, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of a module: a matrix is a kernel, a vector keeps its name."""
    *module, leaf = f"{prefix}{name}".split(".")
    path = [int(part) if part.isdecimal() else part for part in module]
    return Tensor(f"{prefix}{name}", shape, (*path, "kernel" if len(shape) == 2 else leaf))


def _delta_net_matrices(a: Architecture) -> dict[str, tuple[int, int]]:
    assert a.delta_net is not None
    sizes, hidden = a.delta_net, a.hidden_size
    values = sizes.value_heads * sizes.value_dim
    return {
        "linear_attn.in_proj_qkv": (sizes.conv_channels, hidden),
        "linear_attn.in_proj_z": (values, hidden),
        "linear_attn.in_proj_b": (sizes.value_heads, hidden),
        "linear_attn.in_proj_a": (sizes.value_heads, hidden),
        "linear_attn.out_proj": (hidden, values),
    }


def _delta_net_vectors(a: Architecture) -> dict[str, tuple[int, ...]]:
    """Return name → shape of the other tensors of a layer's linear attention."""
    assert a.delta_net is not None
    sizes = a.delta_net
    return {
        "linear_attn.conv1d.weight": (sizes.conv_channels, 1, sizes.conv_width),
        "linear_attn.dt_bias": (sizes.value_heads,),
        "linear_attn.A_log": (sizes.value_heads,),
        "linear_attn.norm.weight": (sizes.value_dim,),
    }


def block_size(inputs: int) -> int:
    """Return the number of inputs that share a scale: the largest divisor up to 64.

    It does not depend on the mesh, so that quantised values do not either.
    """
    return next(size for size in range(min(_BLOCK, inputs), 0, -1) if inputs % size == 0)
