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
    a = architecture
    queries, keys = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    hidden, inner = a.hidden_size, a.intermediate_size
    matrices = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
    }
    mlp = {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    router, inner = {"mlp.gate": (a.num_experts, hidden)}, a.moe_intermediate_size
    of_expert = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    norms = {"post_attention_layernorm": hidden}
    if a.input_norms:
        norms["input_layernorm"] = hidden
    if a.output_norms:
        norms["post_feedforward_layernorm"] = hidden
    if a.input_norms and a.output_norms:
        norms["pre_feedforward_layernorm"] = hidden
    if a.joint_qk_norm:
        norms |= {"self_attn.q_norm": queries, "self_attn.k_norm": keys}
    elif a.qk_norm:
        norms |= {"self_attn.q_norm": a.head_dim, "self_attn.k_norm": a.head_dim}
    biases = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj") if a.qkv_bias else ()

    tensors = [Tensor("embed_tokens.weight", (a.vocab_size, hidden), ("embed_tokens", "embedding"))]
    for layer in range(a.num_layers):
        experts = range(a.num_experts if a.has_experts(layer) else 0)
        of_layer = [
            *((f"{name}.weight", shape, "kernel") for name, shape in (matrices | (router if experts else mlp)).items()),
            *((f"{name}.bias", matrices[name][:1], "bias") for name in biases),
            *((f"{name}.weight", (size,), "weight") for name, size in norms.items()),
        ]
        for name, shape, leaf in of_layer:
            module = name.rpartition(".")[0].split(".")
            tensors.append(Tensor(f"layers.{layer}.{name}", shape, ("layers", layer, *module, leaf)))
        for name, shape in of_expert.items():
            stack = ("layers", layer, "mlp", "experts", name)
            tensors += [Tensor(f"layers.{layer}.mlp.experts.{n}.{name}.weight", shape, (*stack, n)) for n in experts]
    tensors.append(Tensor("norm.weight", (hidden,), ("norm", "weight")))
    if not a.tied_embeddings:
        tensors.append(Tensor("lm_head.weight", (a.vocab_size, hidden), ("lm_head", "kernel")))
    return tensors


def block_size(inputs: int) -> int:
    """Return the number of inputs that share a scale: the largest divisor up to 64.

    It does not depend on the mesh, so that quantised values do not either.
    """
    return next(size for size in range(min(_BLOCK, inputs), 0, -1) if inputs % size == 0)
