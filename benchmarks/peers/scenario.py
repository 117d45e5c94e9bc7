"""Training setup that all peers share: model directory, prompts, reward and optimiser."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_tunix.rewards import get_reward_function


@dataclass(frozen=True)
class Scenario:
    """A comparison, which every peer reads as JSON.

    Attributes:
        model: A Hugging Face directory.
        rows: A JSON-lines file of `prompt` (the rendered text) and `answer`, in the order of training.
        reward: `math`, or `variety` for a model that knows nothing.
        num_steps: Steps of the whole run, for the learning rate schedule.
        prompts: Prompts per step.
        generations: Completions per prompt.
        prompt_tokens: Maximum tokens of a prompt; peers that pad to a fixed length use this length.
        new_tokens: Maximum tokens of a completion, or of everything after the prompt of an episode.
        turns: Turns of an episode; 0 for completions of one turn.
        turn_tokens: Maximum tokens of a turn.
        reply: Answer of the tool or environment to every turn.
        result_tokens: Tokens of `reply`.
        lora_rank: Rank of the adapters of all projections; 0 trains all weights.
    """

    model: str
    rows: str
    reward: str
    num_steps: int
    prompts: int
    generations: int
    prompt_tokens: int
    new_tokens: int
    seed: int = 0
    learning_rate: float = 1e-4
    warmup_ratio: float = 0.1
    beta: float = 0.02
    epsilon: float = 0.2
    max_grad_norm: float = 1.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.99
    turns: int = 0
    turn_tokens: int = 0
    reply: str = ""
    result_tokens: int = 0
    lora_rank: int = 0
    lora_alpha: float = 16.0

    def read_rows(self) -> list[dict[str, Any]]:
        """Return the rows, one for each prompt of the run."""
        return [json.loads(line) for line in Path(self.rows).read_text().splitlines()]

    def scorer(self) -> Callable[[str, str], float]:
        """Return a function (completion, answer) → score."""
        if self.reward == "variety":
            return lambda completion, _: len(set(completion)) / (1 + len(completion))
        reward = get_reward_function(self.reward)

        def score(completion: str, answer: str) -> float:
            value = reward(completion, answer=answer)
            if not isinstance(value, (int, float)):
                raise TypeError(f"the reward {self.reward} must give a number here, it gave {value!r}")
            return float(value)

        return score

    def to_json(self) -> str:
        """Return the scenario as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Scenario":
        """Return the scenario that `to_json` wrote."""
        return cls(**json.loads(text))


def make_random_model(directory: Path, like: Path, *, layers: int, width: int) -> Path:
    """Write a Qwen 3 of random weights with the tokenizer and vocabulary of the model `like`; return its path.

    Heads are 16 wide, half as many of them key-value heads. The inner width is twice the hidden size `width`.
    """
    from benchmarks.made_model import write_weights  # The peers' interpreters may lack its imports.

    directory.mkdir(parents=True, exist_ok=True)
    for path in like.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            (directory / path.name).write_bytes(path.read_bytes())
    config = json.loads((like / "config.json").read_text())
    heads, head = max(2, width // 16), 16
    config |= {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": head,
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    write_weights(directory)
    return directory
