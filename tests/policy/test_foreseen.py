"""Programs that are loaded before a run asks for them."""

import uuid
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.policy.kept_programs import KeptPrograms, adding_nothing

from agent_tunix.policy import foreseen as module
from agent_tunix.policy.foreseen import Foreseen
from agent_tunix.policy.program_files import Loaded, program_path
from agent_tunix.policy.programs import Call

X = np.arange(6, dtype=np.float32)


class Kind:
    """Runs of one kind, each with functions of its own, which traces the programs that it does not find."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = f"scale_{uuid.uuid4().hex}"  # which JAX's own cache does not have
        self.traced: list[int] = []

    def call(self, factor: int) -> Call:
        def scale(state: Any, x: jax.Array) -> Any:
            self.traced.append(factor)
            return {"scaled": x * factor + state["bias"]}

        scale.__name__ = self.name
        return Call(f"scale_{factor}", jax.jit(scale), ({"bias": np.float32(1)}, X))

    def run(self, *factors: int) -> None:
        """Ask for some programs, one after the other; those that had to be traced are in `traced`."""
        self.traced.clear()
        programs = KeptPrograms(self.directory, "run", Foreseen(self.directory, "0" * 64))
        for factor in factors:
            found = programs.run(self.call(factor))
            np.testing.assert_array_equal(found["scaled"], X * factor + 1)

    def listed(self) -> list[str]:
        (path,) = self.directory.glob("agent_tunix_foreseen-*")
        return path.read_text().splitlines()


@pytest.fixture
def kind(tmp_path: Path) -> Kind:
    return Kind(tmp_path)


def test_a_run_loads_what_the_one_before_it_asked_for(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    kind.run(2, 3)
    assert kind.traced == [2, 3]
    assert len(kind.listed()) == 2
    # Only a foreseen program is found now.
    monkeypatch.setattr("agent_tunix.policy.programs.load", lambda *_: None)
    kind.run(2, 3)
    assert kind.traced == []


@pytest.mark.parametrize("is_brief", [True, False])
def test_a_brief_program_is_run_once_before(is_brief: bool, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_tunix.policy.programs._is_brief", lambda *_: is_brief)
    kind.run(2)
    rehearsed: list[Any] = []
    monkeypatch.setattr(Loaded, "rehearse", lambda loaded: rehearsed.append(loaded))
    kind.run(2)
    assert len(rehearsed) == is_brief


def test_a_run_that_asks_for_others_foresees_those_first(kind: Kind) -> None:
    kind.run(2, 3)
    before = kind.listed()
    kind.run(3, 4)
    now = kind.listed()
    assert len(now) == 3
    assert now[-1] == before[0]  # which this run had no use for


def test_no_more_are_foreseen_than_a_start_needs(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    kind.run(2, 3, 4)
    assert len(kind.listed()) == 2


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"../../secret", b"0" * 63], ids=["empty", "bytes", "path", "cut"]
)
def test_a_damaged_list_is_no_list(content: bytes, kind: Kind) -> None:
    kind.run(2)
    (path,) = kind.directory.glob("agent_tunix_foreseen-*")
    path.write_bytes(content)
    kind.run(2)
    assert kind.traced == []
    assert len(kind.listed()) == 1


def test_a_program_that_is_gone_or_damaged_is_compiled(kind: Kind) -> None:
    kind.run(2, 3)
    first, second = (program_path(kind.directory, text) for text in kind.listed())
    first.unlink()
    second.write_bytes(b"half")
    kind.run(2, 3)
    assert kind.traced == [2, 3]
    kind.run(2, 3)
    assert kind.traced == []


def test_programs_for_other_devices_are_left_to_who_asks(kind: Kind) -> None:
    kind.run(2)
    foreseen = Foreseen(kind.directory, "0" * 64)
    (text,) = kind.listed()
    assert foreseen.take(text, []) is None
    foreseen.note("1" * 64, [])
    assert kind.listed() == [text]
    assert foreseen.take(text, jax.devices()[:1]) is not None


def test_nothing_is_noted_where_nothing_may_be_added(kind: Kind) -> None:
    with adding_nothing():
        kind.run(2)
    assert list(kind.directory.iterdir()) == []
