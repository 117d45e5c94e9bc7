"""`/v1/completions`."""

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.requests import TokenReply
from agent_tunix.serving.policy_service import in_thread, service_of
from agent_tunix.serving.routes.answering import Answer, ReplyPart, respond
from agent_tunix.serving.routes.answers import completion_logprobs
from agent_tunix.serving.routes.parameters import CompletionParameters

# As in OpenAI's API.
_DEFAULT_MAX_TOKENS = 16


async def create_completion(request: Request, parameters: CompletionParameters) -> Response:
    """Continue texts or token ids."""
    service, rollout = service_of(request), request.state.rollout
    if rollout is not None:
        rollout.admit()
    given = parameters.prompts
    prompts = await in_thread(lambda: [encode_text(service.tokenizer, one) for one in given])
    max_tokens = _DEFAULT_MAX_TOKENS if parameters.max_tokens is None else parameters.max_tokens
    with_prompt = bool(parameters.echo) and (parameters.logprobs is not None or max_tokens == 0)
    caps = rollout is not None
    requests = service.token_requests(parameters, prompts, max_tokens, parameters.logprobs or 0, with_prompt, caps=caps)
    return await respond(request, CompletionAnswer(service, parameters, requests, rollout))


def encode_text(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> list[int]:
    """Return the token ids of a prompt. A special token in a text counts as one, as with vLLM; ids stay."""
    if not isinstance(prompt, str):
        return list(prompt)
    ids, begin = tokenizer.encode(prompt), tokenizer.encode_prompts([[""]])[0]
    return ids if ids[: len(begin)] == begin else begin + ids


class CompletionAnswer(Answer):
    """An answer with texts."""

    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"
    parameters: CompletionParameters

    def choice(self, index: int, reply: TokenReply) -> dict[str, Any]:
        """Return the choice of the whole answer for a reply, and keep its call."""
        self.keep(index, reply)
        has_prompt = self.parameters.echo
        text = (self._prompt_text(index) if has_prompt else "") + self.texts[index].text
        details = self._details(reply, self.requests[index].prompt if has_prompt else ())
        return {"text": text, "finish_reason": reply.finish_reason} | details | self._prompt_ids(index)

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the prompt's ids of each reply, if the client asked for them."""
        for index in range(len(self.texts)):
            if ids := self._prompt_ids(index):
                yield {"index": index, "text": "", "logprobs": None, "finish_reason": None} | ids

    def add(self, part: ReplyPart) -> Iterator[dict[str, Any]]:
        """Yield the choice of the event for a part of a reply."""
        index, text = part.index, self.texts[part.index]
        offset = text.num_sent
        delta = text.add(part.tokens.tokens)
        details = self._details(part.tokens, (), offset)
        reason = None
        if part.reply is not None:
            self.keep(index, part.reply)
            delta += text.rest(text.text)
            reason = part.reply.finish_reason
        if delta or part.tokens.tokens or reason is not None:
            yield {"index": index, "text": delta, "finish_reason": reason, **details}

    def _details(self, reply: TokenReply, prompt: Sequence[int], offset: int = 0) -> dict[str, Any]:
        """Return the log-probabilities and the token ids of a reply or a part of it, if the client asked for them."""
        num_alternatives, logprobs = self.parameters.logprobs, None
        if num_alternatives is not None:
            logprobs = completion_logprobs(self.service.tokenizer, reply, prompt, num_alternatives, offset)
        ids = {"token_ids": list(reply.tokens)} if self.parameters.return_token_ids else {}
        return {"logprobs": logprobs} | ids

    def _prompt_ids(self, index: int) -> dict[str, Any]:
        ids = self.requests[index].prompt
        return {"prompt_token_ids": list(ids)} if self.parameters.return_token_ids else {}

    def _prompt_text(self, index: int) -> str:
        given = self.parameters.prompts[index // (self.parameters.n or 1)]
        return given if isinstance(given, str) else self.service.tokenizer.decode(given)
