"""GRPO steps on episodes of several turns: agent_tunix and TRL's tool loop take turns.

    python benchmarks/episodes.py [--case short|long] [--steps 10] [--trl-python PATH]

Model, prompts, results, lengths, reward, optimiser and machine are the same. The model has random weights, and one word
in 16 ends a turn. Each turn is answered with the same text: by an environment for agent_tunix, by a tool for TRL, which
finds a call in every turn.

- short: 2 layers of width 64, 16 prompts × 8 episodes of 4 turns with results of 64 tokens.
- long: 4 layers of width 256, 2 prompts of about 480 tokens × 16 episodes of 6 turns with results of 128 tokens.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peers.scenario import Scenario, make_random_model
from benchmarks.peers.turns import Peer
from benchmarks.train_step import WARM_UP, alternate, longest_prompt, write_rows

from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL

TURN_TOKENS = 96
CASES: dict[str, dict[str, Any]] = {
    "short": {"layers": 2, "width": 64, "prompts": 16, "generations": 8, "turns": 4, "result": 64, "prompt": None},
    "long": {"layers": 4, "width": 256, "prompts": 2, "generations": 16, "turns": 6, "result": 128, "prompt": 480},
}
# Least ratio of TRL's time to ours.
BARS = {"short": 4.0, "long": 8.0}


def make_scenario(case: str, directory: Path, steps: int) -> Scenario:
    """Return the scenario of a case, with its model and rows."""
    facts = CASES[case]
    model = make_random_model(
        directory / "model", EMBEDDED_MODEL.parent / "tiny_tools", layers=facts["layers"], width=facts["width"]
    )
    tokenizer = Tokenizer(model)
    ends = {*tokenizer.eos_ids, *range(len(tokenizer.eos_ids) + 32, tokenizer.vocab_size, 16)}
    generation = model / "generation_config.json"
    generation.write_text(json.dumps(json.loads(generation.read_text()) | {"eos_token_id": sorted(ends)}))
    rows = write_rows(directory / "rows.jsonl", tokenizer, steps * facts["prompts"], tokens=facts["prompt"])
    reply = ""
    while len(tokenizer.encode(reply)) < facts["result"]:
        reply += " 7"
    return Scenario(
        model=str(model),
        rows=str(rows),
        reward="variety",
        num_steps=steps,
        prompts=facts["prompts"],
        generations=facts["generations"],
        prompt_tokens=longest_prompt(rows, tokenizer) + 16,
        new_tokens=facts["turns"] * TURN_TOKENS + (facts["turns"] - 1) * (facts["result"] + 16),
        turns=facts["turns"],
        turn_tokens=TURN_TOKENS,
        reply=reply,
        result_tokens=len(tokenizer.encode(reply)),
    )


def compare(case: str, arguments: argparse.Namespace, directory: Path) -> None:
    """Measure one case and print it."""
    steps = arguments.steps + WARM_UP
    scenario = make_scenario(case, directory, steps + 1)
    pythons = {"ours": sys.executable, "trl": arguments.trl_python}
    peers = [Peer(name, python, scenario, directory / f"{name}.log") for name, python in pythons.items()]
    try:
        told = alternate(peers, steps)
    finally:
        for peer in peers:
            peer.close()
    print(f"\n{case}: {arguments.steps} steps, {CASES[case]}")
    medians = {}
    for name, answers in told.items():
        rows = answers[WARM_UP:]
        medians[name] = statistics.median(row["seconds"] for row in rows)
        parts = {part: statistics.median(row["phases"].get(part, 0.0) for row in rows) for part in rows[0]["phases"]}
        shown = ", ".join(f"{part} {value:.3f}" for part, value in parts.items())
        length = statistics.mean(row["length"] for row in rows)
        print(f"  {name:5} {medians[name]:8.3f} s a step ({shown}), {length:.0f} tokens after the prompt")
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(*told.values(), strict=True)][WARM_UP:]
    low, middle, high = statistics.quantiles(ratios, n=4)
    ratio = medians["trl"] / medians["ours"]
    held = "held" if ratio >= BARS[case] else "MISSED"
    print(f"  {ratio:.2f} times as fast (bar {BARS[case]:g}: {held}), quartiles {low:.2f} {middle:.2f} {high:.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--trl-python", default=sys.executable, help="an interpreter that has the extra trl")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        for case in CASES if arguments.case == "all" else [arguments.case]:
            compare(case, arguments, Path(name) / case)


if __name__ == "__main__":
    main()
