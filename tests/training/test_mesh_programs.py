"""Programs for eight devices divide their work, and send what they must and no more."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
ALONE = "[1, 1, 1]"
MESHES = ["[8, 1, 1]", "[1, 8, 1]", "[2, 2, 2]"]
# [N, K, T, H] of the cache of 32 completions of 16 tokens; [P, V] and [C, V] of logits.
WHOLE_CACHE = "f32[32,2,16,24]"
WHOLE_LOGITS = "f32[32,1024]"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process with eight virtual devices found, by mesh."""
    dumps = tmp_path_factory.mktemp("dumps")
    flags = (
        "--xla_force_host_platform_device_count=8",
        f"--xla_dump_to={dumps}",
        "--xla_dump_hlo_as_text",
        "--xla_dump_hlo_module_re=.*generate.*",
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.mesh_programs", str(dumps)],
        cwd=ROOT,
        # What comes from the cache is not written again.
        env={**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_ENABLE_COMPILATION_CACHE": "false"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("batch", ["logps", "few"])
def test_log_probabilities_and_gradients_are_those_of_one_device(found: dict[str, Any], mesh: str, batch: str) -> None:
    alone, divided = found[ALONE][batch], found[mesh][batch]
    assert divided["value"] == pytest.approx(alone["value"], rel=1e-5)
    np.testing.assert_allclose(divided["norms"], alone["norms"], rtol=1e-3)


@pytest.mark.parametrize("mesh", MESHES)
def test_eight_devices_do_an_eighth_of_the_work_each(found: dict[str, Any], mesh: str) -> None:
    assert found[mesh]["logps"]["flops"] == pytest.approx(found[ALONE]["logps"]["flops"] / 8, rel=0.1)


@pytest.mark.parametrize("mesh", ["[8, 1, 1]", "[1, 8, 1]"])
def test_completions_of_few_prompts_are_divided_over_all_devices(found: dict[str, Any], mesh: str) -> None:
    """The two prompts are then read on each of the eight, and the completions on one each."""
    alone, divided = found[ALONE]["few"]["flops"], found[mesh]["few"]["flops"]
    assert divided < 0.45 * alone


@pytest.mark.parametrize("mesh", MESHES)
def test_a_chunk_of_logits_is_not_gathered_and_no_matrix_is_sent_for_it(found: dict[str, Any], mesh: str) -> None:
    """Over tp the maxima, sums and hidden gradients of a chunk are added; over rows nothing is sent."""
    sent = found[mesh]["logps"]["sent"]
    assert not [line for line in sent if "1024" in line or "512" in line or not line.startswith("all-reduce")]
    assert mesh == "[2, 2, 2]" or sent == []


@pytest.mark.parametrize("mesh", MESHES)
def test_sampling_divides_rows_and_never_gathers_the_cache(found: dict[str, Any], mesh: str) -> None:
    assert {WHOLE_CACHE, WHOLE_LOGITS} <= set(found[ALONE]["sample"]["shapes"]), "what is looked for"
    assert not {WHOLE_CACHE, WHOLE_LOGITS} & set(found[mesh]["sample"]["shapes"])


def test_with_a_copy_of_the_weights_on_each_device_sampling_sends_nothing(found: dict[str, Any]) -> None:
    assert found["[8, 1, 1]"]["sample"]["sent"] == []


@pytest.mark.parametrize("mesh", MESHES)
def test_the_same_tokens_are_sampled(found: dict[str, Any], mesh: str) -> None:
    assert found[mesh]["sample"]["tokens"] == found[ALONE]["sample"]["tokens"]
