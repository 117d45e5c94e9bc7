"""Requests to engines: what is sent, what comes back, and which replica answers."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from agent_tunix.engines import replicas
from agent_tunix.engines.sglang import SglangWire
from agent_tunix.engines.source import EngineSource
from agent_tunix.engines.vllm import VllmWire
from agent_tunix.engines.wire import Wire
from agent_tunix.errors import EngineError, RequestRefusedError
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from tests.engines.toy_engine import VOCAB, ToyEngine, sampled
from tests.raising import raises

WIRES: list[Wire] = [VllmWire(VOCAB), SglangWire(VOCAB)]
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.kind)
PATHS = {"vllm": "/v1/completions", "sglang": "/generate"}


@contextlib.contextmanager
def opened(wire: Wire, *urls: str, **options: Any) -> Iterator[EngineSource]:
    with EngineSource(urls, wire, **{"timeout_s": 20.0} | options) as source:
        yield source


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[ToyEngine, ToyEngine]]:
    engines = ToyEngine(), ToyEngine()
    with engines[0].serving(), engines[1].serving():
        yield engines


@pytest.fixture
def engine(engines: tuple[ToyEngine, ToyEngine]) -> Iterator[ToyEngine]:
    engines[0].reset()
    yield engines[0]
    engines[0].is_held = False


@pytest.fixture
def other(engines: tuple[ToyEngine, ToyEngine]) -> ToyEngine:
    engines[1].reset()
    return engines[1]


def request_of(*prompt: int, seed: int = 3, count: int = 4, **options: Any) -> TokenRequest:
    return TokenRequest(prompt or (5, 6, 7), count, seed=seed, **options)


@every_wire
def test_tokens_and_log_probabilities_come_back_as_they_were_sampled(wire: Wire, engine: ToyEngine) -> None:
    with opened(wire, engine.url) as source:
        parts: list[TokenReply] = []
        reply = source.submit(request_of(), parts.append).result(20)
        tokens, logps = sampled([5, 6, 7], 3, 4)
        assert (list(reply.tokens), list(reply.logps)) == (tokens, logps)
        assert (reply.finish_reason, reply.version) == ("length", 0)
        assert parts == [reply]
        assert source.counts.requests == 1
        assert source.counts.tokens == 4
        _, body = engine.bodies[-1]
        sampling = body.get("sampling_params", body)
        keys = {"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"}
        assert keys <= set(sampling)


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        target: Any = answer
        for name in parents:
            target = target[int(name) if name.isdecimal() else name]
        target[last] = value

    return change


BROKEN: list[tuple[Wire, str, Callable[[dict[str, Any]], Any]]] = [
    (WIRES[0], "engine_answer", _set("choices.0.token_ids", None)),
    (WIRES[0], "engine_answer", _set("choices.0.token_ids", [1, 2, 3, VOCAB])),
    (WIRES[0], "engine_answer", _set("choices.0.token_ids", [1, 2, 3])),
    (WIRES[0], "engine_answer", _set("choices.0.token_ids", [1, 2, 3, 4, 5])),
    (WIRES[0], "engine_answer", _set("choices.0.logprobs", None)),
    (WIRES[0], "engine_answer", _set("choices.0.prompt_token_ids", [5, 6])),
    (WIRES[0], "engine_answer", _set("choices.0.finish_reason", "repetition")),
    (WIRES[0], "engine_aborted", _set("choices.0.finish_reason", "abort")),
    (WIRES[0], "engine_answer", _set("choices", [])),
    (WIRES[0], "engine_other_model", _set("model", "other")),
    (WIRES[1], "engine_answer", _set("output_ids", [1])),
    (WIRES[1], "engine_answer", _set("meta_info.output_token_logprobs", [])),
    (WIRES[1], "engine_aborted", _set("meta_info.finish_reason.type", "abort")),
    (WIRES[1], "engine_version", _set("meta_info.weight_version", "12")),
    (WIRES[1], "engine_answer", _set("meta_info", None)),
    (WIRES[0], "engine_unavailable", lambda answer: Response("{'", media_type="application/json")),
    (WIRES[0], "engine_unavailable", lambda answer: Response(status_code=500)),
    (WIRES[0], "engine_unavailable", lambda answer: Response("{", headers={"Content-Length": "400"})),
    (WIRES[0], "engine_refused", lambda answer: Response("who are you", 401)),
]


@pytest.mark.parametrize(("wire", "code", "fault"), BROKEN)
def test_an_answer_that_does_not_match_is_an_error(
    wire: Wire, code: str, fault: Callable[[dict[str, Any]], Any], engine: ToyEngine
) -> None:
    engine.fault = fault
    with opened(wire, engine.url, max_retries=1) as source, raises(EngineError, code, engine.url):
        source.submit(request_of()).result(20)


@pytest.mark.parametrize("value", [None, -9999.0, -1e30, "x"])
def test_a_log_probability_that_is_missing_is_not_a_number(value: Any, engine: ToyEngine) -> None:
    engine.fault = _set("choices.0.logprobs.token_logprobs", [-0.5, value, -0.25, -1])
    with opened(WIRES[0], engine.url) as source:
        logps = source.submit(request_of()).result(20).logps
    assert logps[0] == -0.5
    assert math.isnan(logps[1])
    assert logps[2:] == (-0.25, -1.0)


@every_wire
@pytest.mark.parametrize("options", [{"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}, {"num_alternatives": 2}])
def test_what_would_change_the_log_probabilities_is_refused(
    wire: Wire, options: dict[str, Any], engine: ToyEngine
) -> None:
    with opened(wire, engine.url) as source:
        with pytest.raises(RequestRefusedError):
            source.submit(request_of(**options)).result(20)
        assert not engine.bodies


def test_requests_wait_for_an_engine_that_starts_and_for_one_that_is_busy(engine: ToyEngine) -> None:
    engine.is_healthy = False
    answers = iter([Response(status_code=429), None])
    engine.fault = lambda answer: next(answers) if "choices" in answer else None
    with opened(WIRES[0], engine.url, max_retries=0) as source:
        future = source.submit(request_of())
        with pytest.raises(TimeoutError):
            future.result(0.3)
        engine.is_healthy = True
        assert future.result(20).tokens
        assert source.wait_until_ready()[engine.url].version == "0.33.0"


def test_without_an_engine_nothing_hangs() -> None:
    with ToyEngine().serving() as url:
        pass
    with opened(WIRES[0], url, timeout_s=0.4) as source:
        with raises(EngineError, "engine_unreachable", url, "ConnectError"):
            source.submit(request_of()).result(20)
        with raises(EngineError, "engine_unreachable", url):
            source.wait_until_ready()
        with raises(EngineError, "engine_unreachable", url):
            source.each(lambda wire, client: wire.describe(client))


def test_where_no_replica_can_come_back_nothing_is_waited_for() -> None:
    with ToyEngine().serving() as url:
        pass
    ended = ["the processes have ended"]
    with opened(WIRES[0], url, timeout_s=60.0, reason_gone=lambda: ended[0]) as source:
        with raises(EngineError, "sampling_process_failed", *ended):
            source.submit(request_of()).result(20)
        with raises(EngineError, "sampling_process_failed", *ended):
            source.each(lambda wire, client: wire.describe(client))


def test_an_action_that_does_not_wait_ends_at_once_where_no_replica_answers() -> None:
    with contextlib.ExitStack() as running:
        url = running.enter_context(ToyEngine().serving())
        with opened(WIRES[0], url) as source:
            source.wait_until_ready()
            running.close()
            started = time.monotonic()
            for code in ("engine_unavailable", "engine_unreachable"):  # it is found to be down, then known to be
                with raises(EngineError, code, url):
                    source.each(lambda wire, client: wire.unload_adapter(client, "policy-v1"), waits=False)
            assert time.monotonic() - started < 10


def test_a_replica_that_hangs_is_left_out_and_its_requests_go_elsewhere(engine: ToyEngine, other: ToyEngine) -> None:
    with opened(WIRES[0], engine.url, other.url, timeout_s=0.5) as source:
        source.wait_until_ready()
        engine.is_held = True
        futures = [source.submit(request_of(n)) for n in range(8)]
        assert [list(future.result(20).tokens) for future in futures] == [sampled([n], 3, 4)[0] for n in range(8)]
        assert source.counts.retries >= 1


def test_requests_that_share_a_prompt_go_to_one_replica(engine: ToyEngine, other: ToyEngine) -> None:
    with opened(WIRES[0], engine.url, other.url) as source:
        source.wait_until_ready()
        prompts = [tuple(range(number, number + 20)) for number in (1, 2, 3, 4)]
        futures = [source.submit(request_of(*prompt, seed=seed)) for prompt in prompts for seed in range(4)]
        for future in futures:
            future.result(20)
    shares = [{tuple(body["prompt"]) for _, body in one.bodies} for one in (engine, other)]
    assert not shares[0] & shares[1]
    assert [len(share) for share in shares] == [2, 2]


def test_a_conversation_goes_on_where_it_began(engine: ToyEngine, other: ToyEngine) -> None:
    with opened(WIRES[0], engine.url, other.url) as source:
        source.wait_until_ready()
        engine.is_held = other.is_held = True
        prompts: list[tuple[int, ...]] = [(number, 1, 2) for number in range(6)]
        for _ in range(3):
            futures = [source.submit(request_of(*prompt, count=40)) for prompt in prompts]
            _until(lambda: engine.open + other.open == 6 or not engine.is_held)
            engine.is_held = other.is_held = False
            replies = [future.result(20) for future in futures]
            prompts = [(*prompt, *reply.tokens, 9, 9) for prompt, reply in zip(prompts, replies, strict=True)]
    speakers = [{body["prompt"][0] for _, body in one.bodies} for one in (engine, other)]
    assert [len(one) for one in speakers] == [3, 3]
    assert not speakers[0] & speakers[1]


def test_a_replica_gets_no_more_requests_than_it_may(engine: ToyEngine) -> None:
    engine.is_held = True
    with opened(WIRES[0], engine.url, max_concurrency=3) as source:
        futures = [source.submit(request_of(n)) for n in range(10)]
        _until(lambda: engine.open == 3)
        engine.is_held = False
        assert all(future.result(20).tokens for future in futures)


def test_a_replica_that_comes_back_is_brought_up_to_date_first(engine: ToyEngine) -> None:
    seen: list[str] = []

    async def load(wire: Wire, client: httpx.AsyncClient) -> None:
        await wire.load_adapter(client, "policy-v2", Path("a"))
        seen.append(str(client.base_url))

    with opened(WIRES[0], engine.url) as source:
        source.wait_until_ready()
        source.on_rejoin = load
        source.follow(2, "policy-v2")  # which this replica does not have: it has started again
        assert source.submit(request_of()).result(20).version == 2
        assert seen == [engine.url]


def test_an_engine_that_starts_again_between_requests_is_brought_up_to_date_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "_PAUSE_S", 0.05)
    monkeypatch.setattr(replicas, "_MOST_FAILED_CHECKS", 1 << 30)
    seen: list[str] = []

    async def load(wire: Wire, client: httpx.AsyncClient) -> None:
        seen.append(str(client.base_url))

    with contextlib.ExitStack() as running:
        url = running.enter_context(ToyEngine().serving())
        with opened(WIRES[0], url) as source:
            source.wait_until_ready()
            source.on_rejoin = load
            running.close()
            _until(lambda: not source.is_up)
            running.enter_context(ToyEngine().serving(int(url.rpartition(":")[2])))
            assert source.submit(request_of()).result(20).tokens
            assert source.counts.retries == 0
        running.close()
    assert seen == [url]


def test_a_replica_does_not_join_while_the_others_get_weights(engine: ToyEngine, other: ToyEngine) -> None:
    begun, finish = threading.Event(), threading.Event()
    joins: list[bool] = []

    async def act(wire: Wire, client: httpx.AsyncClient) -> None:
        begun.set()
        while not finish.is_set():
            await asyncio.sleep(0.005)

    async def join(wire: Wire, client: httpx.AsyncClient) -> None:
        joins.append(finish.is_set())

    other.is_healthy = False
    with opened(WIRES[0], engine.url, other.url) as source, ThreadPoolExecutor() as threads:
        source.submit(request_of()).result(20)
        source.on_rejoin = join
        done = threads.submit(source.each, act)
        assert begun.wait(20)
        other.is_healthy = True
        _until(lambda: other.num_checks == 1)
        finish.set()
        assert list(done.result(20)) == [engine.url]
        source.wait_until_ready()
    assert joins == [True]


def test_an_action_on_all_replicas_leaves_out_one_that_fails(engine: ToyEngine, other: ToyEngine) -> None:
    with opened(WIRES[0], engine.url, other.url) as source:
        source.wait_until_ready()
        engine.fault = lambda answer: Response(status_code=500)
        done = source.each(lambda wire, client: wire.load_adapter(client, "policy-v1", Path("a")))
        assert list(done) == [other.url]
        other.fault = lambda answer: Response('{"success": false}', media_type="application/json")
        with raises(EngineError, "engine_refused", "success"):
            source.each(lambda wire, client: wire.load_weights(client, Path("a"), 1))
        assert [path for path, _ in other.bodies][-2:] == ["/pause?mode=wait", "/resume"]


def test_an_action_is_tried_again_where_no_replica_took_it(engine: ToyEngine) -> None:
    answers = iter([Response("out of memory", 500), None])
    engine.fault = lambda answer: next(answers) if answer == {"status": "ok"} else None
    with opened(WIRES[0], engine.url) as source:
        assert list(source.each(lambda wire, client: wire.load_adapter(client, "policy-v1", Path("a")))) == [engine.url]
        engine.fault = lambda answer: Response("out of memory", 500)
        with raises(EngineError, "engine_unavailable", "out of memory"):
            source.each(lambda wire, client: wire.load_adapter(client, "policy-v2", Path("a")))


def test_cancelling_ends_the_request(engine: ToyEngine) -> None:
    engine.is_held = True
    with opened(WIRES[0], engine.url) as source:
        future = source.submit(request_of())
        _until(lambda: engine.open == 1)
        assert future.cancel()
        assert engine.cancelled.wait(20)


def test_closing_leaves_neither_requests_nor_threads(engine: ToyEngine) -> None:
    engine.is_held = True
    before = set(threading.enumerate())
    source = EngineSource([engine.url], WIRES[0])
    future = source.submit(request_of())
    _until(lambda: engine.open == 1)
    source.close()
    source.close()
    with pytest.raises(CancelledError):
        future.result(0)
    with raises(EngineError, "closed"):
        source.submit(request_of())
    assert engine.cancelled.wait(20)
    assert set(threading.enumerate()) == before


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)
