"""The proof of a pretrained model, which `scripts/proofs.py "real model" --model DIR` runs.

The proof compares the model with transformers, trains it with LoRA on the shipped word problems, and times its steps
and those of TRL on the same prompts. transformers and TRL may be in another environment, the one of `--torch`.

`python scripts/prove_real_model.py ours|theirs DIRECTORY` computes one side of the comparison in its own process.
"""

import functools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from agent_tunix.config.schema import Config
    from agent_tunix.data.prompt_batch import PromptBatch
    from agent_tunix.policy.chat.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
# Prompts whose logits and greedy completions are compared. The token ids of all prompts of the run are compared.
COMPARED = 2
NEW_TOKENS = 24
MAX_LOGIT_ERROR = 1e-3
WARM_UP = 1
TIMED_STEPS = 2
# TRL holds the activations of each completion with its prompt. With Gemma 3 270M, eight completions take 7 GB.
TIMED_PROMPTS = 1
OVERRIDES = (
    "data=word_problems",
    "prompt=plain",
    "prompt.num_few_shot=4",
    "training.reward_function=math",
    "training.batch_size=4",
    "grpo.num_generations=8",
    "grpo.beta=0",
    "generation.max_prompt_length=512",
    "generation.max_generation_steps=48",
    "model.lora_rank=16",
    "training.eval_every_n_steps=0",
    "training.save_interval_steps=0",
    "evaluation.num_samples=64",
    "evaluation.batch_size=64",
    "tracking.tensorboard=false",
    "tracking.report=false",
    "tracking.progress=none",
)


@dataclass(frozen=True)
class RealModel:
    """Options of the proof.

    Attributes:
        model: Hugging Face directory.
        torch: Python interpreter with torch and transformers, and for the timings TRL and PEFT.
        steps: Training steps.
        overrides: Further overrides of the run's configuration.
    """

    model: Path
    torch: str
    steps: int
    overrides: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """All overrides of the run."""
        own = [f"model.path={self.model.resolve()}", f"training.num_batches={self.steps}"]
        return [*OVERRIDES, *own, *self.overrides]


def missing_modules(python: str, *modules: str) -> str | None:
    """Return why an interpreter cannot import some modules, or None if it can."""
    try:
        done = subprocess.run([python, "-c", f"import {', '.join(modules)}"], capture_output=True, text=True)
    except OSError as error:
        return f"{python} does not start: {error}"
    return f"{python}: {done.stderr.strip().splitlines()[-1]}" if done.returncode else None


def prove_real_model(options: RealModel) -> dict[str, Any]:
    """Prove that token ids, logits and greedy tokens are those of transformers; measure training and its steps."""
    from agent_tunix.config.compose import compose_overrides
    from agent_tunix.data.prompting import settle_prompts
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.training.components import load_batches

    config = settle_prompts(compose_overrides(options.arguments))
    tokenizer = Tokenizer(options.model, config.prompt)
    _, batches, _ = load_batches(config, tokenizer)
    prompts = [batches.batch(step) for step in range(1, batches.num_steps + 1)]
    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "transformers": functools.partial(compare, options, tokenizer, prompts, Path(name)),
            "training": functools.partial(train, options, Path(name)),
            "TRL": functools.partial(time_steps, options, config, tokenizer, prompts, Path(name)),
        }
        for part, measure in parts.items():
            seen[part] = measure()
            print(f"    {part:14} {seen[part]}", flush=True)
    return seen


