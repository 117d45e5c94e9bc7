"""GRPO steps of agent_tunix ("ours"), bare Tunix and TRL: same model, batch, lengths, reward, optimiser and machine.

    python benchmarks/train_step.py [--case tiny|long] [--steps 20] [--peers bare_tunix trl] [--trl-python PATH]
    python benchmarks/train_step.py --curves [--seeds 0 1 2]

Each program runs in a separate process, and they take turns step by step, so other load on the machine affects all of
them. The benchmark prints the medians, their ratios, and the quartiles of the ratio per step.

- tiny: 2 layers of width 64, 16 prompts of the word problems × 8 completions × 24 tokens.
- long: 4 layers of width 256, 2 prompts of about 485 tokens × 16 completions × 64 tokens.

`--curves` trains the embedded model for 60 steps with each program and seed, and prints the mean reward of the first
and last ten steps and of all. TRL needs the extra `trl`, in this environment or in that of `--trl-python`.

Ours also scores through the mixture, checks for non-finite updates, computes entropies and writes a row per step. Tunix
does not train the end-of-sequence token.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peers.scenario import Scenario, make_random_model
from benchmarks.peers.turns import Peer

from agent_tunix.config.schema import Config
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import find_model_directory

WARM_UP = 3
CASES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 64, "prompts": 16, "generations": 8, "new_tokens": 24},
    "long": {"layers": 4, "width": 256, "prompts": 2, "generations": 16, "new_tokens": 64},
}
# Largest ratio of our step's time to a peer's.
BARS = {"tiny": {"bare_tunix": 0.75, "trl": 0.75}, "long": {"bare_tunix": 1 / 6, "trl": 1 / 4}}


def write_rows(path: Path, tokenizer: Tokenizer, count: int, *, tokens: int | None = None) -> Path:
    """Write `count` rendered word problems with their answers; return the path.

    Problems repeat if there are fewer. With `tokens`, each prompt joins problems until it is about that long.
    """
    from agent_tunix.data import load_splits

    examples, _, _ = load_splits(Config())
    rows = []
    for number in range(count):
        example = examples[number % len(examples)]
        text = example.prompt
        following = number
        while tokens is not None and len(tokenizer.encode(text)) < tokens - 40:
            following += 1
            text += " " + examples[following % len(examples)].prompt
        rendered = tokenizer.render_chat([{"role": "user", "content": text}])
        rows.append({"prompt": rendered, "text": text, "answer": str(example.columns["answer"])})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_scenario(case: str, directory: Path, steps: int) -> Scenario:
    """Return the scenario of a case, with its model and rows."""
    facts = dict(CASES[case])
    embedded = find_model_directory(Config().model)
    model = make_random_model(directory / "model", embedded, layers=facts.pop("layers"), width=facts.pop("width"))
    tokens = 485 if case == "long" else None
    tokenizer = Tokenizer(model)
    rows = write_rows(directory / "rows.jsonl", tokenizer, steps * facts["prompts"], tokens=tokens)
    longest = longest_prompt(rows, tokenizer)
    return Scenario(model=str(model), rows=str(rows), reward="variety", num_steps=steps, prompt_tokens=longest, **facts)


def longest_prompt(rows: Path, tokenizer: Tokenizer) -> int:
    """Return the tokens of the longest prompt, the length to which some peers pad."""
    return max(len(tokenizer.encode(json.loads(line)["prompt"])) for line in rows.read_text().splitlines())


def interpreter(peer: str, trl_python: str) -> str:
    """Return the Python interpreter of a peer."""
    return trl_python if peer == "trl" else sys.executable


def alternate(peers: list[Peer], steps: int) -> dict[str, list[dict[str, Any]]]:
    """Let the peers take steps in turns, and return their answers for each step."""
    for peer in peers:
        print(f"{peer.name}: {peer.ready()['devices']}", flush=True)
    told: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for _ in range(steps):
        for peer in peers:
            told[peer.name].append(peer.step())
    return told


def compare(case: str, arguments: argparse.Namespace, directory: Path) -> None:
    """Measure one case and print it."""
    # Tunix reports a step when it asks for the next one, so it needs one more step than is counted.
    steps = arguments.steps + WARM_UP
    scenario = make_scenario(case, directory, steps + 1)
    names = ["ours", *arguments.peers]
    peers = [Peer(name, interpreter(name, arguments.trl_python), scenario, directory / f"{name}.log") for name in names]
    try:
        told = alternate(peers, steps)
    finally:
        for peer in peers:
            peer.close()
    seconds = {name: [answer["seconds"] for answer in answers[WARM_UP:]] for name, answers in told.items()}
    ours = statistics.median(seconds["ours"])
    facts = CASES[case]
    print(
        f"\n{case}: {arguments.steps} steps of {facts['prompts']} prompts of at most {scenario.prompt_tokens} tokens ×"
        f" {facts['generations']} completions × {facts['new_tokens']} tokens,"
        f" {facts['layers']} layers of width {facts['width']}"
    )
    for name in names:
        phases = [answer["phases"] for answer in told[name][WARM_UP:]]
        parts = {part: statistics.median(row.get(part, 0.0) for row in phases) for part in phases[0]}
        shown = ", ".join(f"{part} {value:.3f}" for part, value in parts.items())
        print(f"  {name:12} {statistics.median(seconds[name]):8.3f} s a step ({shown})")
    for name in arguments.peers:
        ratios = [a / b for a, b in zip(seconds["ours"], seconds[name], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        ratio = ours / statistics.median(seconds[name])
        bar = BARS[case][name]
        print(
            f"  ours / {name}: ratio of medians {ratio:.3f} (bar {bar:.3f}: {'held' if ratio <= bar else 'MISSED'}),"
            f" quartiles {low:.3f} {middle:.3f} {high:.3f}; {1 / ratio:.2f} times as fast"
        )


def draw_curves(arguments: argparse.Namespace, directory: Path) -> None:
    """Train the embedded model with each program and seed, and print the rewards."""
    embedded = find_model_directory(Config().model)
    num_steps = arguments.curve_steps
    names = ["ours", *arguments.peers]
    print(f"{num_steps} steps of 16 × 8 × 24 on the embedded model; mean reward of the first ten, last ten, all")
    for seed in arguments.seeds:
        rows = write_rows(directory / f"rows_{seed}.jsonl", Tokenizer(embedded), (num_steps + 1) * 16)
        order = rows.read_text().splitlines()
        random.Random(seed).shuffle(order)
        rows.write_text("\n".join(order) + "\n")
        scenario = Scenario(
            model=str(embedded),
            rows=str(rows),
            reward="math",
            num_steps=num_steps + 1,
            prompts=16,
            generations=8,
            prompt_tokens=longest_prompt(rows, Tokenizer(embedded)),
            new_tokens=24,
            seed=seed,
        )
        for name in names:
            peer = Peer(name, interpreter(name, arguments.trl_python), scenario, directory / f"{name}_{seed}.log")
            told = alternate([peer], num_steps)[name]
            peer.close()
            curve = [answer["reward"] for answer in told]
            first, last, whole = (statistics.mean(part) for part in (curve[:10], curve[-10:], curve))
            print(f"  seed {seed} {name:12} {first:.3f} {last:.3f} {whole:.3f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--peers", nargs="*", choices=["bare_tunix", "trl"], default=["bare_tunix", "trl"])
    parser.add_argument("--trl-python", default=sys.executable, help="an interpreter that has the extra trl")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--curve-steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        if arguments.curves:
            draw_curves(arguments, Path(name))
            return
        for case in CASES if arguments.case == "all" else [arguments.case]:
            compare(case, arguments, Path(name) / case)


if __name__ == "__main__":
    main()
