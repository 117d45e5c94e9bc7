"""The forward pass of every family in NumPy and float64, from the files of a directory and nothing else of ours.

Written from the papers: Llama 3 (https://arxiv.org/abs/2407.21783), Qwen 2.5 (https://arxiv.org/abs/2412.15115), Qwen 3
(https://arxiv.org/abs/2505.09388), Gated DeltaNet (https://arxiv.org/abs/2412.06464), Gemma 2
(https://arxiv.org/abs/2408.00118), Gemma 3 (https://arxiv.org/abs/2503.19786), Gemma 4
(https://huggingface.co/docs/transformers/model_doc/gemma4), OLMo 3
(https://arxiv.org/abs/2512.13961), SmolLM 3 (https://huggingface.co/blog/smollm3). One row at a time, without padding
and without a cache, so that there is nothing to get wrong in either; `tests/parity` holds it to transformers.
"""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file


def reference_logits(directory: Path, tokens_T: np.ndarray) -> np.ndarray:
    """[T, V] logits of one text, by the config.json and *.safetensors of a directory."""
    whole = json.loads((directory / "config.json").read_text())
    c = whole.get("text_config", whole)
    w = {k: v.astype(np.float64) for file in directory.glob("*.safetensors") for k, v in load_file(file).items()}
    untied = w.get("lm_head.weight", np.empty(0))
    prefix = next(name for name in w if name.endswith("embed_tokens.weight")).removesuffix("embed_tokens.weight")
    w = {name.removeprefix(prefix): tensor for name, tensor in w.items()}
    gemma = c["model_type"].startswith("gemma")
    gemma3, gemma4, olmo3 = (c["model_type"] == name for name in ("gemma3_text", "gemma4_text", "olmo3"))

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        adds_one = (gemma and not gemma4) or (c["model_type"] == "qwen3_5_text" and "linear_attn" not in name)
        scale = w[f"{name}.weight"] + (1.0 if adds_one else 0.0) if name else 1.0
        return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + c["rms_norm_eps"]) * scale)

    x = w["embed_tokens.weight"][tokens_T] * (math.sqrt(c["hidden_size"]) if gemma else 1.0)
    embedded = _embeddings_of_layers(c, w, tokens_T, x, norm) if gemma4 else None
    kept: dict[str, Any] = {}
    for layer in range(c["num_hidden_layers"]):
        p = f"layers.{layer}"
        normed = x if olmo3 else norm(x, f"{p}.input_layernorm")
        mix = _delta_net if _is_linear(c, layer) else functools.partial(_attention, kept=kept)
        attended = mix(c, w, layer, normed, norm)
        x = x + (norm(attended, f"{p}.post_attention_layernorm") if gemma or olmo3 else attended)
        h = x if olmo3 else norm(x, f"{p}.{'pre_feedforward' if gemma else 'post_attention'}_layernorm")
        if f"{p}.mlp.gate.weight" in w:
            out = _mixture(c, w, f"{p}.mlp", h)
        else:
            out = _mlp(w, f"{p}.mlp", h, _gelu_tanh if gemma else _silu)
        x = x + (norm(out, f"{p}.post_feedforward_layernorm") if gemma or olmo3 else out)
        if embedded is not None:
            gate = _gelu_tanh(x @ w[f"{p}.per_layer_input_gate.weight"].T) * embedded[:, layer]
            x = x + norm(gate @ w[f"{p}.per_layer_projection.weight"].T, f"{p}.post_per_layer_input_norm")
            x = x * w[f"{p}.layer_scalar"]
    logits = norm(x, "norm") @ (w["embed_tokens.weight"] if c["tie_word_embeddings"] else untied).T
    cap = None if gemma3 else c.get("final_logit_softcapping")
    return np.asarray(logits if cap is None else cap * np.tanh(logits / cap))


def _embeddings_of_layers(
    c: dict[str, Any], w: dict[str, np.ndarray], tokens_T: np.ndarray, x: np.ndarray, norm: Any
) -> np.ndarray:
    """[T, layers, E]: for each layer and token, the sum of an embedding and a projection, divided by √2."""
    shape = len(tokens_T), c["num_hidden_layers"], c["hidden_size_per_layer_input"]
    own = w["embed_tokens_per_layer.weight"][tokens_T].reshape(shape) * math.sqrt(shape[-1])
    common = x @ w["per_layer_model_projection.weight"].T / math.sqrt(c["hidden_size"])
    return np.asarray((norm(common.reshape(shape), "per_layer_projection_norm") + own) / math.sqrt(2))


