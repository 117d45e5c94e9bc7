"""Stop strings: found in the tokens while they are sampled, as they are in the text."""

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_tunix.config.compose import compose_overrides
from agent_tunix.errors import ConfigError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.sampling.sampler import Completions, Sampler
from agent_tunix.sampling.stop_strings import STOPPED, make_stop_table
from agent_tunix.sampling.token_choice import SamplingParams
from tests.raising import raises

TEXTS = st.text("abc", min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(tokens=st.lists(TEXTS | st.just(""), min_size=1, max_size=12), stops=st.lists(TEXTS, min_size=1, max_size=3))
def test_the_table_stops_at_the_token_after_which_the_text_has_a_stop_string(
    tokens: list[str], stops: list[str]
) -> None:
    table = make_stop_table([*tokens, *"abc"], stops)
    state, text = 0, ""
    for number, token in enumerate(tokens):
        state, text = int(table[state, number]), text + token
        assert (state == STOPPED) == any(stop in text for stop in stops)
        if state == STOPPED:
            return


@pytest.mark.parametrize("name", ["tiny_qwen3", "tiny_tools"])
def test_texts_of_tokens_are_joined_as_they_are_decoded(name: str) -> None:
    tokenizer = Tokenizer(EMBEDDED_MODEL.parent / name)
    texts = tokenizer.token_texts()
    ids = tokenizer.encode("Sam has 12 apples. <answer>\n\n 7</answer> and so on", allow_special=False)
    assert "".join(texts[token] for token in ids) == tokenizer.decode(ids)
    assert texts[tokenizer.eos_ids[0]] == ""


def sample(sampler: Sampler, prompts: list[list[int]]) -> Completions:
    return sampler.sample(prompts, jax.random.key(1), SamplingParams(24), num_generations=4, max_prompt_length=64)


@pytest.mark.slow
def test_a_completion_is_the_same_up_to_its_stop_string(
    sampler: Sampler, policy: nnx.Module, tokenizer: Tokenizer, mesh: jax.sharding.Mesh, prompts: list[list[int]]
) -> None:
    stops = ["= 1", ">1", "th"]
    whole, found = sample(sampler, prompts), sample(Sampler(policy, tokenizer, mesh, None, stops), prompts)
    num_stopped = 0
    for row in range(len(whole.texts)):
        ids = whole.tokens[row, : whole.lengths[row]].tolist()
        texts = [tokenizer.decode(ids[:length]) for length in range(1, len(ids) + 1)]
        end = next((place for place, text in enumerate(texts) if any(stop in text for stop in stops)), None)
        length = len(ids) if end is None else end + 1
        assert found.tokens[row, : found.lengths[row]].tolist() == ids[:length]
        np.testing.assert_allclose(found.logps[row, :length], whole.logps[row, :length], atol=1e-5)
        assert found.ended[row] == (whole.ended[row] or end is not None)
        assert not any(stop in found.texts[row] for stop in stops)
        assert texts[length - 1].startswith(found.texts[row])
        num_stopped += end is not None
    assert 0 < num_stopped < len(whole.texts)


def test_the_plain_prompt_ends_at_the_next_question() -> None:
    assert compose_overrides(["prompt=plain"]).generation.stop_strings == ["\nQuestion:"]


def test_a_stop_string_with_a_character_of_several_tokens_is_refused() -> None:
    with raises(ConfigError, "invalid_tokenizer"):
        make_stop_table(["a", "\ufffd"], ["a。"])
