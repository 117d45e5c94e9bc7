"""Every program of a run is lowered for GPUs and TPUs, on a machine without any."""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.policy.network.attention import Groups, attend_in_groups
from agent_tunix.policy.network.row_kernel import RowKernel
from tests.eight_devices import run_on_eight_devices
from tests.training.lowered_programs import FAMILIES, MESHES, lower

# Sampling, training and evaluation; then episodes, whose turns begin with a chunk of a reply.
FUNCTIONS = {"generate", "_reference_logps", "_judge", "update"} | {
    "draw_noise",
    "read_prompts",
    "new_cache",
    "take_turn",
    "pack",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(
        run_on_eight_devices("tests.training.lowered_programs", tmp_path_factory.mktemp("models"))
    )
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_program_lowers_for_accelerators(found: dict[str, Any], family: str) -> None:
    programs = [programs for case, programs in found.items() if case.startswith(f"{family}, ")]
    assert programs
    assert all(one.get(name) for one in programs for name in FUNCTIONS)


@pytest.mark.slow
def test_updates_donate_the_weights_that_train_and_the_state_of_the_optimizer(found: dict[str, Any]) -> None:
    for programs in found.values():
        (update,) = programs["update"]
        assert len(update["donated"]) == programs["changing"]
        assert all(name.startswith(("trained_arrays", "moment_arrays")) for name in update["donated"])


@pytest.mark.slow
def test_turns_donate_the_cache(found: dict[str, Any]) -> None:
    for programs in found.values():
        for turn in programs["take_turn"]:
            assert turn["donated"] == [name for name in turn["arguments"] if name.startswith("cache[")]


@pytest.mark.slow
def test_arguments_of_programs_for_a_mesh_carry_their_shardings(found: dict[str, Any]) -> None:
    for case, programs in found.items():
        if case.endswith(str(MESHES[-1])):
            for program in programs["generate"] + programs["_reference_logps"] + programs["update"]:
                # What reference policy and teacher find is made up here.
                rest = set(program["arguments"]) - set(program["sharded"])
                assert all(name.startswith(("example.reference_logps", "example.teacher")) for name in rest), case


@pytest.mark.parametrize(
    "planted",
    [
        lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin),
        jax.ffi.ffi_call("of_a_cpu", jax.eval_shape(lambda: jnp.zeros(2))),
    ],
    ids=["branch", "custom call"],
)
def test_what_only_a_cpu_computes_does_not_lower(planted: Callable[[Any], Any]) -> None:
    with pytest.raises((NotImplementedError, ValueError)):
        lower(jax.jit(planted), np.ones(2, np.float32))


@pytest.mark.parametrize(("platform", "in_parts"), [("cpu", True), ("cuda", False), ("tpu", False)])
def test_long_rows_are_attended_to_in_parts_by_cpus_alone(platform: str, in_parts: bool) -> None:
    B, R, P, T, H = 1, 8, 16, 1024, 8
    q = jnp.zeros((B, P + R * T, 1, H))
    groups = Groups(*(jnp.zeros(shape, jnp.bool_) for shape in ((B, P, P), (R, T, T), (B, 1, 1, P))))
    attend = jax.jit(lambda q, k, v, groups: attend_in_groups(q, k, v, groups, RowKernel(None, None, None)))
    text = jax.export.export(attend, platforms=[platform])(q, q, q, groups).mlir_module()
    assert ("stablehlo.while" in text) == in_parts
