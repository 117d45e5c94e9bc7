"""Edits of the user's files while workers are replaced: every worker runs the code that was loaded first."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_tunix.environments import run_episode
from agent_tunix.environments.resolve import EnvironmentRecipe
from agent_tunix.environments.running import EnvironmentSet, HostingLimits
from agent_tunix.rewards import Sample, fingerprint, loading, resolve_reward, sources
from agent_tunix.rewards.execution import make_runner
from tests.environments.support import call, script

# The helper `early` is imported by the file, `late` by a call alone, and `deep` by `late`.
REWARD = """
import early

def reward(response):
    import late
    return early.VALUE + late.value() + 0.001
"""
LATE = "import parts.deep\ndef value():\n    return 0.01 + parts.deep.VALUE\n"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "parts").mkdir()
    (tmp_path / "my_reward.py").write_text(REWARD)
    (tmp_path / "early.py").write_text("VALUE = 1\n")
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "deep.py").write_text("VALUE = 0.1\n")
    yield tmp_path
    for name in ("early", "late", "parts", "parts.deep"):
        sys.modules.pop(name, None)
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]


def spoil(path: Path) -> None:
    path.write_text(path.read_text().replace("1", "7"))


EDITS: dict[str, Callable[[Path], object]] = {
    "my_reward.py": spoil,
    "late.py": spoil,
    "parts/deep.py": spoil,
    "early.py ": lambda path: path.unlink(),
    "my_reward.py ": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_worker_that_starts_after_an_edit_runs_the_code_of_before(name: str, directory: Path) -> None:
    mixture = resolve_reward(f"{directory}/my_reward.py:reward", working_directory=directory)
    before = fingerprint(mixture).to_data()
    with make_runner(mixture, "process", num_workers=1, recycle_after=1) as runner:
        assert [score.value for score in runner.reward.score([Sample("x")] * 2)] == [1.111] * 2
        EDITS[name](directory / name.strip())
        assert {directory / name.strip()} == {path for path in sources.edited() if directory in path.parents}
        assert [score.value for score in runner.reward.score([Sample("x")] * 3)] == [1.111] * 3
    if (directory / name.strip()).exists():
        assert fingerprint(mixture).to_data() == before


# Files, in which the last one holds the value. A call imports all but the first.
LAYOUTS = {
    "relative import from the package above": {
        "my_reward.py": "def reward(response):\n    from layout_a.inner.b import VALUE\n    return VALUE\n",
        "layout_a/inner/b.py": "from ..c import VALUE\n",
        "layout_a/c.py": "VALUE = 0.1\n",
    },
    "directory that the file adds to sys.path": {
        "my_reward.py": "import sys\nsys.path.append(__file__.replace('my_reward.py', 'library'))\n"
        "def reward(response):\n    import layout_d\n    return layout_d.VALUE\n",
        "library/layout_d.py": "VALUE = 0.1\n",
    },
    "import_module": {
        "my_reward.py": "import importlib\ndef reward(response):\n"
        "    return importlib.import_module('layout_e').VALUE\n",
        "layout_e.py": "VALUE = 0.1\n",
    },
}


@pytest.mark.parametrize("after", ["edited", "removed"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_call_imports_is_kept_wherever_it_lies(
    layout: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    root = tmp_path / "of rewards"
    for name, text in LAYOUTS[layout].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    mixture = resolve_reward(f"{root}/my_reward.py:reward", working_directory=tmp_path)
    with make_runner(mixture, "process", num_workers=1, recycle_after=1) as runner:
        runner.reward.score([Sample("x")])
        if after == "edited":
            spoil(root / name)
            assert root / name in sources.edited()
        else:
            root.rename(tmp_path / "moved")
        assert [score.value for score in runner.reward.score([Sample("x")] * 2)] == [0.1, 0.1]


def test_a_file_that_is_loaded_again_after_an_edit_is_read_again(directory: Path) -> None:
    """A notebook edits a helper between two runs."""
    spec = f"{directory}/my_reward.py:reward"
    before = fingerprint(resolve_reward(spec, working_directory=directory)).short
    spoil(directory / "parts" / "deep.py")
    mixture = resolve_reward(spec, working_directory=directory)
    assert fingerprint(mixture).short != before
    assert not [path for path in sources.edited() if directory in path.parents]
    with make_runner(mixture, "process", num_workers=1) as runner:
        assert [score.value for score in runner.reward.score([Sample("x")])] == [pytest.approx(1.711)]


def test_a_module_by_its_name_is_kept_too(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(directory))
    file = directory / "parts" / "graded.py"
    file.write_text("def reward(response):\n    return 1.0\n")
    mixture = resolve_reward("parts.graded.reward", working_directory=directory.parent)
    with make_runner(mixture, "process", num_workers=1, recycle_after=1) as runner:
        runner.reward.score([Sample("x")])
        spoil(file)
        assert [score.value for score in runner.reward.score([Sample("x")] * 2)] == [1.0, 1.0]
    del sys.modules["parts.graded"]


def test_a_file_that_could_not_be_imported_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "unfinished.py"
    file.write_text("def reward(:\n")
    with pytest.raises(Exception, match="unfinished"):
        loading.load_file(file)
    file.write_text("VALUE = 2\n")
    assert loading.load_file(file).VALUE == 2


# A reward and an environment that write a completion to `written.py` and import it.
WRITING = """
import importlib
import sys
from pathlib import Path

