"""The mapping between the tensors of a Hugging Face directory and the weights of the decoder; loads no JAX.

A file's tensor and a model's weight have the same numbers. The matrix of a projection is transposed: PyTorch stores
[out, in], and the decoder multiplies by [in, out].
"""

from dataclasses import dataclass

from agent_tunix.policy.architecture import Architecture

# Of quantised weights: bits of a code, and the maximum of neighbouring inputs that share a scale.
CODE_BITS = {"int8": 8, "nf4": 4}
_BLOCK = 64

WeightPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the files and its place in the decoder.

    Attributes:
        name: Name without the prefix in the files: `layers.0.mlp.up_proj.weight`.
        shape: Shape in the files.
        path: Path of the weight in the decoder's state.
    """

    name: str
    shape: tuple[int, ...]
    path: WeightPath

    @property
    def transposed(self) -> bool:
        """True if the weight is the transpose of the tensor."""
        return self.path[-1] == "kernel"


def list_tensors(architecture: Architecture) -> list[Tensor]:
    """Return every tensor of a directory of this architecture, in the order of the model."""
    a = architecture
    queries, keys = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    hidden, inner = a.hidden_size, a.intermediate_size
    attention = {
        "self_attn.q_proj": ((1 + a.attention_gate) * queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
    }
    mlp = {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    norms = {"post_attention_layernorm": hidden}
    if a.input_norms:
        norms["input_layernorm"] = hidden
    if a.output_norms:
        norms["post_feedforward_layernorm"] = hidden
    if a.input_norms and a.output_norms:
        norms["pre_feedforward_layernorm"] = hidden
    qk_norms: dict[str, int] = {}
    if a.joint_qk_norm:
        qk_norms = {"self_attn.q_norm": queries, "self_attn.k_norm": keys}
    elif a.qk_norm:
        qk_norms = {"self_attn.q_norm": a.head_dim, "self_attn.k_norm": a.head_dim}
    biases = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj") if a.qkv_bias else ()

    tensors = [Tensor("embed_tokens.weight", (a.vocab_size, hidden), ("embed_tokens", "embedding"))]
    for layer, kind in enumerate(a.layer_kinds):
        is_linear = kind == "linear_attention"
        matrices = (_delta_net_matrices(a) if is_linear else attention) | mlp
        of_layer: list[tuple[str, tuple[int, ...], str]] = [
            *((f"{name}.weight", shape, "kernel") for name, shape in matrices.items()),
            *((f"{name}.bias", matrices[name][:1], "bias") for name in biases if not is_linear),
            *((f"{name}.weight", (size,), "weight") for name, size in norms.items()),
        ]
        if is_linear:
            of_layer += _delta_net_vectors(a)
        else:
            of_layer += [(f"{name}.weight", (size,), "weight") for name, size in qk_norms.items()]
        for name, shape, leaf in of_layer:
            module = name.rpartition(".")[0].split(".")
            tensors.append(Tensor(f"layers.{layer}.{name}", shape, ("layers", layer, *module, leaf)))
    tensors.append(Tensor("norm.weight", (hidden,), ("norm", "weight")))
    if not a.tied_embeddings:
        tensors.append(Tensor("lm_head.weight", (a.vocab_size, hidden), ("lm_head", "kernel")))
    return tensors


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


def _delta_net_vectors(a: Architecture) -> list[tuple[str, tuple[int, ...], str]]:
    """Return name, shape and leaf of the other tensors of a layer's linear attention."""
    assert a.delta_net is not None
    sizes = a.delta_net
    return [
        ("linear_attn.conv1d.weight", (sizes.conv_channels, 1, sizes.conv_width), "weight"),
        ("linear_attn.dt_bias", (sizes.value_heads,), "dt_bias"),
        ("linear_attn.A_log", (sizes.value_heads,), "A_log"),
        ("linear_attn.norm.weight", (sizes.value_dim,), "weight"),
    ]


def block_size(inputs: int) -> int:
    """Return the number of inputs that share a scale: the largest divisor up to 64.

    It does not depend on the mesh, so that quantised values do not either.
    """
    return next(size for size in range(min(_BLOCK, inputs), 0, -1) if inputs % size == 0)
