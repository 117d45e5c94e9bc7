"""Programs for eight devices divide their work, and send what they must and no more."""

import json
from typing import Any

import numpy as np
import pytest

from tests.eight_devices import run_on_eight_devices

pytestmark = pytest.mark.slow

ALONE = "[1, 1, 1]"
ROWS = "[8, 1, 1]"
MESHES = [ROWS, "[2, 2, 2]"]
# [N, K, T, H] of the cache of 32 completions of 16 tokens; [P, V] and [C, V] of logits.
WHOLE_CACHE = "f32[32,2,16,24]"
WHOLE_LOGITS = "f32[32,1024]"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Findings of a process with eight virtual devices, by mesh."""
    dumps = tmp_path_factory.mktemp("dumps")
    dump = (f"--xla_dump_to={dumps}", "--xla_dump_hlo_as_text", "--xla_dump_hlo_module_re=.*generate.*")
    # What comes from the cache is not written again.
    uncached = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    answers: dict[str, Any] = json.loads(run_on_eight_devices("tests.training.mesh_programs", dumps, *dump, **uncached))
    return answers


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["value"] == pytest.approx(expected["value"], rel=1e-5)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-3)


@pytest.mark.parametrize("mesh", MESHES)
def test_eight_devices_find_what_one_finds_with_an_eighth_of_the_work_each(found: dict[str, Any], mesh: str) -> None:
    """A chunk of logits is not gathered: over tp maxima, sums and hidden gradients are added, over rows nothing."""
    alone, divided = found[ALONE]["logps"], found[mesh]["logps"]
    assert_close(divided, alone)
    assert divided["flops"] == pytest.approx(alone["flops"] / 8, rel=0.1)
    sent = divided["sent"]
    assert not [line for line in sent if "1024" in line or "512" in line or not line.startswith("all-reduce")]
    assert mesh == "[2, 2, 2]" or sent == []


def test_completions_of_few_prompts_are_divided_over_all_devices(found: dict[str, Any]) -> None:
    """The two prompts are then read on each of the eight, and the completions on one each."""
    assert_close(found[ROWS]["few"], found[ALONE]["few"])
    assert found[ROWS]["few"]["flops"] < 0.45 * found[ALONE]["few"]["flops"]


@pytest.mark.parametrize("mesh", MESHES)
def test_the_same_tokens_are_sampled_and_the_cache_is_never_gathered(found: dict[str, Any], mesh: str) -> None:
    alone, divided = found[ALONE]["sample"], found[mesh]["sample"]
    assert divided["tokens"] == alone["tokens"]
    assert {WHOLE_CACHE, WHOLE_LOGITS} <= set(alone["shapes"]), "what is looked for"
    assert not {WHOLE_CACHE, WHOLE_LOGITS} & set(divided["shapes"])
    assert mesh != ROWS or divided["sent"] == [], "each device has a copy of the weights"