def compare(
    options: RealModel, tokenizer: "Tokenizer", batches: list["PromptBatch"], directory: Path
) -> dict[str, Any]:
    """Compare token ids, logits and greedy completions with transformers."""
    texts = [tokenizer.render_chat(messages) for batch in batches for messages in batch.messages]
    ids = [list(row) for batch in batches for row in batch.token_ids]
    request = {"model": str(options.model.resolve()), "texts": texts, "ids": ids[:COMPARED]}
    (directory / "request.json").write_text(json.dumps(request))
    for side, python in (("theirs", options.torch), ("ours", sys.executable)):
        run(python, __file__, side, str(directory))
    theirs, ours = (json.loads((directory / f"{side}.json").read_text()) for side in ("theirs", "ours"))
    different = [text for text, row, other in zip(texts, ids, theirs["ids"], strict=True) if row != other]
    assert not different, f"{len(different)} of {len(texts)} prompts have other token ids: {different[0]!r}"
    errors, largest = [], 0.0
    for number in range(COMPARED):
        one, other = (np.load(directory / f"{side}_{number}.npy", mmap_mode="r") for side in ("ours", "theirs"))
        for row, expected in zip(one, other, strict=True):
            errors.append(float(np.abs(row - expected).max()))
            largest = max(largest, float(np.abs(expected).max()))
    same = [a == b for a, b in zip(ours["greedy"], theirs["greedy"], strict=True)]
    seen = {
        "prompts_with_equal_ids": len(texts),
        "logit_error": float(f"{max(errors):.1e}"),
        "largest_logit": round(largest, 1),
        "positions": len(errors),
        "greedy_equal": f"{sum(same)} of {len(same)}",
    }
    assert all(same), seen
    assert max(errors) <= MAX_LOGIT_ERROR, seen
    return seen


