"""An environment of several turns: find a number by hints."""

import verifiers as vf
from datasets import Dataset


class GuessEnv(vf.MultiTurnEnv):
    """Find a number from 1 to 10."""

    async def setup_state(self, state):
        """Begin the game."""
        state["turns"] = []
        return state

    @vf.stop
    async def found(self, state):
        """End with the right number."""
        return bool(state["turns"]) and state["turns"][-1] == state["info"]["number"]

    async def env_response(self, messages, state, **kwargs):
        """Answer a guess with a hint."""
        digits = "".join(one for one in str(messages[-1].content) if one.isdigit())
        guess = int(digits[:2]) if digits else 0
        state["turns"].append(guess)
        number = state["info"]["number"]
        if guess == number:
            state["final_env_response"] = [{"role": "user", "content": "right"}]
            return state["final_env_response"]
        return [{"role": "user", "content": "higher" if guess < number else "lower"}]


def solved(state):
    """Score 1 if the number was found."""
    return float(bool(state["turns"]) and state["turns"][-1] == state["info"]["number"])


def load_environment(**kwargs) -> vf.Environment:
    """Return games of numbers from 1 to 10."""
    text = [{"role": "user", "content": "Guess the number from 1 to 10."}]
    rows = [{"prompt": text, "info": {"number": number}} for number in range(1, 11)]
    return GuessEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[solved]), max_turns=6, **kwargs)
