"""`/v1/completions` as the `openai` client and lm-eval use it."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serving.support import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(lambda prompt: f" after {prompt}") as server:
        yield server


def encode(server: Running, text: str) -> list[int]:
    return server.source.tokenizer.encode(text)


@pytest.mark.parametrize("as_ids", [False, True])
def test_texts_and_token_ids_are_continued(server: Running, as_ids: bool) -> None:
    texts = ["one", "two plus two"]
    prompt: Any = [encode(server, text) for text in texts] if as_ids else texts
    reply = server.openai().completions.create(model="policy", prompt=prompt, max_tokens=40, n=2)
    assert [choice.text for choice in reply.choices] == [f" after {text}" for text in texts for _ in range(2)]
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    one = server.openai().completions.create(model="policy", prompt=prompt[0], max_tokens=40)
    assert [choice.text for choice in one.choices] == [" after one"]


def test_sixteen_tokens_are_the_default(server: Running) -> None:
    server.openai().completions.create(model="policy", prompt="one")
    assert server.source.requests[-1].max_tokens == 16


def test_a_prompt_is_repeated_with_its_probabilities(server: Running) -> None:
    """As lm-eval asks for the likelihood of the end of a text."""
    ids = encode(server, "one plus two")
    reply = server.openai().completions.create(
        model="policy", prompt=[ids], max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1
    )
    (choice,) = reply.choices
    assert choice.text.startswith("one plus two")
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.top_logprobs is not None
    assert choice.logprobs.token_logprobs[0] is None
    assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.top_logprobs) == len(ids) + 1
    assert "".join(choice.logprobs.tokens or ())[: len("one plus two")] == "one plus two"
    offsets = choice.logprobs.text_offset or []
    tokens = choice.logprobs.tokens or []
    shown = [choice.text[start : start + len(token)] for start, token in zip(offsets, tokens, strict=True)]
    assert shown == tokens


def test_a_stream_has_the_text_and_the_ids(server: Running) -> None:
    events = server.openai().completions.create(
        model="policy",
        prompt="one",
        max_tokens=40,
        stream=True,
        logprobs=0,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    )
    choices, usage = [], None
    for event in events:
        choices += event.choices
        usage = event.usage or usage
    assert "".join(choice.text for choice in choices) == " after one"
    extras = [choice.model_extra or {} for choice in choices]
    tokens = [token for extra in extras for token in extra.get("token_ids", ())]
    assert tokens == [*encode(server, " after one"), server.source.tokenizer.eos_id()]
    assert extras[0]["prompt_token_ids"] == encode(server, "one")
    assert choices[-1].finish_reason == "stop"
    assert usage is not None
    assert usage.completion_tokens == len(tokens)


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"echo": True, "stream": True}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"best_of": 4}, "best_of"),
        ({"suffix": "end"}, "suffix"),
    ],
)
def test_what_cannot_be_continued_is_refused(server: Running, parameters: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().completions.create(**({"model": "policy", "prompt": "one"} | parameters))
    assert error.value.param == param


def test_a_full_server_asks_to_come_again(server: Running) -> None:
    server.source.is_full = True
    try:
        with pytest.raises(openai.RateLimitError) as error:
            server.openai().completions.create(model="policy", prompt="one")
    finally:
        server.source.is_full = False
    assert error.value.response.headers["retry-after"] == "1"
    assert error.value.code == "overloaded"