def train(options: RealModel, directory: Path) -> dict[str, Any]:
    """Train, and return rewards, held-out accuracies and the seconds of a step."""
    run(sys.executable, "run_training.py", *options.arguments, f"hydra.run.dir={directory / 'run'}")
    rows = [json.loads(line) for line in (directory / "run" / "metrics.jsonl").read_text().splitlines()]
    accuracies = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
    steps = [row for row in rows if "time/step_s" in row]
    few = max(1, min(5, len(steps) // 2))
    rewards = [row["rewards/total/mean"] for row in steps]
    warm = steps[min(WARM_UP, len(steps) - 1) :]
    return {
        "steps": len(steps),
        f"reward_first_{few}": round(statistics.fmean(rewards[:few]), 3),
        f"reward_last_{few}": round(statistics.fmean(rewards[-few:]), 3),
        "accuracy_before": accuracies[0],
        "accuracy_after": accuracies[-1],
        "problems": rows[0]["eval/num_problems"],
        "completion_tokens": round(statistics.fmean(row["completions/length_mean"] for row in steps), 1),
        **{
            f"{phase}_s": round(statistics.median(row[f"time/{phase}_s"] for row in warm), 1)
            for phase in ("step", "rollout", "update")
        },
    }


def time_steps(
    options: RealModel, config: "Config", tokenizer: "Tokenizer", batches: list["PromptBatch"], directory: Path
) -> dict[str, Any]:
    """Take steps of ours and of TRL in turns on the same prompts, without stop strings; return the medians."""
    if (missing := missing_modules(options.torch, "trl", "peft", "datasets")) is not None:
        return {"skipped": missing}
    sys.path.insert(0, str(ROOT))
    from benchmarks.peers.scenario import Scenario
    from benchmarks.peers.turns import Peer

    from agent_tunix.config.episodes import prompt_tokens

    steps = WARM_UP + TIMED_STEPS
    rows = [
        {"prompt": tokenizer.render_chat(messages), "answer": str(columns["answer"])}
        for batch in (batches * steps)[:steps]
        for messages, columns in list(zip(batch.messages, batch.columns, strict=True))[:TIMED_PROMPTS]
    ]
    (directory / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scenario = Scenario(
        model=str(options.model.resolve()),
        rows=str(directory / "rows.jsonl"),
        reward="math",
        num_steps=steps,
        prompts=TIMED_PROMPTS,
        generations=config.grpo.num_generations,
        prompt_tokens=prompt_tokens(config),
        new_tokens=config.generation.max_generation_steps,
        learning_rate=config.optimizer.learning_rate,
        beta=config.grpo.beta,
        lora_rank=config.model.lora_rank,
        lora_alpha=config.model.lora_alpha,
    )
    peers = [
        Peer(name, python, scenario, directory / f"{name}.log")
        for name, python in (("ours", sys.executable), ("trl", options.torch))
    ]
    try:
        for peer in peers:
            peer.ready()
        told = [[peer.step() for peer in peers] for _ in range(steps)][WARM_UP:]
    finally:
        for peer in peers:
            peer.close()

    def medians(figure: str, digits: int = 1) -> list[float]:
        return [round(statistics.median(answers[side][figure] for answers in told), digits) for side in (0, 1)]

    (ours, theirs), (our_cpu, their_cpu) = medians("seconds"), medians("cpu_seconds")
    return {
        "timed_steps": TIMED_STEPS,
        "our_step_s": ours,
        "trl_step_s": theirs,
        "ratio": round(ours / theirs, 3),
        # Under other load, processor time is more reliable.
        "our_cpu_s": our_cpu,
        "trl_cpu_s": their_cpu,
        "cpu_ratio": round(our_cpu / their_cpu, 3),
        "tokens": medians("length"),
    }


def run(python: str, *arguments: str) -> None:
    """Run a program in the root of the checkout.

    Raises:
        AssertionError: The exit status is not 0.
    """
    done = subprocess.run(
        [python, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(arguments)} ended with status {done.returncode}:\n{done.stdout[-2000:]}"


def compute_ours(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Save the logits of our decoder, and return the greedy completions of the sampler."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from agent_tunix.config.schema import ModelConfig
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.mesh import make_mesh
    from agent_tunix.policy.model import load_policy
    from agent_tunix.sampling.sampler import Sampler
    from agent_tunix.sampling.token_choice import SamplingParams

    model, mesh = Path(request["model"]), make_mesh([1, 1])
    policy = load_policy(model, ModelConfig(dtype="float32"), mesh)
    read = nnx.jit(lambda policy, *arguments: policy(*arguments)[0])
    for number, ids in enumerate(request["ids"]):
        T = len(ids)
        mask = jnp.tril(jnp.ones((1, T, T), bool))
        logits = read(policy, jnp.asarray([ids]), jnp.arange(T)[None], None, mask)
        np.save(directory / f"ours_{number}.npy", np.asarray(logits[0]))
    completions = Sampler(policy, Tokenizer(model), mesh).sample(
        request["ids"],
        jax.random.key(0),
        SamplingParams(max_new_tokens=NEW_TOKENS, greedy=True),
        num_generations=1,
        max_prompt_length=max(map(len, request["ids"])),
    )
    rows = zip(completions.tokens, completions.lengths, strict=True)
    return {"greedy": [row[:length].tolist() for row, length in rows]}


def compute_theirs(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Save the logits of transformers, and return its token ids and greedy completions."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(request["model"])
    ids = [tokenizer(text)["input_ids"] for text in request["texts"]]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        request["model"], dtype=torch.float32, attn_implementation="eager"
    ).eval()  # type: ignore[no-untyped-call]
    greedy = []
    for number, row in enumerate(ids[:COMPARED]):
        with torch.no_grad():
            np.save(directory / f"theirs_{number}.npy", model(torch.tensor([row])).logits[0].numpy())
            out = model.generate(torch.tensor([row]), do_sample=False, max_new_tokens=NEW_TOKENS)
        greedy.append(out[0, len(row) :].tolist())
    return {"ids": ids, "greedy": greedy}


def main(side: str, directory: Path) -> None:
    """Compute one side of the comparison from `request.json`."""
    compute = {"ours": compute_ours, "theirs": compute_theirs}[side]
    found = compute(directory, json.loads((directory / "request.json").read_text()))
    (directory / f"{side}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
