"""The wires against stand-ins of vLLM and SGLang that follow their published sources."""

import asyncio
import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file

from agent_tunix.engines import vllm
from agent_tunix.engines.source import EngineSource, make_wire
from agent_tunix.errors import EngineError, RequestRefusedError
from agent_tunix.sampling.requests import TokenRequest
from tests.engines.stand_ins import Fault, SglangStandIn, ToyPolicy, VllmStandIn
from tests.raising import raises

PROMPT = (9, 8, 7, 6, 5)
REQUEST = TokenRequest(PROMPT, 12, temperature=0.7, seed=5, stop_ids=(1,))
every_kind = pytest.mark.parametrize("stand_in", [VllmStandIn, SglangStandIn])


@contextlib.contextmanager
def running(stand_in: Any, *faults: Fault, **options: Any) -> Iterator[tuple[Any, EngineSource]]:
    """An engine with a key, and a source that samples from it."""
    engine = stand_in(ToyPolicy(), key="sesame")
    kind = "vllm" if stand_in is VllmStandIn else "sglang"
    with engine.running() as url:
        wire = make_wire(kind, ToyPolicy().vocab_size)
        with EngineSource([url], wire, api_key="sesame", **{"timeout_s": 20.0, "max_retries": 1} | options) as source:
            source.wait_until_ready()
            engine.faults = set(faults)
            engine.fault_paths = ("/v1/completions", "/generate")
            yield engine, source


@every_kind
def test_replies_are_those_of_the_policy(stand_in: Any) -> None:
    with running(stand_in) as (engine, source):
        expected = engine.policy.reply(7, REQUEST)
        reply = source.submit(REQUEST).result(20)
        assert (reply.tokens, reply.finish_reason) == (expected.tokens, expected.finish_reason)
        assert reply.logps == expected.logps
        whole = (*PROMPT, *reply.tokens)
        (scores,) = source.each(lambda wire, client: wire.score(client, engine.base, whole)).values()
        places = range(1, len(whole))
        np.testing.assert_allclose(scores, [engine.policy.logps(7, whole[:n])[whole[n]] for n in places])


@every_kind
def test_defaults_of_the_model_change_nothing(stand_in: Any) -> None:
    with running(stand_in, Fault.DEFAULT_SAMPLING) as (engine, source):
        plain = TokenRequest(PROMPT, 12, seed=5)
        assert source.submit(plain).result(20).tokens == engine.policy.reply(7, plain).tokens


@every_kind
@pytest.mark.parametrize("fault", [Fault.MISSING_LOGPS, Fault.INFINITE_LOGPS])
def test_a_log_probability_that_cannot_be_used_is_not_a_number(stand_in: Any, fault: Fault) -> None:
    with running(stand_in, fault) as (_, source):
        logps = source.submit(REQUEST).result(20).logps
        assert math.isnan(logps[-1])
        assert all(map(math.isfinite, logps[:-1]))


@every_kind
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.STARTING, "engine_unavailable"),
        (Fault.HALF_BODY, "engine_unavailable"),
        (Fault.HANG, "engine_unavailable"),
        (Fault.ABORT, "engine_aborted"),
    ],
)
def test_a_fault_is_an_error_of_its_own(stand_in: Any, fault: Fault, code: str) -> None:
    limit_s = 0.5 if fault is Fault.HANG else 20.0
    with running(stand_in, fault, timeout_s=limit_s) as (_, source), raises(EngineError, code):
        source.submit(REQUEST).result(20)


def test_a_reply_of_another_model_is_an_error() -> None:
    with running(VllmStandIn, Fault.OTHER_MODEL) as (_, source), raises(EngineError, "engine_other_model", "another"):
        source.submit(REQUEST).result(20)


@every_kind
def test_a_prompt_beyond_the_context_is_refused_in_the_words_of_the_engine(stand_in: Any) -> None:
    with running(stand_in) as (_, source), raises(RequestRefusedError, "engine_refused", "256"):
        source.submit(TokenRequest((5,) * 257, 12)).result(20)


@every_kind
def test_adapters_and_weights_are_those_that_were_loaded(stand_in: Any, tmp_path: Path) -> None:
    save_file({"w": np.ones(3, np.float32)}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 8}))
    with running(stand_in) as (engine, source):
        source.each(lambda wire, client: wire.load_adapter(client, "policy-v1", tmp_path))
        source.follow(1, "policy-v1")
        policy, weights = engine.policy, engine.names["policy-v1"]
        assert source.submit(REQUEST).result(20).tokens == policy.reply(weights, REQUEST).tokens
        source.each(lambda wire, client: wire.unload_adapter(client, "policy-v1"))
        with raises(EngineError, "engine_no_model", "policy-v1"):
            source.submit(REQUEST).result(20)
        assert source.counts.retries == 1
        source.each(lambda wire, client: wire.load_weights(client, tmp_path, 2))
        source.follow(2, source.base_model)
        reply = source.submit(REQUEST).result(20)
        assert (reply.tokens, reply.version) == (policy.reply(policy.read_weights(tmp_path), REQUEST).tokens, 2)
        engine.faults, engine.fault_paths = {Fault.NO_SUCCESS}, ("/",)
        with raises(EngineError, "engine_refused", "success"):
            source.each(lambda wire, client: wire.load_weights(client, tmp_path, 3))


def test_an_engine_that_hangs_while_it_reads_weights_is_left_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vllm, "_RESUME_S", 0.05)
    paths = []

    async def hang(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        await asyncio.Event().wait()
        return httpx.Response(200)

    async def load() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(hang), base_url="http://a:1") as client:
            async with asyncio.timeout(0.05):
                await vllm.VllmWire().load_weights(client, tmp_path, 1)

    with pytest.raises(TimeoutError):
        asyncio.run(load())
    assert paths == ["/pause", "/resume"]
