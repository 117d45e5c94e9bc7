"""Episodes: sampled token for token as by a plain loop that reads the whole text anew for each token."""

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.environments import EpisodeEnvironment, StopReason, adapt_environment
from agent_tunix.grpo.loss import make_policy_loss
from agent_tunix.grpo.micro_batches import make_loss_inputs, place_micro_batches
from agent_tunix.grpo.training_rows import loss_mask
from agent_tunix.planning.cache_plan import Stage
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.sampling import episodes
from agent_tunix.sampling.episodes import EpisodeLimits, EpisodeSampler
from agent_tunix.sampling.sampler import Completions, Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from tests.training import reference_sampler
from tests.training.test_logps import assert_close, gradients, model

__all__ = ["model"]  # a fixture, in float64, so that rounding decides nothing

G, P, T, L, V = 4, 9, 6, 48, 53
SHORT = 24  # tokens of an episode: enough for a reply, and few to compile
PAD, END = 0, tuple(range(1, 16))
MAX_TURNS = 5
KEY = jax.random.key(3)
SAMPLED = SamplingParams(T, temperature=1.5)
PROMPTS = ["hello", "ab", "x"]


def to_ids(text: str) -> list[int]:
    """A letter is a token."""
    return [16 + ord(letter) % (V - 16) for letter in text]


class Talker:
    """Answers with a text whose length depends on what was said, and now and then has heard enough."""

    def reset(self, **row: Any) -> str:
        return ""

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        number = hashlib.sha256(action.encode()).digest()[0]
        return "reply" * (1 + number % 2) + "." * (number % 7), 0.5, number % 8 == 0, {}


