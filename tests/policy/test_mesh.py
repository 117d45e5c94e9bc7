"""Meshes: axes that divide rows, and a policy on eight devices that is the policy of one."""

import json
from pathlib import Path

import jax
import pytest
from tests.eight_devices import run_on_eight_devices

from agent_tunix.config.mesh_shape import MeshShape, read_mesh_shape
from agent_tunix.policy.mesh import (
    ROWS,
    even_copies,
    even_count,
    make_mesh,
    row_axes,
    row_sharding,
    row_shards,
    shape_of,
)


@pytest.mark.slow
def test_every_family_computes_the_same_on_a_mesh_and_none_of_it_lies_there_whole(tmp_path: Path) -> None:
    """Loss, gradients, shards of weights, adapters and moments, and the logits in the compiled program."""
    answers = json.loads(run_on_eight_devices("tests.policy.mesh_program", tmp_path))
    assert answers["wrong"] == {}
    seen = str(answers["seen"])
    # Two key-value heads among eight devices, too.
    assert all(f"{family} {shape}" in seen for family in ("qwen3", "qwen3_moe") for shape in ([1, 8], [2, 2, 2]))
    assert seen.count("qwen3_moe") == 4
    assert all(family in seen for family in ("gemma2", "gemma3_text", "llama", "qwen2", "qwen3_5_text"))


def abstract(*sizes: int) -> jax.sharding.AbstractMesh:
    """A mesh of devices that are not there."""
    return jax.sharding.AbstractMesh(sizes, MeshShape._fields)


@pytest.mark.parametrize(
    ("num_rows", "axes"),
    [(16, ("data", "fsdp")), (8, ("data", "fsdp")), (6, ("data",)), (2, ("data",)), (4, ("data",)), (3, ()), (1, ())],
)
def test_rows_are_divided_over_as_many_leading_axes_as_divide_them(num_rows: int, axes: tuple[str, ...]) -> None:
    assert row_axes(abstract(2, 4, 2), num_rows) == axes  # type: ignore[arg-type]


@pytest.mark.parametrize("num_prompts", [1, 2, 3, 4, 6, 8])
def test_a_device_that_has_a_completion_has_its_prompt(num_prompts: int) -> None:
    mesh, generations = abstract(2, 4, 1), 8

    def rows_of(device: tuple[int, int], num_rows: int) -> range:
        """Those that lie on a device, in the order in which axes divide them."""
        axes = row_axes(mesh, num_rows)  # type: ignore[arg-type]
        part, parts = 0, 1
        for axis, place in zip(ROWS, device, strict=True):
            if axis in axes:
                part, parts = part * mesh.shape[axis] + place, parts * mesh.shape[axis]
        return range(num_rows * part // parts, num_rows * (part + 1) // parts)

    for data in range(2):
        for fsdp in range(4):
            completions = rows_of((data, fsdp), num_prompts * generations)
            prompts = rows_of((data, fsdp), num_prompts)
            assert {row // generations for row in completions} <= set(prompts)


@pytest.mark.parametrize(
    ("count", "rows_of_each", "expected"),
    [(8, 1, 8), (6, 1, 8), (1, 8, 1), (1, 4, 2), (3, 4, 4), (3, 3, 8), (9, 16, 9)],
)
def test_prompts_are_made_as_many_as_give_rows_for_all_devices(count: int, rows_of_each: int, expected: int) -> None:
    assert even_count(abstract(2, 4, 3), count, rows_of_each) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("num_texts", "num_rows", "expected"), [(1, 8, 8), (2, 8, 4), (2, 16, 4), (4, 8, 1), (8, 16, 1), (3, 3, 1)]
)
def test_a_text_is_copied_only_if_its_rows_then_lie_beside_it(num_texts: int, num_rows: int, expected: int) -> None:
    assert even_copies(abstract(2, 4, 2), num_texts, num_rows) == expected  # type: ignore[arg-type]
    assert even_copies(None, num_texts, num_rows) == 1


def test_two_numbers_are_fsdp_and_tp() -> None:
    assert read_mesh_shape([4, 2]) == MeshShape(data=1, fsdp=4, tp=2)
    assert str(read_mesh_shape([4, 2])) == "[1,4,2]"


def test_a_mesh_has_all_axes_even_where_it_has_one_device() -> None:
    mesh = make_mesh([1, 1])
    assert mesh.axis_names == ("data", "fsdp", "tp")
    assert shape_of(mesh) == (1, 1, 1)
    assert row_shards(mesh) == row_shards(None) == 1
    assert row_sharding(mesh, 3).spec[0] == ROWS
