"""Steps that credit by turn needs to reach the final reward of credit by episode.

    python benchmarks/credit.py [bandit late guess_number] [--steps 100] [--seeds 3] [--model]

`bandit` has ten turns with two arms, of which one earns 0.1. In `late` the same sum is paid after the tenth turn, and
the replies tell how often it was the right one. `guess_number` is the built-in game, which scores whole episodes. The
policy is a table of logits, one for each state; its updates have the same size with every credit, because advantages
are divided by their deviation over the step. With `--model` it is the embedded model, in runs of the whole program.

For each seed the script prints the mean reward of the last steps with `grpo.credit=episode`, and the share of the steps
after which each credit has reached it, `episode` itself included; `inf` if it does not.
"""

import argparse
import statistics
import tempfile
from typing import Any

import numpy as np

import agent_tunix
from agent_tunix.environments.builtin.guess_number import GuessNumber
from agent_tunix.rewards import Component, EpisodeSummary, Mixture, Sample, Score
from agent_tunix.rewards.turns import Credit

TURNS, WINDOW, GROUPS, G, RATE = 10, 10, 2, 8, 5.0
CREDITS = {
    "episode": Credit(),
    "turn": Credit("turn"),
    "turn, discount 0.5": Credit("turn", 0.5),
    "gigpo": Credit("gigpo", 0.95),
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
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--credits", nargs="+", default=list(CREDITS)[1:], choices=list(CREDITS)[1:])
    parser.add_argument("--model", action="store_true")
    options = parser.parse_args()
    train = train_model if options.model else train_table
    for task in options.tasks:
        shares: dict[str, list[float]] = {credit: [] for credit in ("episode", *options.credits)}
        for seed in range(options.seeds):
            first = train(task, CREDITS["episode"], seed, options.steps)
            goal = float(np.mean(first[-WINDOW:]))
            for name in shares:
                rewards = first if name == "episode" else train(task, CREDITS[name], seed, options.steps)
                shares[name].append(share_needed(rewards, goal))
                print(
                    f"{task} seed {seed}: episode {goal:.3f}, {name} {np.mean(rewards[-WINDOW:]):.3f}, reached after "
                    f"{shares[name][-1]:.2f} of the steps",
                    flush=True,
                )
        for name, found in shares.items():
            print(f"{task}, {name}: {statistics.median(found):.2f} of the steps in the median", flush=True)


def share_needed(rewards: list[float], goal: float) -> float:
    """Return the share of the steps after which the mean of some steps reaches a goal; infinity if none does."""
    means = np.convolve(rewards, np.ones(WINDOW) / WINDOW, "valid")
    reached = np.flatnonzero(means >= goal - 1e-9)
    return (float(reached[0]) + WINDOW) / len(rewards) if reached.size else float("inf")


# --- a table of logits -----------------------------------------------------------------------------------------------

Choice = tuple[Any, int, np.ndarray]  # state, action and the probabilities of all actions


class Table:
    """A policy with logits of its own for each state."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.logits: dict[Any, np.ndarray] = {}

    def choose(self, state: Any, num_actions: int) -> Choice:
        """Draw an action."""
        logits = self.logits.setdefault(state, np.zeros(num_actions))
        weights = np.exp(logits - logits.max())
        return state, int(self.rng.choice(num_actions, p=weights / weights.sum())), weights / weights.sum()

    def update(self, episodes: list[list[Choice]], advantages: np.ndarray) -> None:
        """Follow the policy gradient, averaged over the turns of an episode and over episodes; they are [N, K]."""
        size = np.nanstd(advantages)
        gradients: dict[Any, np.ndarray] = {}
        for choices, own in zip(episodes, advantages, strict=True):
            for (state, action, chances), advantage in zip(choices, own, strict=False):
                score = np.eye(len(chances))[action] - chances
                step = score * advantage / (size + 1e-9) / len(choices) / len(episodes)
                gradients[state] = gradients.get(state, 0.0) + step
        for state, gradient in gradients.items():
            self.logits[state] = self.logits[state] + RATE * gradient


class OfEnvironment:
    """The reward `environment`."""

    name = "environment"

    def score(self, samples: Any) -> list[Score]:
        """Return the scores of the episodes."""
        return [sample.episode.score for sample in samples]

    def check_parameters(self, columns: Any) -> None:
        """Accept any dataset."""

    def describe(self) -> str:
        """Return a description."""
        return self.name


def train_table(task: str, credit: Credit, seed: int, steps: int) -> list[float]:
    """Return the mean reward of each step of a table of logits."""
    policy, mixture = Table(seed), Mixture([Component("environment", OfEnvironment())])
    play = play_game if task == "guess_number" else play_bandit
    means = []
    for _ in range(steps):
        targets = np.repeat(policy.rng.integers(1, 11, GROUPS), G)
        played = [play(policy, task, int(target)) for target in targets]
        samples = [
            Sample("", messages=tuple(messages), episode=EpisodeSummary("finished", len(choices), 1, score=score))
            for messages, choices, score in played
        ]
        scores = mixture.score(samples)
        advantages, of_turns = mixture.credited(samples, scores, G, "group", credit)
        shared = np.repeat(advantages[:, None], TURNS, axis=1)
        policy.update([choices for _, choices, _ in played], shared if of_turns is None else of_turns)
        means.append(float(np.mean([score.value for score in scores])))
    return means


Played = tuple[list[dict[str, str]], list[Choice], Score]


def play_bandit(policy: Table, task: str, target: int) -> Played:
    """Return the messages, choices and score of an episode; the state is the number of the turn."""
    messages, choices, rewards = [{"role": "user", "content": "Answer."}], [], []
    environment = Late() if task == "late" else Bandit()
    environment.reset()
    for turn in range(TURNS):
        choices.append(policy.choose(turn, 2))
        reply, reward, _, _ = environment.step(str(choices[-1][1]))
        rewards.append(reward)
        messages += [{"role": "assistant", "content": ""}, {"role": "user", "content": reply}]
    return messages, choices, Score.of_turns(rewards)


def play_game(policy: Table, task: str, target: int) -> Played:
    """Return the same of the game; the state is the interval that the hints leave."""
    messages, choices = [{"role": "user", "content": "Guess."}], []
    game, low, high = GuessNumber(1, 10), 1, 10
    game.reset(target=target)
    for _ in range(6):
        choices.append(policy.choose((low, high), 10))
        guess = choices[-1][1] + 1
        reply = game.guess(guess)
        messages += [{"role": "assistant", "content": str(guess)}, {"role": "user", "content": reply}]
        if reply == "right":
            break
        low, high = (max(low, guess + 1), high) if reply == "higher" else (low, min(high, guess - 1))
    return messages, choices, Score(game.get_reward())


# --- the embedded model ----------------------------------------------------------------------------------------------


def train_model(task: str, credit: Credit, seed: int, steps: int) -> list[float]:
    """Return the mean reward of each step of a run with the embedded model."""
    own = ["environment.max_turns=10", "environment.max_turn_tokens=24", "environment.max_episode_tokens=320"]
    own += ["environment.max_result_tokens=8", "training.reward_function=environment", "environment.execution=inline"]
    with tempfile.TemporaryDirectory() as directory:
        run = agent_tunix.train(
            *(["environment=guess_number"] if task == "guess_number" else own),
            *(f"grpo.credit={credit.kind}", f"grpo.discount={credit.discount}", "grpo.beta=0", f"seed={seed}"),
            *(f"training.num_batches={steps}", f"training.batch_size={GROUPS}", "optimizer.learning_rate=3e-4"),
            *("training.eval_every_n_steps=0", "evaluation.num_samples=0", "tracking.report=false"),
            "training.save_interval_steps=1000",
            environment=None if task == "guess_number" else Late if task == "late" else Bandit,
            directory=f"{directory}/run",
        )
        found: list[float] = run.metrics["rewards/total/mean"].dropna().tolist()
        return found


if __name__ == "__main__":
    main()
