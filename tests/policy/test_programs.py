"""Programs that a later process finds on the disk: found where they are the same, and only there."""

import dataclasses
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policy.kept_programs import KeptPrograms

from agent_tunix.policy import program_files
from agent_tunix.policy import programs as module
from agent_tunix.policy.program_files import SUFFIX, Loaded, load
from agent_tunix.policy.programs import Call, Programs, identity, kept_directory

X = np.arange(6, dtype=np.float32)


@pytest.fixture(autouse=True)
def unheard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of each test are such as JAX's own cache does not have."""
    monkeypatch.setattr(Traced, "name", f"scale_{uuid.uuid4().hex}")


class Traced:
    """A jitted function that knows how often it was traced."""

    name = "scale"

    def __init__(self, **options: Any) -> None:
        self.count = 0

        def scale(state: Any, x: jax.Array, factor: int = 2) -> Any:
            self.count += 1
            return {"scaled": x * factor + state["bias"], "sum": (x.sum(),)}

        scale.__name__ = self.name
        self.function = jax.jit(scale, static_argnames="factor", **options)

    def call(self, x: Any = X, factor: int = 2, bias: Any = 1.0) -> Call:
        args = ({"bias": jnp.float32(bias)}, jnp.asarray(x))
        return Call("scale", self.function, args, {"factor": factor}, shapes=np.shape(x))


def check(found: Any, factor: int = 2) -> None:
    np.testing.assert_array_equal(found["scaled"], X * factor + 1)
    assert float(found["sum"][0]) == X.sum()


def test_another_process_does_not_trace_again(tmp_path: Path) -> None:
    first, second = Traced(), Traced()
    check(KeptPrograms(tmp_path, "run").run(first.call()))
    programs = KeptPrograms(tmp_path, "run")
    check(programs.run(second.call()))
    check(programs.run(second.call()))
    assert (first.count, second.count) == (1, 0)


def test_what_is_prepared_tells_what_will_come_of_it(tmp_path: Path) -> None:
    for _ in range(2):
        traced, programs = Traced(), KeptPrograms(tmp_path, "run")
        shapes = programs.prepare(traced.call())
        assert (shapes["scaled"].shape, shapes["scaled"].dtype, shapes["sum"][0].shape) == ((6,), np.float32, ())
        assert shapes["scaled"].sharding == programs.run(traced.call())["scaled"].sharding


@pytest.mark.parametrize(
    "other",
    [
        lambda traced, path: KeptPrograms(path, "another").run(traced.call()),
        lambda traced, path: KeptPrograms(path, "run").run(traced.call(factor=3)),
        lambda traced, path: KeptPrograms(path, "run").run(traced.call(X[:4])),
        lambda traced, path: KeptPrograms(path, "run").run(traced.call(X.astype(np.int32))),
    ],
    ids=["identity", "static argument", "shape", "type"],
)
def test_a_program_of_something_else_is_not_taken(other: Callable[[Traced, Path], Any], tmp_path: Path) -> None:
    KeptPrograms(tmp_path, "run").run(Traced().call())
    traced = Traced()
    other(traced, tmp_path)
    assert traced.count == 1


def test_on_one_device_an_array_is_whole_whatever_it_is_said_to_be_divided_over(tmp_path: Path) -> None:
    """As those of a checkpoint are, and what a program makes; a run that goes on finds the programs it began with."""
    mesh = jax.make_mesh((1, 1), ("rows", "columns"))
    specs = [jax.sharding.PartitionSpec(*axes) for axes in ((), ("rows",), (("rows", "columns"),))]  # type: ignore[no-untyped-call]
    placed = [X, *(jax.device_put(X, jax.sharding.NamedSharding(mesh, spec)) for spec in specs)]
    for number, first in enumerate(placed):
        directory = tmp_path / str(number)
        directory.mkdir()
        KeptPrograms(directory, "run").run(Traced().call(first))
        traced = Traced()
        for x in placed:
            check(KeptPrograms(directory, "run").run(traced.call(x)))
        assert not traced.count


