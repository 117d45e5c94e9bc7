"""Weights on their way to engines: they arrive, or the run hears of it."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from agent_tunix.config.schema import Config
from agent_tunix.distributed.group import Processes
from agent_tunix.engines import replicas
from agent_tunix.engines.source import EngineSource, make_wire
from agent_tunix.engines.sync import ProcessGroup, WeightSync
from agent_tunix.errors import EngineError
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.requests import TokenRequest
from agent_tunix.serving.app import create_app
from agent_tunix.serving.policy_server import open_service
from agent_tunix.serving.running import serving
from agent_tunix.serving.settings import PolicySettings
from agent_tunix.training.generation import find_source
from tests.engines.stand_ins import Fault, ModelPolicy, SglangStandIn, StandIn, VllmStandIn
from tests.raising import raises

KEY = "sesame"
PROMPT = list(range(5, 40))
# By rank of the adapter: 0 for all weights.
RANKS = (4, 0)
every_rank = pytest.mark.parametrize("rank", RANKS, ids=["adapter", "all weights"])


def move(policy: Decoder, size: float = 0.01) -> None:
    """Add noise to the weights that train."""
    kind: Any = nnx.LoRAParam if nnx.state(policy, nnx.LoRAParam) else nnx.Param
    random = np.random.default_rng(0)
    for _, leaf in nnx.to_flat_state(nnx.state(policy, kind)):
        noise = random.normal(size=leaf.get_value().shape) * size
        leaf.set_value(jax.device_put(np.asarray(leaf.get_value() + noise, np.float32), leaf.get_value().sharding))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="module")
def own(root: Path) -> Iterator[str]:
    settings = PolicySettings(port=0, api_keys=(KEY,), adapter_directories=(str(root),), loads_weights=True)
    run = find_source(str(EMBEDDED_MODEL), None).run
    with (
        open_service(run, 0, settings, max_context=128, num_places=2) as service,
        serving(create_app(service), settings) as url,
    ):
        yield url


@pytest.fixture(scope="module")
def model() -> Iterator[ModelPolicy]:
    with ModelPolicy(EMBEDDED_MODEL, max_context=128) as policy:
        yield policy


@contextlib.contextmanager
def syncing(
    kind: str,
    url: str,
    root: Path,
    rank: int,
    timeout_s: float = 20.0,
    temperature: float = 1.0,
    processes: ProcessGroup | None = None,
    others: Sequence[str] = (),
    moves: bool = False,
) -> Iterator[tuple[WeightSync, Decoder, EngineSource]]:
    config = Config()
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, lora_rank=rank, lora_alpha=8.0, path=str(EMBEDDED_MODEL)),
        engine=dataclasses.replace(config.engine, name=kind),
        generation=dataclasses.replace(config.generation, temperature=temperature),
    )
    policy = load_policy(EMBEDDED_MODEL, config.model, make_mesh([1, 1]))
    if moves:
        move(policy)
    with EngineSource([url, *others], make_wire(kind), api_key=KEY, timeout_s=timeout_s) as source:
        source.wait_until_ready()
        sync = WeightSync(
            *(source, policy, config, root),
            model_directory=EMBEDDED_MODEL,
            prompt_ids=PROMPT,
            processes=processes or Processes(),
        )
        yield sync, policy, source


@pytest.mark.slow
@every_rank
def test_an_engine_of_ours_samples_from_each_version(own: str, root: Path, rank: int) -> None:
    with syncing("agent_tunix", own, root, rank) as (sync, policy, source):
        report = sync.sync(0)
        assert report.metrics["engine/probe_share"] is None  # nothing has moved, so nothing is proven
        for version in (1, 2):
            move(policy)
            report = sync.sync(version)
            (check,) = report.checks.values()
            assert check.share == pytest.approx(1.0, abs=0.01)
            assert check.difference < 1e-5
            assert sync.sync(version) is report
            reply = source.submit(TokenRequest(tuple(PROMPT), 4, seed=0)).result(20)
            assert reply.version == version
        (facts,) = source.each(lambda wire, client: wire.describe(client)).values()
        assert list(facts.models) == (["policy", report.model] if rank else ["policy"])
        assert [path.name for path in root.glob("policy-*")] == [report.model]
        sync.close()
        assert not list(root.glob("policy-*"))


STAND_INS: dict[str, type[StandIn]] = {"vllm": VllmStandIn, "sglang": SglangStandIn}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@every_rank
def test_other_engines_follow_too(kind: str, rank: int, model: ModelPolicy, root: Path) -> None:
    with STAND_INS[kind](model).running() as url, syncing(kind, url, root, rank) as (sync, policy, _):
        assert sync.sync(0).metrics["engine/probe_share"] is None
        move(policy)
        assert sync.sync(1).metrics["engine/probe_share"] == pytest.approx(1.0, abs=0.01)
        sync.close()


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("rank", "fault", "code"),
    [
        (4, Fault.IGNORES_WEIGHTS, "engine_stale"),
        (0, Fault.IGNORES_WEIGHTS, "engine_stale"),
        (0, Fault.STALE_PREFIX, "engine_stale"),
        (0, Fault.NO_SUCCESS, "engine_refused"),
    ],
)
def test_an_engine_that_keeps_its_weights_is_named(
    kind: str, rank: int, fault: Fault, code: str, model: ModelPolicy, root: Path
) -> None:
    stand_in = STAND_INS[kind](model)
    with stand_in.running() as url, syncing(kind, url, root, rank) as (sync, policy, _):
        sync.sync(0)
        stand_in.faults.add(fault)
        move(policy)
        with raises(EngineError, code) as caught:
            sync.sync(1)
        assert url in str(caught.value)
        if fault is Fault.IGNORES_WEIGHTS and rank:
            assert "the model that the engine was started with" in str(caught.value)


def test_log_probabilities_of_another_distribution_are_found_at_once(model: ModelPolicy, root: Path) -> None:
    stand_in = VllmStandIn(model, Fault.RAW_LOGPS)
    with (
        stand_in.running() as url,
        syncing("vllm", url, root, 4, temperature=0.8) as (sync, _, _),
        raises(EngineError, "engine_differs"),
    ):
        sync.sync(0)


class Evicting(VllmStandIn):
    """An engine that forgets an adapter at once, and answers from the base instead."""

    def load_adapter(self, name: str, directory: Path) -> None:
        self.names.pop(name, None)


def test_a_policy_that_moved_before_the_first_sync_is_proven_or_refused_by_it(model: ModelPolicy, root: Path) -> None:
    # As in a run that was resumed.
    for stand_in in (VllmStandIn(model), Evicting(model, Fault.FALLBACK)):
        with stand_in.running() as url, syncing("vllm", url, root, 4) as (sync, policy, _):
            move(policy)
            if isinstance(stand_in, Evicting):
                with raises(EngineError, "engine_stale") as caught:
                    sync.sync(7)
                assert "the model that the engine was started with" in str(caught.value)
            else:
                assert sync.sync(7).metrics["engine/probe_share"] == pytest.approx(1.0, abs=0.01)


def test_an_adapter_that_a_run_starts_with_is_proven_or_refused_by_the_first_sync(
    model: ModelPolicy, root: Path
) -> None:
    # As after a supervised start.
    with VllmStandIn(model).running() as url, syncing("vllm", url, root, 4, moves=True) as (sync, policy, _):
        before = [np.asarray(leaf.get_value()) for _, leaf in nnx.to_flat_state(nnx.state(policy, nnx.LoRAParam))]
        assert any(array.any() for array in before)
        assert sync.sync(0).metrics["engine/probe_share"] == pytest.approx(1.0, abs=0.01)
    with (
        VllmStandIn(model, Fault.IGNORES_WEIGHTS).running() as url,
        syncing("vllm", url, root, 4, moves=True) as (sync, _, _),
        raises(EngineError, "engine_stale", "the model that the engine was started with"),
    ):
        sync.sync(0)


def test_an_engine_that_hangs_ends_the_sync_in_time(model: ModelPolicy, root: Path) -> None:
    stand_in = VllmStandIn(model)
    stand_in.fault_paths = ("/v1/load_lora_adapter",)
    with stand_in.running() as url, syncing("vllm", url, root, 4, timeout_s=2.0) as (sync, _, _):
        stand_in.faults.add(Fault.HANG)
        with raises(EngineError, "engine_unreachable"):
            sync.sync(0)


def test_a_replica_that_comes_back_has_the_current_adapter(model: ModelPolicy, root: Path) -> None:
    stand_in = VllmStandIn(model)
    with stand_in.running() as url, syncing("vllm", url, root, 4) as (sync, policy, source):
        sync.sync(0)
        move(policy)
        report = sync.sync(1)
        stand_in.unload_adapter(report.model)  # as after a new start
        reply = source.submit(TokenRequest(tuple(PROMPT), 4, seed=0)).result(30)
        assert reply.version == 1
        assert report.model in stand_in.names


@pytest.mark.slow
@every_rank
def test_a_replica_that_missed_the_first_sync_is_proven_or_stays_out(
    rank: int, model: ModelPolicy, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_PAUSE_S", 0.1)
    late = VllmStandIn(model)
    with (
        VllmStandIn(model).running() as url,
        late.running() as other,
        syncing("vllm", url, root, rank, others=[other]) as (sync, policy, source),
    ):
        late.faults = {Fault.STARTING}
        assert set(sync.sync(0).checks) == {url}
        move(policy)
        report = sync.sync(1)
        late.faults = {Fault.IGNORES_WEIGHTS}
        _, replica = source._replicas.all
        while "the model that the engine was started with" not in replica.error:
            assert not replica.is_up
            time.sleep(0.02)
        late.faults = set()
        if rank:
            late.unload_adapter(report.model)  # it has the base's weights
        source.wait_until_ready()


class Second:
    """A process beside the first."""

    is_first = False

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Return what the first one would."""
        return make()


def test_the_first_process_alone_brings_replicas_up_to_date(model: ModelPolicy, root: Path) -> None:
    with VllmStandIn(model).running() as url:
        with syncing("vllm", url, root, 4) as (_, _, source):
            assert source.on_rejoin is not None
        with syncing("vllm", url, root, 4, processes=Second()) as (_, _, source):
            assert source.on_rejoin is None


def test_names_are_never_used_again(model: ModelPolicy, root: Path) -> None:
    names = set()
    for _ in range(2):
        with VllmStandIn(model).running() as url, syncing("vllm", url, root, 4) as (sync, _, _):
            names.add(sync.sync(0).model)
    assert len(names) == 2