def value_of(text):
    sys.modules.pop("written", None)
    importlib.invalidate_caches()
    Path(__file__).with_name("written.py").write_text(text)
    try:
        from written import VALUE
    except Exception:
        return -1.0
    return float(VALUE() if callable(VALUE) else VALUE)

def reward(response):
    try:
        return value_of(response)
    except Exception:
        return -2.0

class Runs:
    def reset(self):
        return "go"

    def step(self, action):
        return "", value_of(action), True, {}
"""
FAILING = "import absent_library\nVALUE = 1"
FAILING_LATER = "def VALUE():\n    import absent_library\n    return 1.0"


def write_writing(directory: Path) -> Path:
    (directory / "written.py").write_text("VALUE = 7")  # left by another run
    (directory / "writing.py").write_text(WRITING)
    return directory / "writing.py"


@pytest.mark.parametrize("execution", ["inline", "process"])
def test_a_file_that_a_reward_writes_and_imports_is_read_for_each_completion(execution: str, tmp_path: Path) -> None:
    mixture = resolve_reward(f"{write_writing(tmp_path)}:reward", working_directory=tmp_path)
    texts = ["VALUE = 1", "VALUE = 22", FAILING, FAILING_LATER, "VALUE = 3"]
    with make_runner(mixture, execution, num_workers=1, recycle_after=3) as runner:
        scores = [score for text in texts for score in runner.reward.score([Sample(text)])]
    assert [score.value for score in scores] == [1.0, 22.0, -1.0, -2.0, 3.0]
    sys.modules.pop("written", None)


def test_a_file_that_an_environment_writes_and_imports_is_read_at_each_step(tmp_path: Path) -> None:
    recipe = EnvironmentRecipe(f"{write_writing(tmp_path)}:Runs", working_directory=tmp_path)
    with EnvironmentSet({None: recipe}, HostingLimits("process", num_workers=1)) as environments:
        for text, value in (("VALUE = 1", 1.0), ("VALUE = 22", 22.0)):
            episode = run_episode(environments.open({}), script(text))
            assert episode.score is not None
            assert episode.score.value == value


FRAGILE = """
import os

class Fragile:
    def reset(self):
        return "go"

    def die(self) -> str:
        "End the process."
        os._exit(3)

    def get_reward(self) -> float:
        return 1.0
"""


def test_an_environment_in_a_worker_that_starts_after_an_edit_is_that_of_before(tmp_path: Path) -> None:
    file = tmp_path / "fragile.py"
    file.write_text(FRAGILE)
    recipe = EnvironmentRecipe("fragile.py:Fragile", working_directory=tmp_path)
    with EnvironmentSet({None: recipe}, HostingLimits("process", num_workers=1)) as environments:
        file.write_text(FRAGILE.replace("1.0", "7.0"))
        assert "exited" in run_episode(environments.open({}), script(call("die"), "done")).error
        result = run_episode(environments.open({}), script("done"))
    assert result.score is not None
    assert result.score.value == 1.0
