"""Compiled programs on the disk: found where they are the same, and only there."""

import dataclasses
import os
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policy.kept_programs import KeptPrograms, adding_nothing

from agent_tunix.policy import program_files
from agent_tunix.policy import programs as module
from agent_tunix.policy.program_files import SUFFIX, Loaded, load
from agent_tunix.policy.programs import Call, Programs, identity, kept_directory

X = np.arange(6, dtype=np.float32)
SRC = str(Path(module.__file__).parents[2])


@pytest.fixture(autouse=True)
def unheard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the programs of each test a name that JAX's own cache does not have."""
    monkeypatch.setattr(Traced, "name", f"scale_{uuid.uuid4().hex}")


class Traced:
    """A jitted function that counts how often it is traced."""

    name = "scale"

    def __init__(self, **options: Any) -> None:
        self.count = 0

        def scale(state: Any, x: jax.Array, factor: int = 2) -> Any:
            self.count += 1
            return {"scaled": x * factor + state["bias"], "sum": (x.sum(),)}

        scale.__name__ = self.name
        self.function = jax.jit(scale, static_argnames="factor", **options)

    def call(self, x: Any = X, factor: int = 2) -> Call:
        args = ({"bias": jnp.float32(1)}, jnp.asarray(x))
        return Call("scale", self.function, args, {"factor": factor}, shapes=np.shape(x))


def run(directory: Path | None, identity: str = "run", x: Any = X, factor: int = 2) -> int:
    """Run the function as a process of its own would, check the result, and return how often it was traced."""
    traced = Traced()
    check(KeptPrograms(directory, identity).run(traced.call(x, factor)), x, factor)
    return traced.count


def check(found: Any, x: Any = X, factor: int = 2) -> None:
    np.testing.assert_array_equal(found["scaled"], np.asarray(x) * factor + 1)
    assert float(found["sum"][0]) == np.sum(x)


def kept(directory: Path) -> list[Path]:
    return sorted(directory.glob("agent_tunix_program-*"))


def other_memory() -> Any:
    """X in a memory that is not the device's default."""
    device = jax.devices()[0]
    default = device.default_memory().kind
    kind = next(other.kind for other in device.addressable_memories() if other.kind != default)
    return jax.device_put(X, jax.sharding.SingleDeviceSharding(device, memory_kind=kind))


# Programs that are found, and those that are not.


def test_another_process_does_not_trace_again_and_knows_the_shapes(tmp_path: Path) -> None:
    for expected in (1, 0):
        traced, programs = Traced(), KeptPrograms(tmp_path, "run")
        shapes = programs.prepare(traced.call())
        assert (shapes["scaled"].shape, shapes["scaled"].dtype, shapes["sum"][0].shape) == ((6,), np.float32, ())
        for _ in range(2):
            found = programs.run(traced.call())
            check(found)
            assert shapes["scaled"].sharding == found["scaled"].sharding
        assert traced.count == expected


@pytest.mark.parametrize(
    "other",
    [{"identity": "another"}, {"factor": 3}, {"x": X[:4]}, {"x": X.astype(np.int32)}, {"x": other_memory}],
    ids=["identity", "static argument", "shape", "type", "memory"],
)
def test_a_program_of_something_else_is_not_taken(other: dict[str, Any], tmp_path: Path) -> None:
    run(tmp_path)
    assert run(tmp_path, **{key: value() if callable(value) else value for key, value in other.items()}) == 1