def test_nor_one_for_arrays_of_another_memory(tmp_path: Path) -> None:
    device = jax.devices()[0]
    memory = device.default_memory().kind
    other = next(other.kind for other in device.addressable_memories() if other.kind != memory)
    KeptPrograms(tmp_path, "run").run(Traced().call())
    traced = Traced()
    elsewhere = jax.device_put(X, jax.sharding.SingleDeviceSharding(device, memory_kind=other))
    check(KeptPrograms(tmp_path, "run").run(traced.call(elsewhere)))
    assert traced.count == 1


# Run twice: what it says is whether each function was traced, and whether its result is right and where it should be.
ON_SOME_DEVICES = """
import sys
from pathlib import Path
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from agent_tunix.policy.programs import Call, Programs

said = []
for devices in ([0], [0, 1], [1, 0]):
    count = []
    mesh = jax.sharding.Mesh(np.array(jax.devices())[devices], ("rows",))
    x = jax.device_put(np.arange(4.0), NamedSharding(mesh, PartitionSpec("rows")))
    def double(x, key):
        count.append(1)
        return 2 * x + key
    programs = Programs(Path(sys.argv[1]), str(devices))
    found = programs.run(Call("double", jax.jit(double), (x, jax.numpy.float32(1))))
    programs.flush()
    right = found.tolist() == [1.0, 3.0, 5.0, 7.0] and found.sharding == x.sharding
    said.append(f"{len(count)}{right}")
print(*said)
"""