def _mlp(w: dict[str, np.ndarray], p: str, h: np.ndarray, activation: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    gate, up = (h @ w[f"{p}.{name}_proj.weight"].T for name in ("gate", "up"))
    return np.asarray(activation(gate) * up @ w[f"{p}.down_proj.weight"].T)


def _mixture(c: dict[str, Any], w: dict[str, np.ndarray], p: str, h: np.ndarray) -> np.ndarray:
    out = np.zeros_like(h)
    for t, logits in enumerate(h @ w[f"{p}.gate.weight"].T):
        shares = np.exp(logits - logits.max())
        chosen = np.argsort(-shares)[: c["num_experts_per_tok"]]
        total = shares[chosen].sum() if c["norm_topk_prob"] else shares.sum()
        for expert in chosen:
            out[t] += shares[expert] / total * _mlp(w, f"{p}.experts.{expert}", h[t], _silu)
    return out


def _attention(
    c: dict[str, Any], w: dict[str, np.ndarray], layer: int, h: np.ndarray, norm: Any, kept: dict[str, Any]
) -> np.ndarray:
    T = len(h)
    heads, groups = c["num_attention_heads"], c["num_key_value_heads"]
    size = c.get("head_dim", c["hidden_size"] // heads)
    p = f"layers.{layer}.self_attn"
    sliding, olmo3, gemma4 = _slides(c, layer), c["model_type"] == "olmo3", c["model_type"] == "gemma4_text"
    if gemma4 and not sliding:
        size = c["global_head_dim"]

    def project(name: str, count: int) -> np.ndarray:
        out = h @ w[f"{p}.{name}_proj.weight"].T + w.get(f"{p}.{name}_proj.bias", 0.0)
        if olmo3 and name != "v":
            out = norm(out, f"{p}.{name}_norm")
        return np.asarray(out.reshape(T, count, size))

    turn = np.exp(1j * np.arange(T)[:, None] * _frequencies(c, size, sliding))[:, None, :]

    def turned(x: np.ndarray, name: str) -> np.ndarray:
        if f"{p}.{name}.weight" in w and not olmo3:
            x = norm(x, f"{p}.{name}")
        if not c.get("no_rope_layers", [1] * (layer + 1))[layer]:
            return x
        half = turn.shape[-1]
        rotated = (x[..., :half] + 1j * x[..., half : 2 * half]) * turn
        return np.concatenate([rotated.real, rotated.imag, x[..., 2 * half :]], axis=-1)

    # Of Qwen 3.5, each head of q_proj is a query and a gate.
    gated = c["model_type"] == "qwen3_5_text"
    both = (h @ w[f"{p}.q_proj.weight"].T).reshape(T, heads, 2, size) if gated else None
    gate = np.full(1, np.inf) if both is None else both[:, :, 1]
    q = turned(project("q", heads) if both is None else both[:, :, 0], "q_norm")
    if f"{p}.k_proj.weight" in w:
        v = project("v", groups)
        kept[str(sliding)] = turned(project("k", groups), "k_norm"), norm(v, "") if gemma4 else v
    # A layer without keys and values of its own takes those of the last one of its kind that has them.
    k, v = kept[str(sliding)]
    scale = 1.0 if gemma4 else 1 / math.sqrt(c.get("query_pre_attn_scalar", size))
    out = np.empty((T, heads, size))
    for head in range(heads):
        group = head // (heads // groups)
        for t in range(T):
            first = max(0, t - c["sliding_window"] + 1) if sliding else 0
            scores = k[first : t + 1, group] @ q[t, head] * scale
            cap = c.get("attn_logit_softcapping")
            if cap is not None:
                scores = cap * np.tanh(scores / cap)
            shares = np.exp(scores - scores.max())
            out[t, head] = shares / shares.sum() @ v[first : t + 1, group]
    out = out / (1 + np.exp(-gate))
    return np.asarray(out.reshape(T, heads * size) @ w[f"{p}.o_proj.weight"].T)


def _is_linear(c: dict[str, Any], layer: int) -> bool:
    if c["model_type"] != "qwen3_5_text":
        return False
    if "layer_types" in c:
        return bool(c["layer_types"][layer] == "linear_attention")
    return (layer + 1) % 4 != 0


def _delta_net(c: dict[str, Any], w: dict[str, np.ndarray], layer: int, h: np.ndarray, norm: Any) -> np.ndarray:
    """Token by token, as the recurrence says."""
    T, p = len(h), f"layers.{layer}.linear_attn"
    heads, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    width, height = c["linear_key_head_dim"], c["linear_value_head_dim"]
    qkv, z, b, a = (h @ w[f"{p}.in_proj_{name}.weight"].T for name in ("qkv", "z", "b", "a"))
    kernel = w[f"{p}.conv1d.weight"][:, 0]
    before = np.concatenate([np.zeros((kernel.shape[1] - 1, qkv.shape[1])), qkv])
    mixed = np.stack([(before[t : t + kernel.shape[1]] * kernel.T).sum(0) for t in range(T)])
    mixed = mixed / (1 + np.exp(-mixed))
    q, k, v = np.split(mixed, [heads * width, 2 * heads * width], axis=1)
    q, k = (x.reshape(T, heads, width).repeat(values // heads, 1) for x in (q, k))
    q, k = (x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    v, z = v.reshape(T, values, height), z.reshape(T, values, height)
    alpha = np.exp(-np.exp(w[f"{p}.A_log"]) * np.log1p(np.exp(a + w[f"{p}.dt_bias"])))
    beta = 1 / (1 + np.exp(-b))
    out = np.empty_like(v)
    for head in range(values):
        state = np.zeros((height, width))
        for t in range(T):
            key = k[t, head]
            state = state @ (alpha[t, head] * (np.eye(width) - beta[t, head] * np.outer(key, key)))
            state = state + beta[t, head] * np.outer(v[t, head], key)
            out[t, head] = state @ q[t, head] / math.sqrt(width)
    out = norm(out, f"{p}.norm") * z / (1 + np.exp(-z))
    return np.asarray(out.reshape(T, -1) @ w[f"{p}.out_proj.weight"].T)


def _slides(c: dict[str, Any], layer: int) -> bool:
    if "layer_types" in c:
        return bool(c["layer_types"][layer] == "sliding_attention")
    if c["model_type"] == "smollm3":
        return bool(c["use_sliding_window"] and not c["no_rope_layers"][layer])
    if not c["model_type"].startswith("gemma"):
        return False
    pattern = 2 if c["model_type"] == "gemma2" else c.get("sliding_window_pattern", 6)
    return bool((layer + 1) % pattern)


def _frequencies(c: dict[str, Any], size: int, sliding: bool) -> np.ndarray:
    """Radians a position for each pair of a head."""
    parameters = c.get("rope_parameters") or c.get("rope_scaling") or {}
    if c["model_type"] == "gemma4_text":  # its defaults
        theta, rotated = (1e4, size // 2) if sliding else (1e6, size // 8)
        return np.array([theta ** (-2 * pair / size) if pair < rotated else 0.0 for pair in range(size // 2)])
    theta = parameters.get("rope_theta") or c["rope_theta"]
    if c["model_type"] == "gemma3_text" and sliding:
        parameters, theta = {}, c["rope_local_base_freq"]
    found = []
    size = int(size * parameters.get("partial_rotary_factor", 1.0))
    for pair in range(size // 2):
        frequency = theta ** (-2 * pair / size)
        if parameters.get("rope_type") == "linear":
            frequency /= parameters["factor"]
        if parameters.get("rope_type") == "llama3":
            wavelength, length = 2 * math.pi / frequency, parameters["original_max_position_embeddings"]
            low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
            if wavelength > length / low:
                frequency /= parameters["factor"]
            elif wavelength > length / high:
                smooth = (length / wavelength - low) / (high - low)
                frequency = (1 - smooth) * frequency / parameters["factor"] + smooth * frequency
        found.append(frequency)
    return np.array(found)


def _silu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / (1 + np.exp(-x)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
