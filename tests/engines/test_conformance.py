import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from agent_tunix.engines.conformance import EngineFinding, KnownModel, check_engine
from agent_tunix.engines.http import open_client
from agent_tunix.engines.own import OwnWire
from agent_tunix.engines.sglang import SglangWire
from agent_tunix.engines.vllm import VllmWire
from tests.engines.stand_ins import Fault, ModelPolicy, SglangStandIn, StandIn, ToyPolicy, VllmStandIn
from tests.engines.stand_ins.policies import ADAPTER_FILE

STAND_INS: list[type[StandIn]] = [VllmStandIn, SglangStandIn]
# Checks that need a model.
OF_MODELS = {"forward pass", "adapter", "weights"}


class ToyModel:
    """The distribution of `ToyPolicy`, with an adapter."""

    prompt: tuple[int, ...] = (10, 20, 30, 25)

    def __init__(self, directory: Path) -> None:
        self.directory, self.adapter = directory / "model", directory / "adapter"
        for made in (self.directory, self.adapter):
            made.mkdir()
        (self.directory / "model.safetensors").write_bytes(b"weights")
        (self.adapter / ADAPTER_FILE).write_bytes(b"adapter")
        (self.adapter / "adapter_config.json").write_text(json.dumps({"r": 8}))

    def score(self, tokens: Sequence[int], *, with_adapter: bool) -> list[float]:
        toy = ToyPolicy()
        weights = toy.first_weights()
        weights = toy.read_adapter(weights, self.adapter) if with_adapter else weights
        return [float(toy.logps(weights, tokens[:place])[tokens[place]]) for place in range(1, len(tokens))]


def check(stand_in: StandIn, model: KnownModel | None = None, *, reloads: bool = False) -> dict[str, EngineFinding]:
    async def run(url: str) -> list[EngineFinding]:
        async with open_client(url, stand_in.key, 20) as client:
            return await check_engine([VllmWire(), SglangWire(), OwnWire()], client, model, reloads=reloads)

    with stand_in.running() as url:
        return {one.check: one for one in asyncio.run(run(url))}


def of(findings: dict[str, EngineFinding], status: str) -> set[str]:
    return {name for name, one in findings.items() if one.status == status}


@pytest.mark.parametrize("kind", STAND_INS)
@pytest.mark.parametrize("faults", [(), (Fault.DEFAULT_SAMPLING,)], ids=["none", "default sampling"])
def test_an_engine_without_faults_passes(kind: type[StandIn], faults: tuple[Fault, ...]) -> None:
    findings = check(kind(ToyPolicy(), *faults, key="sesame"))
    assert of(findings, "failed") == set()
    assert of(findings, "not tried") == OF_MODELS
    assert all(one.came for one in findings.values())


@pytest.mark.parametrize("kind", STAND_INS)
@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        (Fault.RAW_LOGPS, {"temperature"}),
        (Fault.WRONG_TEMPERATURE, {"temperature"}),
        (Fault.MISSING_LOGPS, {"log-probabilities"}),
        (Fault.INFINITE_LOGPS, {"log-probabilities"}),
        (Fault.FALLBACK, {"unknown model"}),
        (Fault.ABORT, {"ids", "greedy", "seeds"}),
        (Fault.STARTING, {"ready"}),
        (Fault.HALF_BODY, {"ready"}),
    ],
)
def test_each_fault_fails_a_check(kind: type[StandIn], fault: Fault, failed: set[str]) -> None:
    findings = of(check(kind(ToyPolicy(), fault)), "failed")
    assert failed <= findings
    assert findings == failed or fault in (Fault.ABORT, Fault.MISSING_LOGPS, Fault.INFINITE_LOGPS)


def test_a_reply_of_another_model_and_seeds_without_effect_fail() -> None:
    assert "ids" in of(check(VllmStandIn(ToyPolicy(), Fault.OTHER_MODEL)), "failed")
    assert of(check(SglangStandIn(ToyPolicy(), is_deterministic=False)), "failed") == {"seeds"}


@pytest.mark.parametrize("kind", STAND_INS)
@pytest.mark.parametrize(
    ("faults", "failed"),
    [
        ((), set()),
        ((Fault.IGNORES_WEIGHTS,), {"adapter"}),
        ((Fault.NO_SUCCESS,), {"adapter", "weights"}),
        ((Fault.FALLBACK,), {"unknown model", "adapter"}),
    ],
    ids=["none", "ignored weights", "no success", "fallback"],
)
def test_weights_and_adapters_of_a_known_model(
    kind: type[StandIn], faults: tuple[Fault, ...], failed: set[str], tmp_path: Path
) -> None:
    model = ToyModel(tmp_path)
    stand_in = kind(ToyPolicy(), *faults)
    stand_in.policy.read_weights = lambda directory: stand_in.policy.first_weights()  # type: ignore[method-assign]
    findings = check(stand_in, model, reloads=True)
    assert of(findings, "failed") == failed
    assert len(stand_in.names) == 1  # nothing stays loaded


def test_another_model_is_found_by_our_forward_pass(tmp_path: Path) -> None:
    stand_in = VllmStandIn(ToyPolicy())
    stand_in.names[stand_in.base] = 8
    findings = check(stand_in, ToyModel(tmp_path))
    assert of(findings, "failed") == {"forward pass", "adapter"}
    assert findings["weights"].status == "not tried"


@pytest.mark.slow
def test_the_embedded_model_behind_both_kinds(tmp_path: Path) -> None:
    from agent_tunix.engines.known_model import LoadedModel
    from agent_tunix.policy.files.directory import EMBEDDED_MODEL

    model = LoadedModel(str(EMBEDDED_MODEL), tmp_path)
    with ModelPolicy(EMBEDDED_MODEL) as policy:
        for kind in STAND_INS:
            findings = check(kind(policy), model, reloads=True)
            assert set(findings) == of(findings, "ok"), findings
    tokens = model.prompt
    pairs = [model.score(tokens, with_adapter=with_adapter) for with_adapter in (False, True, False)]
    assert pairs[0] == pairs[2]
    assert np.abs(np.subtract(pairs[0], pairs[1])).mean() > 0.4
