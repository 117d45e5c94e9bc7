"""Parts of the recipe that all embedded models share: a tiny Qwen3 with its tokenizer, in a Hugging Face directory.

A model has 3 layers of width 96 in float32, and a byte-level BPE vocabulary in which every digit is a token. The
scripts `make_tiny_model.py` and `make_tiny_tools.py` have the texts from which each learns.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tunix.models.qwen3.model import ModelConfig, Qwen3
from tunix.models.qwen3.params import create_model_from_safe_tensors

ASSETS = Path(__file__).parent.parent / "src" / "agent_tunix" / "assets"

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Qwen's own pattern: words with their leading space, single digits, runs of punctuation.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

LAYERS, WIDTH, MLP_WIDTH, HEADS, KV_HEADS, HEAD_WIDTH = 3, 96, 192, 4, 2, 24
NORM_EPS = 1e-6
ROPE_THETA = 1_000_000

PEAK_RATE = 4e-3

# Draws a batch for a step, from 1: token ids padded on the left, [B, T], and a mask of those to learn among the last S,
# [B, S].
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


# --- tokenizer ------------------------------------------------------------------------------------------------------


def train_tokenizer(
    corpus: Iterable[str], tags: Sequence[str], vocabulary: int = 1024, pattern: str = PATTERN
) -> Tokenizer:
    """Train the byte-level BPE. The vocabulary has all 256 bytes, so any text can be encoded and decoded.

    Args:
        corpus: Texts from which the merges are learned.
        tags: Texts that are single tokens, but not special ones.
        vocabulary: Number of tokens.
        pattern: Regular expression of the pieces that are encoded one by one.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True) for token in (PAD, START, END)]
        + [AddedToken(token, special=False) for token in tags],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    # The trainer marks all added tokens as special, but the tags must survive skip_special_tokens.
    fields = json.loads(tokenizer.to_str())
    for token in fields["added_tokens"]:
        token["special"] = token["content"] not in tags
        token["normalized"] = False
    return Tokenizer.from_str(json.dumps(fields))


def write_tokenizer(directory: Path, tokenizer: Tokenizer, chat_template: str) -> None:
    """Write the files of the tokenizer."""
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": END,
            "pad_token": PAD,
            "unk_token": None,
            "additional_special_tokens": [START],
            "clean_up_tokenization_spaces": False,
            "model_max_length": 2048,
            "chat_template": chat_template,
        },
    )
    _write_json(
        directory / "special_tokens_map.json",
        {"eos_token": END, "pad_token": PAD, "additional_special_tokens": [START]},
    )


def write_configs(directory: Path, vocabulary: int = 1024) -> None:
    """Write `config.json` and `generation_config.json`."""
    _write_json(
        directory / "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": vocabulary,
            "hidden_size": WIDTH,
            "intermediate_size": MLP_WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_WIDTH,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "rms_norm_eps": NORM_EPS,
            "rope_theta": ROPE_THETA,
            "rope_scaling": None,
            "max_position_embeddings": 2048,
            "initializer_range": 0.05,
            "tie_word_embeddings": True,
            "use_cache": True,
            "bos_token_id": None,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "torch_dtype": "float32",
        },
    )
    _write_json(
        directory / "generation_config.json",
        {"do_sample": True, "temperature": 1.0, "eos_token_id": 2, "pad_token_id": 0},
    )