class Threaded:
    """Environments in threads, without workers. Calls take any time."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(4)

    def open(self, row: Mapping[str, Any]) -> EpisodeEnvironment:
        return adapt_environment(row["kind"], "talker").open()

    def submit(self, function: Callable[[Any], None], item: Any) -> Future[None]:
        def call() -> None:
            time.sleep(random.choice([0, 0, 0.01, 0.1]))
            function(item)

        return self._executor.submit(call)

    def for_each(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        for item in items:
            function(item)

    release = for_each


class Letters:
    """Encoder of prompts and replies, and tokenizer."""

    call_format = "hermes"
    eos_ids = END

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> list[int]:
        return to_ids("".join(message["content"] for message in messages))

    def encode_replies(
        self, replies: Sequence[Sequence[Mapping[str, Any]]], last_tokens: Sequence[int]
    ) -> list[list[int]]:
        return [to_ids("<" + "".join(one["content"] for one in of_row) + ">") for of_row in replies]

    def shorten(self, text: str, max_tokens: int) -> str:
        return text[:max_tokens]

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return ["".join(chr(0x100 + token) for token in row if token not in END) for row in rows]

    def pad_id(self) -> int:
        return PAD


def sample(
    model: Any,
    sampling: SamplingParams = SAMPLED,
    *,
    most: int = SHORT,
    kind: type = Talker,
    schedule: str = "lockstep",
    mesh: jax.sharding.Mesh | None = None,
) -> Completions:
    letters: Any = Letters()
    environments: Any = Threaded()
    limits = EpisodeLimits(MAX_TURNS, most, 12, waits_for_all=schedule == "lockstep")
    sampler = EpisodeSampler(Sampler(model, letters, mesh or make_mesh([1, 1])), environments, letters, limits)
    batch = PromptBatch(
        prompts=PROMPTS,
        messages=[[{"role": "user", "content": prompt}] for prompt in PROMPTS],
        token_ids=[to_ids(prompt) for prompt in PROMPTS],
        columns=[{"kind": kind}] * len(PROMPTS),
    )
    return sampler.sample_batch(batch, KEY, sampling, num_generations=G, max_prompt_length=P)


def plain_episode(logits: Any, row: int, sampling: SamplingParams, most: int) -> tuple[list[int], list[bool], str]:
    """Return the tokens of an episode, which of them are the policy's, and why it ended."""
    prompt, environment = to_ids(PROMPTS[row // G]), Talker()
    ids: list[int] = []
    sampled: list[bool] = []
    for turn in range(1, MAX_TURNS + 1):
        start = len(ids)
        while len(ids) - start < T and len(ids) < most and not (len(ids) > start and ids[-1] in END):
            uniforms = jax.random.uniform(jax.random.fold_in(KEY, len(ids)), (len(PROMPTS) * G, 2), np.float32)[row]
            ids.append(reference_sampler.choose(logits([*prompt, *ids])[-1], np.asarray(uniforms), sampling, PAD))
            sampled.append(True)
        if ids[-1] not in END:
            return ids, sampled, "max_episode_tokens" if len(ids) == most else "max_turn_tokens"
        (said,) = Letters().decode_batch([ids[start:]])
        reply, _, done, _ = environment.step(said)
        if done:
            return ids, sampled, "environment_done"
        added = to_ids(f"<{reply[:12]}>")
        if turn == MAX_TURNS:
            return ids, sampled, "max_turns"
        if len(ids) + len(added) >= most:
            return ids, sampled, "max_episode_tokens"
        ids += added
        sampled += [False] * len(added)
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "sampling", "most", "schedule"),
    [
        pytest.param("sliding", SAMPLED, L, "lockstep", id="sampled"),
        pytest.param("sliding", SAMPLED, 13, "lockstep", id="shortest"),
        pytest.param("sliding", SamplingParams(T, greedy=True), L, "lockstep", id="greedy"),
        # Recurrent states must stay at the last token read, in rows that wait, end or leave the batch.
        pytest.param("linear", SAMPLED, L, "stages", id="linear, stages"),
        pytest.param("linear", SAMPLED, L, "arrival", id="linear, arrival"),
    ],
    indirect=["model"],
)
def test_every_token_is_that_of_a_loop_that_reads_everything_anew(
    model: Any, sampling: SamplingParams, most: int, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "_TOKENS_BETWEEN_ARRIVALS", 4)  # shorter than a turn
    if schedule == "stages":  # turns are too short for several
        stages = Stage(len(PROMPTS), G, 0), Stage(4, 2, 0), Stage(3, 1, 0)
        monkeypatch.setattr(episodes, "plan_stages", lambda *_: stages)
        schedule = "lockstep"
    found = sample(model, sampling, most=most, schedule=schedule)
    assert found.episodes is not None
    assert found.sampled is not None
    logits = reference_sampler.logits_of(model, P + L)
    reasons = []
    for row, (length, episode) in enumerate(zip(found.lengths, found.episodes, strict=True)):
        ids, sampled, reason = plain_episode(logits, row, sampling, most)
        assert (found.tokens[row, :length].tolist(), str(episode.stop_reason)) == (ids, reason)
        assert found.sampled[row].tolist() == sampled + [False] * (most - length)
        assert found.ended[row] == (reason == "environment_done")
        if not sampling.greedy:
            expected = reference_sampler.logps_of(logits, to_ids(PROMPTS[row // G]), ids, sampling.temperature)
            np.testing.assert_allclose(found.logps[row, :length], np.where(sampled, expected, 0.0), atol=1e-6)
        reasons.append(reason)
    if sampling is SAMPLED and most == L:  # or nothing above were tested
        assert len(set(reasons)) >= 3
        assert len({episode.num_turns for episode in found.episodes}) >= 3


def test_only_what_the_policy_wrote_is_trained(model: Any) -> None:
    found = sample(model)
    assert found.sampled is not None
    mask = loss_mask(found, Config())
    assert (mask == found.sampled).all()
    assert 0 < mask.sum() < found.lengths.sum()
    assert found.num_sampled.tolist() == mask.sum(axis=1).tolist()
    assert (found.logps[~mask] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sliding", "quantised"], indirect=True)
def test_the_gradient_of_an_episode_is_that_of_a_plain_pass_over_its_transcript(model: Any) -> None:
    found = sample(model)
    config = Config()
    config.grpo.num_generations, config.grpo.loss_agg_mode, config.grpo.beta = G, "token-mean", 0.0
    config.training.batch_size, config.generation.temperature = len(PROMPTS), 1.5
    mesh, advantages = make_mesh([1, 1]), np.random.default_rng(0).normal(size=len(found.texts))
    micro_batches = place_micro_batches(found, config, mesh, None)
    (inputs,), _ = make_loss_inputs(micro_batches, found, advantages, config, mesh)

    prompts = [to_ids(PROMPTS[row // G]) for row in range(len(advantages))]
    sampled = np.asarray(found.sampled)
    ids = np.zeros((len(advantages), P + SHORT), np.int32)
    weights = np.zeros((len(advantages), P + SHORT - 1))
    for row, (prompt, length) in enumerate(zip(prompts, found.lengths, strict=True)):
        ids[row, : len(prompt) + length] = [*prompt, *found.tokens[row, :length]]
        trained = sampled[row, :length]
        weights[row, len(prompt) - 1 : len(prompt) - 1 + length] = advantages[row] * trained / sampled.sum()

    def plain(model: Any) -> Any:
        mask = np.broadcast_to(np.tril(np.ones((P + SHORT, P + SHORT), bool)), (len(ids), P + SHORT, P + SHORT))
        logits, _ = model(ids, np.broadcast_to(np.arange(P + SHORT), ids.shape), None, mask)
        logps = jax.nn.log_softmax(logits[:, :-1] / 1.5)
        return -(jnp.take_along_axis(logps, ids[:, 1:, None], 2)[..., 0] * weights).sum()

    policy_loss = make_policy_loss(config)
    # The weights of completions are float32, and the gradients up to 0.1.
    assert_close(gradients(model, lambda model: policy_loss(model, inputs)[0]), gradients(model, plain), atol=1e-7)


class BreaksAtTheThirdEpisode(Talker):
    """Its third instance cannot begin."""

    made = 0

    def reset(self, **row: Any) -> str:
        type(self).made += 1
        if type(self).made == 3:
            raise OSError("no more boards")
        return super().reset(**row)


def test_an_episode_that_breaks_has_an_error_and_the_others_stay_as_they_were(model: Any) -> None:
    whole, found = sample(model), sample(model, kind=BreaksAtTheThirdEpisode)
    assert found.episodes is not None
    broken = found.episodes[2]
    assert broken.stop_reason is StopReason.ERROR
    assert "no more boards" in broken.error
    assert found.lengths[2] == 0
    others = [row for row in range(len(found.texts)) if row != 2]
    assert found.tokens[others].tolist() == whole.tokens[others].tolist()


class BeginsDifferently(Talker):
    """Ignores the seed."""

    made = 0

    def reset(self, **row: Any) -> str:
        type(self).made += 1
        return "odd" if type(self).made == 2 else ""


def test_episodes_of_a_group_must_begin_alike(model: Any) -> None:
    found = sample(model, kind=BeginsDifferently)
    assert found.episodes is not None
    assert "the same text and tools" in found.episodes[1].error
    assert [bool(episode.error) for episode in found.episodes].count(True) == 1


class Parts:
    """A benchmax environment whose prompts have their text in parts, which the encoder refuses."""

    def dataset_preprocess(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt_messages": [{"role": "user", "content": [{"type": "text", "text": "Go."}]}]}

    def list_tools(self) -> list[Any]:
        return []

    def run_tool(self, rollout_id: str, tool_name: str) -> None:
        pass


def test_a_prompt_of_an_environment_that_cannot_be_encoded_is_an_error_of_its_episodes(model: Any) -> None:
    found = sample(model, kind=Parts)
    assert found.episodes is not None
    assert all("cannot be encoded" in episode.error for episode in found.episodes)
