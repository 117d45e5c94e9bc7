"""Prompts of a teacher that sees more than the policy: the worked solution, feedback, a right completion of the group.

The policy, shown these, can teach the policy that is not (`grpo.teacher=self`): SDPO (https://arxiv.org/abs/2601.20802),
OPSD (https://arxiv.org/abs/2601.18734), SDFT (https://arxiv.org/abs/2601.19897). A template writes the text that takes
the place of the user's last message. System message, worked examples and declared tools stay, and so does everything
after the prompt.

Departures from the papers:

- The teacher has the weights of the start of the step, as in SDPO without its moving average; OPSD's fixed teacher is
  the path of the initial policy as `grpo.teacher`. There is no average of weights.
- The divergence is the reverse KL of `losses/distillation.py`, not the Jensen-Shannon divergence of SDPO and OPSD.
- A completion with nothing to show adds 0 to the divergence. The weights of the others stay as they are.
- A shown solution is never the completion that is judged.
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_tunix.data import RowError
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy.chat.teacher_template import TeacherTemplate
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.advantages import is_dead
from agent_tunix.rewards.rounding import lowest_reaching
from agent_tunix.sampling.lengths import bucket_of_any
from agent_tunix.sampling.sampler import Completions, pad_prompts

_LOGGER = logging.getLogger("agent_tunix.run")
# Texts that are cut where a prompt is too long.
_CUTTABLE = ("feedback", "solution", "worked_solution", "response")
_MOST_CUTS = 8

# Takes a conversation and the columns of its row; returns the rendered prompt as text, special token, text, ….
Split = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], list[str]]
# What processes share, of built-in types: ids of prompts, the policy's where nothing is shown; what is taught; the cut.
Written = tuple[list[list[int]], list[bool], int]


@dataclass(frozen=True)
class ShownPrompts:
    """Prompts of the teacher for the N completions of a step.

    Attributes:
        tokens: [N, P] ids, padded on the left; [N / G, P] if the completions of a prompt share theirs. Where nothing is
            shown, they are those of the policy.
        lengths: Tokens of each.
        taught: [N], True if the teacher is shown something.
        num_cut: Prompts of which a part was cut, because they were too long.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    taught: np.ndarray
    num_cut: int


