"""Continuous batching: replies do not depend on who else is answered, where, or what is read again."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

from agent_tunix.errors import OverloadedError, RequestRefusedError
from agent_tunix.policy.files.adapter_files import read_adapter
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.continuous import ContinuousSampler
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.sampling.sampler import Sampler
from tests.training.reference_sampler import logits_of, logps_of
from tests.training.test_logps import ARCHITECTURES

V, CONTEXT = 53, 96
EOS = (0, 1)


class Letters:
    """A tokenizer of letters."""

    eos_ids = EOS

    def pad_id(self) -> int:
        return 0

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(60 + token) for token in ids)


every_kind = pytest.mark.parametrize(
    "sampler", ["sliding", pytest.param("linear", marks=pytest.mark.slow)], indirect=True, scope="module"
)


@pytest.fixture(scope="module")
def sampler(request: pytest.FixtureRequest) -> Iterator[Sampler]:
    """In float32, with weights large enough that words differ."""
    kind = getattr(request, "param", "sliding")
    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        model = Decoder(
            ARCHITECTURES[kind], dtype=jnp.dtype("float32"), param_dtype=jnp.dtype("float32"), rngs=nnx.Rngs(0)
        )
        nnx.update(model, jax.tree.map(lambda x: x * 15 if x.ndim > 1 else x + 0.3, nnx.state(model)))
        yield Sampler(model, Letters(), make_mesh([1, 1]))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def source(sampler: Sampler) -> ContinuousSampler:
    return ContinuousSampler(sampler, num_places=16, max_context=CONTEXT, max_waiting=40, chunk_tokens=8)


def make_prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(7, V, length).tolist())


def answer(source: ContinuousSampler, *requests: TokenRequest) -> list[TokenReply]:
    futures = [source.submit(request) for request in requests]
    source.run_pending()
    return [future.result(timeout=0) for future in futures]


KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.7},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"temperature": 0.0},
]


def make_requests() -> list[TokenRequest]:
    return [
        TokenRequest(make_prompt(n, 3 + 5 * n % 47), max_tokens=5 + 3 * n % 29, seed=n, **KINDS[n % len(KINDS)])
        for n in range(16)
    ]


@pytest.mark.slow
@every_kind
def test_replies_are_equal_alone_and_among_others(sampler: Sampler, source: ContinuousSampler) -> None:
    requests = make_requests()
    together = answer(source, *requests)
    alone = ContinuousSampler(sampler, num_places=1, max_context=CONTEXT, chunk_tokens=8)
    for request, reply in zip(requests, together, strict=True):
        (other,) = answer(alone, request)
        assert other.tokens == reply.tokens
        np.testing.assert_allclose(other.logps, reply.logps, atol=1e-3)
        assert len(reply.tokens) <= request.max_tokens
        assert (reply.finish_reason == "stop") == (reply.tokens[-1] in EOS)


@every_kind
def test_log_probabilities_are_those_of_a_plain_pass(sampler: Sampler, source: ContinuousSampler) -> None:
    request = TokenRequest(
        make_prompt(3, 41), max_tokens=20, temperature=0.7, seed=1, num_alternatives=2, with_prompt_logps=True
    )
    (reply,) = answer(source, request)
    logits = logits_of(sampler.policy, CONTEXT)
    np.testing.assert_allclose(reply.logps, logps_of(logits, request.prompt, reply.tokens, 0.7), atol=2e-3)
    assert reply.prompt_logps[0] is None
    expected = logps_of(logits, request.prompt[:1], request.prompt[1:], 0.7)
    np.testing.assert_allclose(np.array(reply.prompt_logps[1:], float), expected, atol=2e-3)
    for place, likeliest in enumerate(reply.alternatives):
        logits_V = logits([*request.prompt, *reply.tokens[:place]])[-1]
        assert [token for token, _ in likeliest] == np.argsort(-logits_V)[:2].tolist()
    assert len(reply.prompt_alternatives) == len(request.prompt)
    assert all(len(likeliest) == 2 for likeliest in reply.prompt_alternatives[1:])


@every_kind
def test_a_conversation_reads_only_what_was_added(sampler: Sampler) -> None:
    source = ContinuousSampler(sampler, num_places=3, max_context=CONTEXT, chunk_tokens=8)
    talks = [make_prompt(seed, 20) for seed in range(2)]
    for turn in range(4):
        requests = [TokenRequest(talk, max_tokens=9, seed=turn) for talk in talks]
        replies = answer(source, *requests)
        for number, (request, reply) in enumerate(zip(requests, replies, strict=True)):
            fresh = ContinuousSampler(sampler, num_places=1, max_context=CONTEXT, chunk_tokens=8)
            assert answer(fresh, request)[0].tokens == reply.tokens
            assert reply.num_cached == (len(request.prompt) - 7 if turn else 0)
            talks[number] = (*request.prompt, *reply.tokens, *make_prompt(turn, 6))
    counts = source.counts
    assert counts["written"] == sum(len(talk) for talk in talks) - 2 * (20 + 4 * 6)
    # Every prompt's last token is read with the reply.
    assert counts["read"] + counts["cached"] == counts["prompt"] - 8
    assert counts["read"] == 2 * (19 + 3 * 6)


@every_kind
def test_equal_prompts_are_read_once(source: ContinuousSampler) -> None:
    prompt = make_prompt(77, 50)
    before = source.counts["read"]
    replies = answer(source, *[TokenRequest(prompt, max_tokens=6, seed=seed) for seed in range(12)])
    assert source.counts["read"] - before == 49
    assert len({reply.tokens for reply in replies}) > 6
    (again,) = answer(source, TokenRequest(prompt, max_tokens=6, seed=4))
    assert again.tokens == replies[4].tokens


def test_new_weights_forget_what_was_read(sampler: Sampler) -> None:
    version = 3
    source = ContinuousSampler(sampler, num_places=2, max_context=CONTEXT, chunk_tokens=8, version=lambda: version)
    request = TokenRequest(make_prompt(5, 30), max_tokens=4, seed=1)
    assert [reply.num_cached for _ in range(2) for reply in answer(source, request)] == [0, 29]
    version = 4
    (reply,) = answer(source, request)
    assert (reply.num_cached, reply.version) == (0, 4)


def test_stops_cut_exactly(sampler: Sampler, source: ContinuousSampler) -> None:
    request = TokenRequest(make_prompt(9, 12), max_tokens=30, seed=2)
    (whole,) = answer(source, request)
    assert len(whole.tokens) > 6
    text = sampler.tokenizer.decode(whole.tokens)
    parts: list[TokenReply] = []
    future = source.submit(replace(request, stop_strings=("unseen", text[4:6])), parts.append)
    source.run_pending()
    reply = future.result(timeout=0)
    assert reply.tokens == whole.tokens[: text.index(text[4:6]) + 2]
    assert reply.finish_reason == "stop"
    assert sum((part.tokens for part in parts), ()) == reply.tokens
    assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + ["stop"]
    stop = whole.tokens[3]
    (reply,) = answer(source, replace(request, stop_ids=(stop,)))
    assert reply.tokens == whole.tokens[: whole.tokens.index(stop) + 1]
    assert (len(reply.logps), reply.finish_reason) == (len(reply.tokens), "stop")
    (again,) = answer(source, request)
    assert again.tokens == whole.tokens


@pytest.mark.slow
def test_a_long_prompt_lets_others_write(sampler: Sampler) -> None:
    source = ContinuousSampler(sampler, num_places=4, max_context=1024, chunk_tokens=8)
    short = source.submit(TokenRequest(make_prompt(1, 5), max_tokens=8, seed=1))
    long = source.submit(TokenRequest(make_prompt(2, 900), max_tokens=4, seed=1))
    while not short.done():
        source.step()
    assert not long.done()
    source.run_pending()
    assert long.result(timeout=0).tokens


def test_a_cancelled_request_leaves_its_place(source: ContinuousSampler) -> None:
    requests = [TokenRequest(make_prompt(n, 10), max_tokens=30, seed=1) for n in range(20)]
    futures = [source.submit(request) for request in requests]
    source.step()
    cancelled = [future for future in futures[:19] if future.cancel()]
    assert len(cancelled) > 3
    source.run_pending()
    assert all(future.cancelled() or future.result(timeout=0).tokens for future in futures)
    assert not source.step()


def test_too_many_requests_are_refused_and_closing_fails_the_others(sampler: Sampler) -> None:
    source = ContinuousSampler(sampler, num_places=1, max_context=CONTEXT, max_waiting=2)
    request = TokenRequest((5, 6), max_tokens=4)
    futures = [source.submit(request) for _ in range(3)]  # one has a place
    with pytest.raises(OverloadedError, match="2 requests"):
        source.submit(request)
    source.close()
    for future in futures:
        with pytest.raises(OverloadedError, match="closed"):
            future.result(timeout=0)
    with pytest.raises(OverloadedError, match="closed"):
        source.submit(request)


def test_without_a_queue_free_places_are_given_away(sampler: Sampler) -> None:
    source = ContinuousSampler(sampler, num_places=2, max_context=CONTEXT, max_waiting=0, chunk_tokens=8)
    request = TokenRequest((5, 6), max_tokens=20, seed=1)
    futures = [source.submit(request) for _ in range(2)]
    with pytest.raises(OverloadedError):
        source.submit(request)
    source.run_pending()
    assert all(future.result(timeout=0).tokens for future in futures)
    assert answer(source, request)


def test_a_copy_that_fails_leaves_its_place(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ContinuousSampler(sampler, num_places=2, max_context=CONTEXT, chunk_tokens=8)
    request = TokenRequest(make_prompt(1, 20), max_tokens=20, seed=1)

    def fail(source: int, target: int) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(source._programs, "copy", fail)
        futures = [source.submit(request) for _ in range(2)]
        with pytest.raises(MemoryError):
            source.run_pending()
    assert all(isinstance(future.exception(timeout=0), MemoryError) for future in futures)
    first, second = answer(source, request, request)
    assert first.tokens == second.tokens


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": ()},
        {"prompt": (V,)},
        {"prompt": (5,) * CONTEXT},
        {"adapter": "unknown"},
    ],
    ids=str,
)
def test_what_cannot_be_answered_is_refused(source: ContinuousSampler, change: dict[str, Any]) -> None:
    with pytest.raises(RequestRefusedError):
        source.submit(replace(TokenRequest((5, 6), max_tokens=4), **change))


def test_an_error_fails_all_requests_and_later_ones_are_answered(sampler: Sampler) -> None:
    fails = True

    def version() -> int:
        if fails:
            raise OSError("no version")
        return 0

    source = ContinuousSampler(sampler, num_places=2, max_context=CONTEXT, chunk_tokens=8, version=version)
    futures = [source.submit(TokenRequest((5, 6), max_tokens=4)) for _ in range(3)]
    with pytest.raises(OSError, match="no version"):
        source.run_pending()
    for future in futures:
        with pytest.raises(OSError, match="no version"):
            future.result(timeout=0)
    fails = False
    assert answer(source, TokenRequest((5, 6), max_tokens=4))


def test_whoever_reads_along_fails_alone(source: ContinuousSampler) -> None:
    def fail(part: TokenReply) -> None:
        raise OSError("gone")

    request = TokenRequest((5, 6), max_tokens=4, seed=1)
    failing, other = source.submit(request, fail), source.submit(request)
    source.run_pending()
    assert other.result(timeout=0).tokens
    with pytest.raises(OSError, match="gone"):
        failing.result(timeout=0)


def test_a_thread_serves_until_it_is_stopped(source: ContinuousSampler) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=source.serve_forever, args=(stop,))
    thread.start()
    replies = [source.submit(TokenRequest((5, n), max_tokens=4, seed=n)) for n in range(7, 27)]
    assert all(future.result(timeout=60).tokens for future in replies)
    stop.set()
    source.wake()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_the_cache_is_given_up_when_nothing_is_answered(sampler: Sampler) -> None:
    source = ContinuousSampler(sampler, num_places=2, max_context=CONTEXT, chunk_tokens=8)
    requests = [TokenRequest(make_prompt(1, 20), max_tokens=30, seed=seed) for seed in range(8)]
    pairs = zip(requests, answer(source, *requests), strict=True)
    request, expected = max(pairs, key=lambda pair: len(pair[1].tokens))
    future = source.submit(request)
    source.step()
    source.serve_until(lambda: True)  # in the middle of the reply
    assert not source._programs.is_empty
    source.serve_until(future.done)
    assert future.result(timeout=0).tokens == expected.tokens
    assert source._programs.is_empty
    (again,) = answer(source, request)
    assert (again.tokens, again.num_cached) == (expected.tokens, 0)


@pytest.mark.slow
def test_adapters_answer_beside_the_policy(sampler: Sampler, source: ContinuousSampler, tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).normal(size=(2, 8, 16)).astype(np.float32)
    name = "base_model.model.model.layers.1.self_attn.q_proj.lora"
    tensors = {f"{name}_A.weight": drawn[0, :4], f"{name}_B.weight": np.ascontiguousarray(drawn.reshape(-1, 4)[:32])}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 8}')
    request = TokenRequest(make_prompt(3, 30), max_tokens=10, seed=1)
    source.load_adapter("mine", tmp_path)
    assert source.adapters == ["mine"]
    plain, adapted, again = answer(source, request, replace(request, adapter="mine"), request)
    assert plain.tokens == again.tokens
    assert adapted.num_cached == 0
    model = read_adapter(sampler.policy, tmp_path, sampler.mesh)  # type: ignore[arg-type]
    for policy, reply in ((sampler.policy, plain), (model, adapted)):
        expected = logps_of(logits_of(policy, CONTEXT), request.prompt, reply.tokens, 1.0)
        np.testing.assert_allclose(reply.logps, expected, atol=2e-3)
    waiting = source.submit(replace(request, adapter="mine"))
    source.unload_adapter("mine")
    with pytest.raises(RequestRefusedError, match="mine"):
        source.submit(replace(request, adapter="mine"))
    source.run_pending()
    assert waiting.result(timeout=0).tokens == adapted.tokens
