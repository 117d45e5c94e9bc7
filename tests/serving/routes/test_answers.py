"""Answers about tokens whose log-probability is not known."""

import json
import math

from agent_tunix.sampling.requests import TokenReply
from agent_tunix.serving.routes.answers import chat_logprobs, completion_logprobs
from tests.serving.support import open_tokenizer


def test_a_log_probability_that_an_engine_did_not_tell_is_no_invalid_json() -> None:
    tokenizer = open_tokenizer()
    reply = TokenReply(tuple(tokenizer.encode("42")[:1] * 2), (math.nan, -0.5), "stop")
    of_chat = chat_logprobs(tokenizer, reply)
    assert [one["logprob"] for one in of_chat["content"]] == [-9999.0, -0.5]
    of_text = completion_logprobs(tokenizer, reply)
    assert of_text["token_logprobs"] == [None, -0.5]
    json.dumps([of_chat, of_text], allow_nan=False)