def test_a_mesh_of_some_of_the_devices_finds_its_programs(tmp_path: Path) -> None:
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
        "PYTHONPATH": str(Path(module.__file__).parents[2]),
    }
    said = [
        subprocess.run(
            [sys.executable, "-c", ON_SOME_DEVICES, str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert said == [["1True"] * 3, ["0True"] * 3]


def test_one_process_has_programs_for_several_shapes(tmp_path: Path) -> None:
    programs, traced = KeptPrograms(tmp_path, "run"), Traced()
    for _ in range(2):
        for length in (6, 4, 5):
            assert programs.run(traced.call(X[:length]))["scaled"].shape == (length,)
    assert traced.count == 3


@pytest.mark.parametrize("kept", [True, False])
def test_arrays_may_lie_elsewhere_from_the_second_call_on(kept: bool, tmp_path: Path) -> None:
    mesh = jax.make_mesh((1,), ("rows",))
    placed = jax.device_put(X, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows")))  # type: ignore[no-untyped-call]
    for _ in range(2):
        traced, programs = Traced(), KeptPrograms(tmp_path if kept else None, "run")
        programs.prepare(traced.call())
        for x in (X, placed, placed, X, placed):
            check(programs.run(traced.call(x)))
    assert not (kept and traced.count)


@pytest.mark.parametrize("content", [b"", b"x\x9c\x00", b"half"], ids=["empty", "cut", "another"])
def test_a_damaged_file_is_replaced(content: bytes, tmp_path: Path) -> None:
    KeptPrograms(tmp_path, "run").run(Traced().call())
    for path in tmp_path.iterdir():
        path.write_bytes(content)
    again, last = Traced(), Traced()
    check(KeptPrograms(tmp_path, "run").run(again.call()))
    check(KeptPrograms(tmp_path, "run").run(last.call()))
    assert (again.count, last.count) == (1, 0)


def test_runs_that_differ_share_what_is_the_same_in_both(tmp_path: Path) -> None:
    KeptPrograms(tmp_path, "run").run(Traced().call())
    check(KeptPrograms(tmp_path, "another").run(Traced().call()))
    assert len(list(tmp_path.glob("agent_tunix_program-*"))) == 1


def test_functions_of_the_same_text_that_read_other_arguments_share_nothing(tmp_path: Path) -> None:
    """JAX leaves out of the text what is not read."""
    args = jnp.float32(1), jnp.float32(10)
    for run, expected in (("first", 3.0), ("second", 12.0), ("third", 3.0)):

        def chosen(a: jax.Array, b: jax.Array, run: str = run) -> jax.Array:
            return (b if run == "second" else a) + 2

        assert KeptPrograms(tmp_path, run).run(Call("chosen", jax.jit(chosen), args)) == expected


def test_functions_of_the_same_text_that_give_it_otherwise_share_nothing(tmp_path: Path) -> None:
    for kind in (tuple, list):

        def both(x: jax.Array, kind: Any = kind) -> Any:
            return kind([x + 1, x + 2])

        assert KeptPrograms(tmp_path, str(kind)).run(Call("both", jax.jit(both), (jnp.float32(1),))) == kind([2.0, 3.0])


def test_an_argument_of_weak_type_is_another(tmp_path: Path) -> None:
    def add(x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    for weak, expected in ((True, jnp.bfloat16), (False, jnp.float32)):
        y = jnp.asarray(1.0) if weak else jnp.float32(1.0)
        call = Call("add", jax.jit(add), (jnp.bfloat16(1.0), y))
        assert KeptPrograms(tmp_path, "run").run(call).dtype == expected


def test_a_file_with_the_program_of_another_call_is_replaced(tmp_path: Path) -> None:
    for factor in (2, 3):
        KeptPrograms(tmp_path, "run").run(Traced().call(factor=factor))
    paths = sorted(tmp_path.glob("agent_tunix_program-*"))
    assert len(paths) == 2
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    for factor in (2, 3):
        check(KeptPrograms(tmp_path, "run").run(Traced().call(factor=factor)), factor)


def test_sources_that_have_changed_since_they_were_imported_are_not_what_was_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_read_sources", lambda: "edited while the model was loaded")
        check(KeptPrograms(tmp_path, "run").run(Traced().call()))
    traced = Traced()
    check(KeptPrograms(tmp_path, "run").run(traced.call()))
    assert traced.count == 1


def test_threads_may_write_one_program_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: KeptPrograms(tmp_path, "run").run(Traced().call()), range(16)):
            check(found)
    assert len(list(tmp_path.iterdir())) == 2  # nothing half-written among them
    traced = Traced()
    check(KeptPrograms(tmp_path, "run").run(traced.call()))
    assert traced.count == 0


def test_what_jax_has_in_its_own_cache_can_be_kept_too(tmp_path: Path) -> None:
    """On a CPU what XLA has read lacks functions when it is written."""
    call = Traced().call()
    call.function(*call.args, **call.statics)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for expected in (1, 0):
            traced = Traced()
            check(KeptPrograms(tmp_path / name, "run").run(traced.call()))
            assert traced.count == expected


def test_a_program_is_kept_once(tmp_path: Path) -> None:
    cache = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    check(KeptPrograms(tmp_path, "run").run(Traced().call()))
    assert not list(cache.glob(f"*{Traced.name}*"))
    Traced().call().function.lower({"bias": jnp.float32(1)}, jnp.asarray(X)).compile()  # a thread's own again
    assert list(cache.glob(f"*{Traced.name}*"))


@pytest.mark.parametrize(
    ("limits", "iterations", "expected"),
    [
        ({}, 1, True),
        ({"_BRIEF_FLOPS": 20.0}, 1, True),
        ({"_BRIEF_FLOPS": 20.0}, 10, False),
        ({"_BESIDE_BYTES": 1}, 1, False),
    ],
)
def test_a_program_of_a_moment_is_known_as_one(
    limits: dict[str, float], iterations: int, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(module, name, value)
    call = dataclasses.replace(Traced().call(), num_iterations=iterations)
    KeptPrograms(tmp_path, "run").run(call)
    assert the_program(tmp_path).is_brief == expected


def the_program(directory: Path) -> Loaded:
    (path,) = directory.glob("agent_tunix_program-*")
    found = load(directory, path.name.removeprefix("agent_tunix_program-").removesuffix(SUFFIX), jax.devices()[:1])
    assert found is not None
    return found


def test_a_rehearsal_changes_nothing(tmp_path: Path) -> None:
    check(KeptPrograms(tmp_path, "run").run(Traced().call()))
    program = the_program(tmp_path)
    program.rehearse()
    check(
        jax.tree.unflatten(
            program.compiled.out_tree, jax.tree.leaves(program({"bias": jnp.float32(1)}, jnp.asarray(X)))
        )
    )


def test_one_with_keys_and_arrays_that_are_given_away_is_rehearsed_too(
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
    np.testing.assert_array_equal(program(jax.random.key(1), jnp.asarray(X)), expected)


def test_a_rehearsal_that_fails_is_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="agent_tunix.run"):
        Loaded(None, 0.0).rehearse()
    assert "a program was not rehearsed (AttributeError" in caplog.text


def test_where_nothing_is_to_be_added_nothing_is(tmp_path: Path) -> None:
    before = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)  # type: ignore[no-untyped-call]
    try:
        check(KeptPrograms(tmp_path, "run").run(Traced().call()))
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before)  # type: ignore[no-untyped-call]
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_kept_it_runs_all_the_same(tmp_path: Path) -> None:
    check(KeptPrograms(tmp_path / "absent", "run").run(Traced().call()))


def test_without_a_directory_jax_does_as_it_does(tmp_path: Path) -> None:
    traced, programs = Traced(), KeptPrograms()
    check(programs.run(traced.call()))
    check(programs.run(traced.call()))
    programs.prepare(traced.call(factor=3))
    check(programs.run(traced.call(factor=3)), factor=3)
    assert traced.count == 2


def test_arrays_that_are_given_away_are_given_away(tmp_path: Path) -> None:
    for _ in range(2):
        call = Traced(donate_argnums=1).call()
        check(KeptPrograms(tmp_path, "run").run(call))
        assert call.args[1].is_deleted()


def test_the_identity_follows_facts_and_what_jax_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert found[-1] == identity(config={"a": 1})


def test_where_a_program_lies_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    assert identity() == before
    assert kept_directory() == Path("elsewhere")


def test_who_wants_no_cache_of_jax_has_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "somewhere")
    jax.config.update("jax_enable_compilation_cache", False)  # type: ignore[no-untyped-call]
    try:
        assert kept_directory() is None
    finally:
        jax.config.update("jax_enable_compilation_cache", True)  # type: ignore[no-untyped-call]


def test_several_processes_leave_it_to_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "somewhere")
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert kept_directory() is None


def test_on_a_cpu_as_many_small_runs_are_under_way_as_it_has_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "num_processors", lambda: 3)
    programs, call = KeptPrograms(), Traced().call()
    assert programs.num_at_once(call) == 1  # which would compile it three times
    programs.prepare(call)
    assert programs.num_at_once(call) == 3
    held = X.nbytes * 2
    monkeypatch.setattr(module, "_BESIDE_BYTES", 3 * held)
    assert programs.num_at_once(call) == 2  # and what else it holds
    monkeypatch.setattr(module, "_BESIDE_BYTES", 1)
    assert programs.num_at_once(call) == 1