def test_an_argument_of_weak_type_is_another(tmp_path: Path) -> None:
    def add(x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    for weak, expected in ((True, jnp.bfloat16), (False, jnp.float32)):
        y = jnp.asarray(1.0) if weak else jnp.float32(1.0)
        call = Call("add", jax.jit(add), (jnp.bfloat16(1.0), y))
        assert KeptPrograms(tmp_path, "run").run(call).dtype == expected


def test_functions_of_the_same_text_share_nothing_where_they_read_other_arguments(tmp_path: Path) -> None:
    """JAX leaves arguments that nothing reads out of the text, and the tree of the results too."""
    args = jnp.float32(1), jnp.float32(10)
    for place, kind, expected in ((0, list, 3.0), (1, list, 12.0), (0, list, 3.0), (0, tuple, 3.0)):

        def chosen(*args: jax.Array, place: int = place, kind: Any = kind) -> Any:
            return kind([args[place] + 2])

        found = KeptPrograms(tmp_path, f"{place}, {kind}").run(Call("chosen", jax.jit(chosen), args))
        assert found == kind([expected])


def test_runs_that_differ_share_an_equal_program(tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, "another")
    assert len(kept(tmp_path)) == 1


def test_on_one_device_an_array_is_whole_whatever_axes_it_is_divided_over(tmp_path: Path) -> None:
    """Arrays of a checkpoint and those of a program differ so; a resumed run finds the programs of its first start."""
    mesh = jax.make_mesh((1, 1), ("rows", "columns"))
    specs = [jax.sharding.PartitionSpec(*axes) for axes in ((), (("rows", "columns"),))]  # type: ignore[no-untyped-call]
    placed = [X, *(jax.device_put(X, jax.sharding.NamedSharding(mesh, spec)) for spec in specs)]
    for number, first in enumerate(placed):
        (tmp_path / str(number)).mkdir()
        run(tmp_path / str(number), x=first)
        assert [run(tmp_path / str(number), x=x) for x in placed] == [0, 0, 0]


def test_one_process_has_programs_for_several_shapes(tmp_path: Path) -> None:
    programs, traced = KeptPrograms(tmp_path, "run"), Traced()
    for length in (6, 4, 5) * 2:
        assert programs.run(traced.call(X[:length]))["scaled"].shape == (length,)
    assert traced.count == 3


@pytest.mark.parametrize("is_kept", [True, False])
def test_arrays_may_lie_elsewhere_from_the_second_call_on(is_kept: bool, tmp_path: Path) -> None:
    mesh = jax.make_mesh((1,), ("rows",))
    placed = jax.device_put(X, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows")))  # type: ignore[no-untyped-call]
    for _ in range(2):
        traced, programs = Traced(), KeptPrograms(tmp_path if is_kept else None, "run")
        programs.prepare(traced.call())
        for x in (X, placed, placed, X, placed):
            check(programs.run(traced.call(x)))
    assert not (is_kept and traced.count)


# Files.


@pytest.mark.parametrize("content", [b"", b"x\x9c\x00", b"half"], ids=["empty", "cut", "another"])
def test_a_damaged_file_is_replaced(content: bytes, tmp_path: Path) -> None:
    run(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(content)
    assert [run(tmp_path), run(tmp_path)] == [1, 0]


def test_a_file_with_the_program_of_another_call_is_replaced(tmp_path: Path) -> None:
    for factor in (2, 3):
        run(tmp_path, factor=factor)
    one, other = kept(tmp_path)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    for factor in (2, 3):
        run(tmp_path, factor=factor)


def test_sources_that_changed_since_they_were_imported_are_not_what_was_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_read_sources", lambda: "edited while the model was loaded")
        run(tmp_path)
    assert run(tmp_path) == 1


def test_threads_may_write_one_program_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: run(tmp_path), range(16)))
    assert len(list(tmp_path.iterdir())) == 2  # nothing half-written among them
    assert run(tmp_path) == 0


def test_threads_that_miss_one_program_make_it_once(tmp_path: Path) -> None:
    traced, programs = Traced(), KeptPrograms(tmp_path, "run")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: programs.run(traced.call()), range(8)):
            check(found)
    assert traced.count == 1


def test_a_program_in_jaxs_own_cache_can_be_kept_too(tmp_path: Path) -> None:
    """On a CPU a program that XLA has read lacks functions when it is written."""
    call = Traced().call()
    call.function(*call.args, **call.statics)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        assert [run(tmp_path / name), run(tmp_path / name)] == [1, 0]


def test_a_program_is_not_kept_by_jax_as_well(tmp_path: Path) -> None:
    run(tmp_path)
    assert not list(Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob(f"*{Traced.name}*"))


def test_nothing_is_kept_where_nothing_may_be_added(tmp_path: Path) -> None:
    with adding_nothing():
        run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_program_runs_where_nothing_can_be_kept(tmp_path: Path) -> None:
    run(tmp_path / "absent")


def test_without_a_directory_jax_does_as_it_does() -> None:
    traced, programs = Traced(), KeptPrograms()
    for _ in range(2):
        check(programs.run(traced.call()))
    programs.prepare(traced.call(factor=3))
    check(programs.run(traced.call(factor=3)), factor=3)
    assert traced.count == 2


def test_donated_arrays_are_given_away(tmp_path: Path) -> None:
    for _ in range(2):
        call = Traced(donate_argnums=1).call()
        check(KeptPrograms(tmp_path, "run").run(call))
        assert call.args[1].is_deleted()


def test_a_caller_does_not_wait_until_a_program_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    keep = program_files.store
    monkeypatch.setattr(module, "store", lambda *args, **options: may_write.wait(600) and keep(*args, **options))
    programs = Programs(tmp_path, "run")
    check(programs.run(Traced().call()))
    assert list(tmp_path.iterdir()) == []
    may_write.set()
    programs.flush()
    assert run(tmp_path) == 0


def test_a_caller_is_told_when_preparing_needs_python_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    compiling, loading = jax.stages.Lowered.compile, load

    def compile_and_tell(lowered: Any, **options: Any) -> Any:
        told.append("compiled")
        return compiling(lowered, **options)

    def load_and_tell(*args: Any) -> Any:
        told.append("loaded")
        return loading(*args)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_and_tell)
    monkeypatch.setattr(module, "load", load_and_tell)
    for directory in (None, tmp_path, tmp_path):
        KeptPrograms(directory, "run").prepare(Traced().call(), lambda: told.append("traced"))
    in_a_second_process = ["traced", "loaded"]
    assert told == ["traced", "compiled", "traced", "loaded", "compiled", *in_a_second_process]