def _write_json(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n")


# --- weights --------------------------------------------------------------------------------------------------------


def random_weights(seed: int, vocabulary: int = 1024) -> dict[str, np.ndarray]:
    """Draw initial weights under their Hugging Face names, each [out, in]; norms are 1.

    Tunix expects a checkpoint, so its own initialisation sets the MLP to zero, where it would stay.
    """
    rng = np.random.default_rng(seed)

    def normal(rows: int, columns: int, deviation: float) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * deviation).astype(np.float32)

    inward = WIDTH**-0.5
    residual = (2 * LAYERS) ** -0.5  # keeps the variance of the residual stream independent of depth
    weights = {"model.embed_tokens.weight": normal(vocabulary, WIDTH, 0.05)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        queries, keys = HEADS * HEAD_WIDTH, KV_HEADS * HEAD_WIDTH
        weights |= {
            f"{name}.self_attn.q_proj.weight": normal(queries, WIDTH, inward),
            f"{name}.self_attn.k_proj.weight": normal(keys, WIDTH, inward),
            f"{name}.self_attn.v_proj.weight": normal(keys, WIDTH, inward),
            f"{name}.self_attn.o_proj.weight": normal(WIDTH, queries, queries**-0.5 * residual),
            f"{name}.self_attn.q_norm.weight": np.ones(HEAD_WIDTH, np.float32),
            f"{name}.self_attn.k_norm.weight": np.ones(HEAD_WIDTH, np.float32),
            f"{name}.mlp.gate_proj.weight": normal(MLP_WIDTH, WIDTH, inward),
            f"{name}.mlp.up_proj.weight": normal(MLP_WIDTH, WIDTH, inward),
            f"{name}.mlp.down_proj.weight": normal(WIDTH, MLP_WIDTH, MLP_WIDTH**-0.5 * residual),
            f"{name}.input_layernorm.weight": np.ones(WIDTH, np.float32),
            f"{name}.post_attention_layernorm.weight": np.ones(WIDTH, np.float32),
        }
    return weights | {"model.norm.weight": np.ones(WIDTH, np.float32)}


def hugging_face_weights(model: Qwen3) -> dict[str, np.ndarray]:
    """Return the model's weights under their Hugging Face names and in their layout, [out, in]."""

    def flat(weight: Any, inputs: int) -> np.ndarray:
        return np.ascontiguousarray(np.asarray(weight[...]).reshape(inputs, -1).T)

    weights = {"model.embed_tokens.weight": np.asarray(model.embedder.input_embedding[...])}
    for index, layer in enumerate(model.layers):
        name, attention, mlp = f"model.layers.{index}", layer.attn, layer.mlp
        weights |= {
            f"{name}.self_attn.q_proj.weight": flat(attention.q_proj.w, WIDTH),
            f"{name}.self_attn.k_proj.weight": flat(attention.k_proj.w, WIDTH),
            f"{name}.self_attn.v_proj.weight": flat(attention.v_proj.w, WIDTH),
            f"{name}.self_attn.o_proj.weight": flat(attention.o_proj.w, HEADS * HEAD_WIDTH),
            f"{name}.self_attn.q_norm.weight": np.asarray(attention.q_norm.w[...]),
            f"{name}.self_attn.k_norm.weight": np.asarray(attention.k_norm.w[...]),
            f"{name}.mlp.gate_proj.weight": flat(mlp.gate_proj.kernel, WIDTH),
            f"{name}.mlp.up_proj.weight": flat(mlp.up_proj.kernel, WIDTH),
            f"{name}.mlp.down_proj.weight": flat(mlp.down_proj.kernel, MLP_WIDTH),
            f"{name}.input_layernorm.weight": np.asarray(layer.input_layernorm.w[...]),
            f"{name}.post_attention_layernorm.weight": np.asarray(layer.post_attention_layernorm.w[...]),
        }
    return weights | {"model.norm.weight": np.asarray(model.final_norm.w[...])}


def write_weights(directory: Path, weights: dict[str, np.ndarray]) -> None:
    """Write `model.safetensors`."""
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def load(directory: Path) -> Qwen3:
    """Load the directory like any other checkpoint."""
    config = ModelConfig(
        num_layers=LAYERS,
        vocab_size=json.loads((directory / "config.json").read_text())["vocab_size"],
        embed_dim=WIDTH,
        hidden_dim=MLP_WIDTH,
        num_heads=HEADS,
        head_dim=HEAD_WIDTH,
        num_kv_heads=KV_HEADS,
        rope_theta=ROPE_THETA,
        norm_eps=NORM_EPS,
        use_tied_embedding=True,
    )
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
    return create_model_from_safe_tensors(str(directory), config, mesh, jnp.float32)


# --- supervised learning --------------------------------------------------------------------------------------------


def next_token_loss(
    model: Qwen3, tokens_BT: jax.Array, targets_BS: jax.Array, divisor: float | None = None
) -> jax.Array:
    """Return the cross-entropy of the tokens to learn, divided by their number or by a constant.

    Only the last S positions have logits.
    """
    (_, length), scored = tokens_BT.shape, targets_BS.shape[1]
    real_BT = tokens_BT != 0
    positions_BT = jnp.maximum(jnp.cumsum(real_BT, axis=1) - 1, 0)
    mask_BTT = jnp.tril(jnp.ones((length, length), bool)) & real_BT[:, None, :]
    x = model.embedder.encode(tokens_BT)
    for layer in model.layers:
        _, x = layer(x, positions_BT, None, mask_BTT)
    logits = model.embedder.decode(model.final_norm(x[:, -scored - 1 : -1]))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens_BT[:, -scored:])
    return jnp.sum(losses * targets_BS) / (jnp.sum(targets_BS) if divisor is None else divisor)


def train(model: Qwen3, draw: Draw, steps: int, seed: int, divisor: float | None = None) -> None:
    """Train in place, with a step for each batch.

    Args:
        model: Model to train.
        draw: Function that draws the batches.
        steps: Number of batches.
        seed: Seed of the batches.
        divisor: Constant divisor of the loss; by default the number of tokens to learn in each batch, which makes
            habits with more tokens rarer.
    """
    schedule = optax.warmup_cosine_decay_schedule(0.0, PEAK_RATE, 100, steps, PEAK_RATE / 50)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.05))
    graph, weights = nnx.split(model)
    moments = optimizer.init(weights)

    @jax.jit
    def update(weights: Any, moments: Any, tokens_BT: Any, targets_BS: Any) -> tuple[Any, Any, Any]:
        loss, gradients = jax.value_and_grad(
            lambda weights: next_token_loss(nnx.merge(graph, weights), tokens_BT, targets_BS, divisor)
        )(weights)
        updates, moments = optimizer.update(gradients, moments, weights)
        return optax.apply_updates(weights, updates), moments, loss

    rng = np.random.default_rng(seed)
    started = time.monotonic()
    for step in range(1, steps + 1):
        weights, moments, loss = update(weights, moments, *draw(rng, step))
        if step % 100 == 0:
            print(f"step {step:5d}  loss {loss:.4f}  {time.monotonic() - started:.0f} s", flush=True)
    nnx.update(model, weights)
