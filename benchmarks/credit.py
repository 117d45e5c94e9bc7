"""Steps that credit by turn needs to reach the final reward of credit by episode.

    python benchmarks/credit.py [bandit late guess_number] [--steps 60] [--seeds 3] [--credits turn gigpo]

`bandit` has ten turns, in each of which an odd answer earns 0.1. In `late` the same sum is paid after the tenth turn,
and the replies tell how many answers were odd so far. `guess_number` is the embedded game, which scores whole episodes.
For each seed the script prints the mean reward of the last steps with `grpo.credit=episode`, and the share of the steps
after which another credit has reached it: `inf` if it does not.
"""

import argparse
import statistics
import tempfile

import numpy as np

import agent_tunix

TURNS, WINDOW = 10, 5
BANDIT = (
    *("environment.max_turns=10", "environment.max_turn_tokens=24", "environment.max_episode_tokens=320"),
    *("environment.max_result_tokens=8", "training.reward_function=environment", "environment.execution=inline"),
)
CREDITS = {
    "episode": ("grpo.credit=episode",),
    "turn": ("grpo.credit=turn",),
    "gigpo": ("grpo.credit=gigpo", "grpo.discount=0.95"),
}


class Bandit:
    """Ten turns with two arms: odd and even answers."""

    is_late = False

    def reset(self) -> str:
        """Begin."""
        self.turn, self.odd = 0, 0
        return "Answer."

    def step(self, action: str) -> tuple[str, float, bool, dict[str, int]]:
        """Pull the arm of an answer."""
        digits = [character for character in action if character.isdigit()]
        is_odd = bool(digits) and int(digits[-1]) % 2 == 1
        self.turn, self.odd = self.turn + 1, self.odd + is_odd
        done = self.turn == TURNS
        reward = (self.odd * done if self.is_late else is_odd) / TURNS
        return f"{self.odd} of {self.turn}", reward, done, {}


class Late(Bandit):
    """The same, paid at the end."""

    is_late = True


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=["bandit", "late", "guess_number"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--credits", nargs="+", default=["turn", "gigpo"])
    options = parser.parse_args()
    for task in options.tasks:
        shares: dict[str, list[float]] = {credit: [] for credit in options.credits}
        for seed in range(options.seeds):
            goal = rewards_of(task, "episode", seed, options.steps)
            for credit in options.credits:
                rewards = rewards_of(task, credit, seed, options.steps)
                share = share_needed(rewards, float(np.mean(goal[-WINDOW:])))
                shares[credit].append(share)
                print(
                    f"{task} seed {seed}: episode {np.mean(goal[:WINDOW]):.3f} → {np.mean(goal[-WINDOW:]):.3f}, "
                    f"{credit} → {np.mean(rewards[-WINDOW:]):.3f}, reached after {share:.2f} of the steps",
                    flush=True,
                )
        for credit, found in shares.items():
            print(f"{task} {credit}: median {statistics.median(found):.2f} of the steps", flush=True)


def share_needed(rewards: list[float], goal: float) -> float:
    """Return the share of the steps after which the mean of some steps reaches a goal; infinity if none does."""
    means = np.convolve(rewards, np.ones(WINDOW) / WINDOW, "valid")
    reached = np.flatnonzero(means >= goal - 1e-9)
    return (float(reached[0]) + WINDOW) / len(rewards) if reached.size else float("inf")


def rewards_of(task: str, credit: str, seed: int, steps: int) -> list[float]:
    """Return the mean reward of each step of a run."""
    own = ("environment=guess_number",) if task == "guess_number" else BANDIT
    with tempfile.TemporaryDirectory() as directory:
        run = agent_tunix.train(
            *own,
            *CREDITS[credit],
            *(f"training.num_batches={steps}", "training.batch_size=2", f"seed={seed}", "grpo.beta=0"),
            *("training.eval_every_n_steps=0", "tracking.report=false", "evaluation.num_samples=0"),
            *("optimizer.learning_rate=3e-4", "training.save_interval_steps=1000"),
            environment=None if task == "guess_number" else Late if task == "late" else Bandit,
            directory=f"{directory}/run",
        )
        found: list[float] = run.metrics["rewards/total/mean"].dropna().tolist()
        return found


if __name__ == "__main__":
    main()