# Brief programs, which are run once before they are asked for.


def the_program(directory: Path) -> Loaded:
    (path,) = kept(directory)
    found = load(directory, path.name.removeprefix("agent_tunix_program-").removesuffix(SUFFIX), jax.devices()[:1])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("limits", "iterations", "expected"),
    [
        ({}, 1, True),
        ({"_BRIEF_FLOPS": 20.0}, 1, True),
        ({"_BRIEF_FLOPS": 20.0}, 10, False),
        ({"_BESIDE_BYTES": 1}, 1, False),
    ],
)
def test_a_brief_program_is_marked_so(
    limits: dict[str, float], iterations: int, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(module, name, value)
    KeptPrograms(tmp_path, "run").run(dataclasses.replace(Traced().call(), num_iterations=iterations))
    assert the_program(tmp_path).is_brief == expected


def test_a_rehearsal_with_keys_and_donated_arrays_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def noisy(key: jax.Array, x: jax.Array) -> jax.Array:
        return x + jax.random.uniform(key, x.shape)

    noisy.__name__ = Traced.name
    call = Call("noisy", jax.jit(noisy, donate_argnums=1), (jax.random.key(1), jnp.asarray(X)))
    expected = np.asarray(KeptPrograms(tmp_path, "run").run(call))
    program = the_program(tmp_path)
    with caplog.at_level("DEBUG", logger="agent_tunix.run"):
        program.rehearse()
        assert "not rehearsed" not in caplog.text
        Loaded(None, 0.0).rehearse()
    assert "a program was not rehearsed (AttributeError" in caplog.text
    np.testing.assert_array_equal(program(jax.random.key(1), jnp.asarray(X)), expected)


def test_on_a_cpu_as_many_small_runs_are_under_way_as_it_has_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "num_processors", lambda: 3)
    programs, call = KeptPrograms(), Traced().call()
    assert programs.num_at_once(call) == 1  # which would compile it three times
    programs.prepare(call)
    assert programs.num_at_once(call) == 3
    for limit, expected in ((3 * X.nbytes * 2, 2), (1, 1)):
        monkeypatch.setattr(module, "_BESIDE_BYTES", limit)
        assert programs.num_at_once(call) == expected


# Identities, and the directory.


def test_the_identity_follows_facts_and_the_settings_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [identity(config={"a": 1}), identity(config={"a": 2})]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    found.append(identity(config={"a": 1}))
    jax.config.update("jax_default_matmul_precision", "highest")  # type: ignore[no-untyped-call]
    try:
        found.append(identity(config={"a": 1}))
    finally:
        jax.config.update("jax_default_matmul_precision", None)  # type: ignore[no-untyped-call]
    monkeypatch.setattr(module, "_IMPORTED", "other sources")
    found.append(identity(config={"a": 1}))
    assert len(set(found)) == 5
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    assert found[-1] == identity(config={"a": 1})


def test_programs_are_kept_beside_jaxs_own_for_one_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "somewhere")
    assert kept_directory() == Path("somewhere")
    jax.config.update("jax_enable_compilation_cache", False)  # type: ignore[no-untyped-call]
    try:
        assert kept_directory() is None
    finally:
        jax.config.update("jax_enable_compilation_cache", True)  # type: ignore[no-untyped-call]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert kept_directory() is None


# Processes. Each says whether its functions were traced, and whether results are right and where they should be.

ON_SOME_DEVICES = """
import sys
from pathlib import Path
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from agent_tunix.policy.programs import Call, Programs

for devices in ([0], [0, 1], [1, 0]):
    count = []
    mesh = jax.sharding.Mesh(np.array(jax.devices())[devices], ("rows",))
    x = jax.device_put(np.arange(4.0), NamedSharding(mesh, PartitionSpec("rows")))
    def double(x, key):
        count.append(1)
        return 2 * x + key
    found = Programs(Path(sys.argv[1]), str(devices)).run(Call("double", jax.jit(double), (x, jax.numpy.float32(1))))
    right = found.tolist() == [1.0, 3.0, 5.0, 7.0] and found.sharding == x.sharding
    print(f"{len(count)}{right}")
"""


@pytest.mark.slow
def test_a_process_that_ends_has_kept_its_programs_on_any_of_the_devices(tmp_path: Path) -> None:
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
    command = [sys.executable, "-c", ON_SOME_DEVICES, str(tmp_path)]
    for expected in ("1True", "0True"):
        done = subprocess.run(
            command, env=os.environ | flags | {"PYTHONPATH": SRC}, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [expected] * 3
