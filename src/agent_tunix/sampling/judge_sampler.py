"""The sampler of a judge's model: questions in, replies out, in few compiled programs.

A program has a fixed number of rows and a prompt width out of four, and missing rows are filled with the last question.
So the programs of the first step serve all steps, and a greedy reply does not depend on the questions beside it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.prompts import PromptEncoder, fold_system
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.rewards.judges.faults import JudgeFault
from agent_tunix.rewards.judges.local import ModelReply, ModelRequest
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.lengths import bucket
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import SamplingParams

_NUM_SEEDS = 2**32


class JudgeSampler:
    """Sampler of replies.

    Args:
        sampler: Sampler of the model.
        directory: Directory of the model, for its chat template.
        context: Longest text of the model in tokens; None if it is unknown.
    """

    def __init__(self, sampler: Sampler, directory: Any, context: int | None) -> None:
        self.sampler = sampler
        self._directory = directory
        self._context = context
        self._encoders: dict[str, PromptEncoder] = {}

    def reply(self, requests: Sequence[ModelRequest]) -> Iterator[list[tuple[int, ModelReply | JudgeFault]]]:
        """Yield the replies of one program after another, each with the position of its request.

        Raises:
            ModelError: The model has no chat template, or it refuses the messages.
        """
        groups: dict[tuple[Any, ...], list[tuple[int, list[int]]]] = {}
        faults: list[tuple[int, ModelReply | JudgeFault]] = []
        for place, request in enumerate(requests):
            ids, settings = self._encode(request), request.settings
            limit = self._limit(request)
            if len(ids) > limit:
                faults.append((place, _too_long(len(ids), limit, settings.max_prompt_tokens)))
                continue
            width = bucket(len(ids), limit)
            # Noise belongs to a row of a program. So judges that draw tokens share none.
            judge = id(settings) if settings.temperature else None
            key = (width, limit, settings.max_tokens, settings.num_rows, settings.temperature, request.seed, judge)
            groups.setdefault(key, []).append((place, ids))
        if faults:
            yield faults
        for (_, limit, max_tokens, num_rows, temperature, seed, _), members in groups.items():
            sampling = SamplingParams(max_tokens, temperature or 1.0, greedy=not temperature)
            for start in range(0, len(members), num_rows):
                part = members[start : start + num_rows]
                prompts = [ids for _, ids in part]
                completions = self.sampler.sample(
                    [*prompts, *[prompts[-1]] * (num_rows - len(prompts))],
                    derive_key(seed % _NUM_SEEDS, Use.JUDGE, start),
                    sampling,
                    num_generations=1,
                    max_prompt_length=limit,
                )
                yield [
                    (place, ModelReply(completions.texts[row], len(ids), int(completions.lengths[row]), ended))
                    for row, ((place, ids), ended) in enumerate(zip(part, completions.ended.tolist(), strict=False))
                ]

    def _encode(self, request: ModelRequest) -> list[int]:
        arguments = request.settings.extra_body.get("chat_template_kwargs") or {}
        name = repr(sorted(arguments.items()))
        if name not in self._encoders:
            prompt = PromptConfig()
            prompt.template_args |= arguments
            self._encoders[name] = PromptEncoder(Tokenizer(self._directory, prompt), prompt)
        encoder, messages = self._encoders[name], request.messages
        return encoder.encode(messages if encoder.has_system_role else fold_system(messages))

    def _limit(self, request: ModelRequest) -> int:
        """Return the longest prompt that leaves room for the reply."""
        settings = request.settings
        room = settings.max_prompt_tokens if self._context is None else self._context - settings.max_tokens
        return max(1, min(settings.max_prompt_tokens, room))


def _too_long(length: int, limit: int, asked: int) -> JudgeFault:
    remedy = (
        "raise `max_prompt_tokens`" if limit == asked else "lower `max_tokens`, or use a model with a longer context"
    )
    return JudgeFault(f"the judge's prompt must have at most {limit} tokens, but has {length}; {remedy}")