def test_threads_that_miss_one_program_make_it_once(tmp_path: Path) -> None:
    traced = Traced()
    programs = KeptPrograms(tmp_path, "run")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: programs.run(traced.call()), range(8)):
            check(found)
    assert len(programs._ready[traced.call().key]) == 1


def test_who_asks_for_a_program_does_not_wait_until_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    keep = program_files.store
    monkeypatch.setattr(module, "store", lambda *args, **options: may_write.wait(60) and keep(*args, **options))
    programs = Programs(tmp_path, "run")
    check(programs.run(Traced().call()))
    assert list(tmp_path.iterdir()) == []
    may_write.set()
    programs.flush()
    again = Traced()
    check(Programs(tmp_path, "run").run(again.call()))
    assert again.count == 0


def test_who_prepares_a_program_is_told_when_it_needs_python_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert told == ["traced", "compiled", *["traced", "loaded", "compiled"], *in_a_second_process]


def test_a_process_that_ends_has_kept_its_programs(tmp_path: Path) -> None:
    program = f"""
import jax
from pathlib import Path
from agent_tunix.policy.programs import Call, Programs
Programs(Path({str(tmp_path)!r}), "run").run(Call("double", jax.jit(lambda x: 2 * x), (jax.numpy.float32(1),)))
"""
    environment = os.environ | {"PYTHONPATH": str(Path(module.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=300, check=True)
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == [
        "agent_tunix_double",
        "agent_tunix_program",
    ]
