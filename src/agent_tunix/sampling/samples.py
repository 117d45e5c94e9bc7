"""Completions in the form that rewards take."""

import dataclasses

import numpy as np

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.environments import EpisodeResult
from agent_tunix.rewards import EpisodeSummary, Sample
from agent_tunix.sampling.sampler import Completions


def make_samples(
    batch: PromptBatch,
    completions: Completions,
    *,
    format: str,
    num_generations: int,
    step: int = 0,
    max_steps: int = 0,
    first_group: int = 0,
) -> list[Sample]:
    """Return the N completions of a batch as samples.

    Args:
        batch: Prompts of the completions.
        completions: Completions, those of a prompt side by side.
        format: The template `prompt.format`.
        num_generations: Completions of each prompt.
        step: Number of the step.
        max_steps: Number of steps of the run.
        first_group: Number of the first prompt's group.
    """
    samples = []
    mask, num_sampled = completions.mask, completions.num_sampled
    for row, text in enumerate(completions.texts):
        prompt, generation = divmod(row, num_generations)
        group = first_group + prompt
        episode = None if completions.episodes is None else completions.episodes[row]
        length = int(completions.lengths[row])
        samples.append(
            Sample(
                response=text,
                prompt=batch.prompts[prompt],
                messages=(
                    (*batch.messages[prompt], {"role": "assistant", "content": text})
                    if episode is None
                    else tuple(episode.messages)
                ),
                columns=batch.columns[prompt],
                format=format,
                step=step,
                max_steps=max_steps,
                group_id=group,
                rollout_id=f"{step}_{group}_{generation}",
                num_tokens=int(num_sampled[row]),
                tokens=tuple(completions.tokens[row][mask[row]].tolist()),
                ended=bool(completions.ended[row]),
                index=first_group * num_generations + row,
                episode=(
                    None
                    if episode is None
                    else summarize_episode(episode, completions.tokens[row][:length], mask[row][:length])
                ),
            )
        )
    return samples


def summarize_episode(episode: EpisodeResult, tokens: np.ndarray, sampled: np.ndarray) -> EpisodeSummary:
    """Return an episode as rewards see it, besides its messages.

    Args:
        episode: The episode.
        tokens: Token ids after the prompt.
        sampled: True at those that the model wrote.
    """
    calls = tuple(
        {"turn": call.turn, "name": call.name, "outcome": str(call.result.outcome), "seconds": call.result.seconds}
        for call in episode.calls
    )
    calls_of_policy = [] if episode.agent is None else [dataclasses.asdict(call) for call in episode.agent.calls]
    return EpisodeSummary(
        str(episode.stop_reason),
        episode.num_turns,
        episode.num_prompt_messages,
        calls,
        episode.score,
        episode.error,
        episode.text,
        tuple(tokens.tolist()),
        tuple(sampled.astype(int).tolist()),
        episode.state,
        tuple({"turn": call.turn, "form": call.form} for call in episode.unread_calls),
        None if episode.agent is None else dataclasses.asdict(episode.agent) | {"calls": calls_of_policy},
    )
