import asyncio

import pytest

from agent_tunix.engines.conformance import EngineFinding, check_engine
from agent_tunix.engines.http import open_client
from agent_tunix.engines.own import OwnWire
from agent_tunix.engines.sglang import SglangWire
from agent_tunix.engines.vllm import VllmWire
from tests.engines.stand_ins import Fault, ModelPolicy, SglangStandIn, StandIn, ToyPolicy, VllmStandIn

STAND_INS: list[type[StandIn]] = [VllmStandIn, SglangStandIn]


def check(stand_in: StandIn) -> dict[str, EngineFinding]:
    async def run(url: str) -> list[EngineFinding]:
        async with open_client(url, stand_in.key, 20) as client:
            return await check_engine([VllmWire(), SglangWire(), OwnWire()], client)

    with stand_in.running() as url:
        return {one.check: one for one in asyncio.run(run(url))}


def of(findings: dict[str, EngineFinding], status: str) -> set[str]:
    return {name for name, one in findings.items() if one.status == status}


@pytest.mark.parametrize("kind", STAND_INS)
@pytest.mark.parametrize("faults", [(), (Fault.DEFAULT_SAMPLING,)], ids=["none", "default sampling"])
def test_an_engine_without_faults_passes(kind: type[StandIn], faults: tuple[Fault, ...]) -> None:
    findings = check(kind(ToyPolicy(), *faults, key="sesame"))
    assert set(findings) == of(findings, "ok")
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


@pytest.mark.slow
def test_the_embedded_model_behind_both_kinds() -> None:
    from agent_tunix.policy.files.directory import EMBEDDED_MODEL

    with ModelPolicy(EMBEDDED_MODEL) as policy:
        for kind in STAND_INS:
            findings = check(kind(policy))
            assert of(findings, "failed") == set(), findings
