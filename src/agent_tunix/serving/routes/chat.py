"""`/v1/chat/completions`."""

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.serving.chat import ChatEncoder, ChatPrompt, read_conversation
from agent_tunix.serving.policy_service import PolicyService, in_thread, service_of
from agent_tunix.serving.recorder import RolloutCalls
from agent_tunix.serving.routes.answering import Answer, ReplyPart, respond
from agent_tunix.serving.routes.answers import chat_logprobs
from agent_tunix.serving.routes.parameters import ChatParameters


async def create_chat_completion(request: Request, parameters: ChatParameters) -> Response:
    """Reply to a conversation.

    A conversation that begins with an earlier request's messages and the reply to it continues the token ids of both.
    """
    service, rollout = service_of(request), request.state.rollout
    if rollout is not None:
        rollout.admit()
    chat = service.encoder()
    conversation = read_conversation(parameters.messages, parameters.tools, parameters.tool_choice)
    calls = service.calls_of(rollout)
    prompt = await in_thread(lambda: chat.encode(conversation, calls))
    max_tokens = parameters.max_completion_tokens or parameters.max_tokens
    caps = rollout is not None
    requests = service.token_requests(parameters, [prompt], max_tokens, parameters.top_logprobs or 0, caps=caps)
    return await respond(request, ConversationAnswer(service, parameters, requests, rollout, chat, conversation))


class ConversationAnswer(Answer):
    """An answer with messages."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    parameters: ChatParameters

    def __init__(
        self,
        service: PolicyService,
        parameters: ChatParameters,
        requests: Sequence[TokenRequest],
        rollout: RolloutCalls | None,
        chat: ChatEncoder,
        conversation: ChatPrompt,
    ) -> None:
        call_format = chat.call_format if conversation.reads_calls else None
        super().__init__(service, parameters, requests, rollout, call_format)
        self.messages, self.tools = conversation.messages, conversation.declarations
        self._chat = chat
        self._conversation = conversation

    def choice(self, index: int, reply: TokenReply) -> dict[str, Any]:
        """Return the choice of the whole answer for a reply, and keep its call."""
        message, reason = self._end(index, reply)
        return {"message": message} | self._details(reply) | {"finish_reason": reason}

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the first choice of each reply."""
        for index in range(len(self.texts)):
            delta = {"role": "assistant", "content": ""}
            yield {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def add(self, part: ReplyPart) -> Iterator[dict[str, Any]]:
        """Yield the choices of the events for a part of a reply."""
        index, text = part.index, self.texts[part.index]
        delta: dict[str, Any] = {"content": text.add(part.tokens.tokens)}
        reason = None
        if part.reply is not None:
            message, reason = self._end(index, part.reply)
            delta["content"] += text.rest(message["content"] or "")
            if calls := message.get("tool_calls"):
                delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls)]
        if any(delta.values()) or part.tokens.tokens:
            yield {"index": index, "delta": delta} | self._details(part.tokens) | {"finish_reason": None}
        if reason is not None:
            yield {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}

    def prompt_fields(self) -> dict[str, Any]:
        """Return the prompt's ids, if the client asked for them."""
        return {"prompt_token_ids": list(self.prompts[0])} if self.parameters.return_token_ids else {}

    def _end(self, index: int, reply: TokenReply) -> tuple[dict[str, Any], str]:
        """Return the message and the reason of the end, and remember the call."""
        ids = (*self.requests[index].prompt, *reply.tokens)
        message = self._chat.read_reply(self.texts[index].text, self._conversation, ids)
        self.keep(index, reply, message)
        reason = reply.finish_reason or "stop"
        return message, "tool_calls" if "tool_calls" in message and reason == "stop" else reason

    def _details(self, reply: TokenReply) -> dict[str, Any]:
        """Return the log-probabilities and the token ids of a reply or a part of it, if the client asked for them."""
        logprobs = chat_logprobs(self.service.tokenizer, reply) if self.parameters.logprobs else None
        ids = {"token_ids": list(reply.tokens)} if self.parameters.return_token_ids else {}
        return {"logprobs": logprobs} | ids