class TeacherPrompts:
    """A writer of the teacher's prompts.

    Args:
        template: The template.
        tokenizer: The policy's tokenizer.
        split: Renders a conversation with the policy's chat template and the row's tools.
        shorten: Cuts a text to a number of tokens, with a note.
        limit: Longest prompt in tokens; None if the model's context is unknown.
        num_generations: G.
        pass_at: Value below which a component failed.
        share: Calls a function in one process of the run, the one with the environments, for all of them.
    """

    def __init__(
        self,
        template: TeacherTemplate,
        tokenizer: Tokenizer,
        split: Split,
        shorten: Callable[[str, int], str],
        *,
        limit: int | None,
        num_generations: int,
        pass_at: float,
        share: Callable[[Callable[[], Written]], Written] = lambda make: make(),
    ) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._split = split
        self._shorten = shorten
        self._limit = sys.maxsize if limit is None else limit
        self._num_generations = num_generations
        self._passing = lowest_reaching(pass_at)
        self._share = share
        self._told: set[str] = set()

    def write(
        self, samples: Sequence[Sample], scores: Sequence[Score], totals: np.ndarray, completions: Completions
    ) -> ShownPrompts:
        """Return the prompts of the completions of a step.

        Args:
            samples: The N completions as rewards saw them.
            scores: Their scores.
            totals: [N] totals; NaN if unscored.
            completions: Their tokens.
        """
        prompts, taught, num_cut = self._share(lambda: self._write(samples, scores, totals, completions))
        width = bucket_of_any(max(map(len, prompts)), max(self._limit, completions.prompt_tokens.shape[1]))
        tokens, lengths = pad_prompts(prompts, width, self._tokenizer.pad_id())
        return ShownPrompts(tokens, lengths, np.repeat(np.array(taught), len(samples) // len(taught)), num_cut)

    def _write(
        self, samples: Sequence[Sample], scores: Sequence[Score], totals: np.ndarray, completions: Completions
    ) -> Written:
        step = self._num_generations if self._template.is_of_row else 1
        solutions = find_solutions(samples, totals, self._num_generations)
        prompts: list[list[int]] = []
        taught, num_cut = [], 0
        for row in range(0, len(samples), step):
            sample, score = samples[row], scores[row]
            variables = {
                "response": sample.whole_text,
                "feedback": describe_failures(score, self._passing),
                "solution": solutions[row],
                "extras": {name: dict(part.extras) for name, part in score.parts.items()},
            }
            padded, length = completions.prompt_tokens[row], int(completions.prompt_lengths[row])
            own = padded[len(padded) - length :].tolist()
            try:
                ids, is_cut = self._encode(sample, variables)
                if ids is not None and self._lacks_tools(sample, own):
                    ids, is_cut = None, False
            except (ConfigError, ModelError, RowError) as error:
                ids, is_cut = None, False
                self._tell(str(error))
            num_cut += is_cut
            taught.append(ids is not None)
            prompts.append(own if ids is None else ids)
        return prompts, taught, num_cut

    def _encode(self, sample: Sample, variables: dict[str, Any]) -> tuple[list[int] | None, bool]:
        """Return the ids of a prompt, None if there is nothing to show; and True if a part of it was cut."""
        messages = [dict(message) for message in sample.prompt_messages]
        place = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=None)
        if place is None:
            return None, False
        variables["prompt"] = messages[place]["content"]
        texts = {"worked_solution": sample.columns.get("worked_solution"), **variables}
        columns = dict(sample.columns)
        for num_cuts in range(_MOST_CUTS):
            messages[place]["content"] = self._template.render(columns, variables)
            if not messages[place]["content"]:
                return None, False
            ids = self._tokenizer.encode_prompts([self._split(messages, sample.columns)])[0]
            excess = len(ids) - self._limit
            if excess <= 0:
                return ids, num_cuts > 0
            lengths = {
                name: len(self._tokenizer.encode(text, allow_special=False))
                for name in _CUTTABLE
                if name in self._template.names and isinstance(text := texts[name], str) and text
            }
            if not lengths:
                break
            name = max(lengths, key=lengths.__getitem__)
            kept = lengths[name] - excess
            texts[name] = self._shorten(texts[name], kept) if kept > 0 else ""
            (columns if name == "worked_solution" else variables)[name] = texts[name]
        self._tell(f"a prompt of the teacher has more than {self._limit} tokens, which the model's context leaves")
        return None, False

    def _lacks_tools(self, sample: Sample, own: list[int]) -> bool:
        """Return True if the prompt of an episode would lack its tools, because only the episode knows them."""
        if sample.episode is None or sample.fault:
            return False
        lacks = self._tokenizer.encode_prompts([self._split(sample.prompt_messages, sample.columns)])[0] != own
        if lacks:
            self._tell("its environment has tools that are known only when an episode begins")
        return lacks

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            _LOGGER.warning("the teacher judges a completion without effect: %s", problem)


def find_solutions(samples: Sequence[Sample], totals: np.ndarray, num_generations: int) -> list[str]:
    """Return, for each completion, another of its group that has the highest total; "" if there is none.

    A group whose totals are all equal has none, because none of its completions is better than the mean.
    """
    solutions = []
    dead = is_dead(totals.reshape(-1, num_generations))
    for group, start in enumerate(range(0, len(samples), num_generations)):
        own = totals[start : start + num_generations]
        best = [] if dead[group] else np.flatnonzero(own >= lowest_reaching(float(np.nanmax(own)))).tolist()
        for place in range(num_generations):
            other = next((one for one in best if one != place), None)
            solutions.append("" if other is None else samples[start + other].whole_text)
    return solutions


def describe_failures(score: Score, passing: float) -> str:
    """Return the details of the components that scored below a value, each on a line; faults of rewards are left out.

    With several components, the name of each precedes its detail.
    """
    failed = {
        name: part.detail
        for name, part in score.parts.items()
        if part.outcome is Outcome.SCORED and part.value is not None and part.value < passing and part.detail
    }
    return "\n".join(failed.values() if len(score.parts) == 1 else (f"{name}: {text}" for name, text in failed.items()))
