"""Settings that every test and every process that it starts shares, and how tests are spread over processes."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.training.devices import prepare

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# Programs compiled by one test serve all others, in whatever process, and the user's own cache stays as it was. What
# makes a program is its shapes and its constants, the number of steps among them: runs that only differ in data, seed
# or reward share theirs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "agent_tunix_tests" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# A run in a test's own process is compiled as the program's, with whose metrics it may be compared to the last bit.
# JAX reads this once, so that it must not wait for the first test that needs it.
prepare(DistributedConfig(compilation_cache=None))

# What a reward or a page of the docs keeps for the next run is kept out of the user's home.
os.environ.setdefault("AGENT_TUNIX_HOME", str(Path(tempfile.gettempdir()) / "agent_tunix_tests" / "home"))

# Time limits belong to the tests that measure time; a busy machine fails no other.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")

MAX_WORKERS = 4
TESTS = Path(__file__).parent
# They begin first, so that no worker is left alone with one of them at the end.
LONGEST = ("test_main_job.py", "test_docs.py", "training", "cli")
# Long tests of files in which they share nothing.
ALONE = ("tests/test_main_job.py::", "tests/test_docs.py::test_page_runs[")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker for each core, up to a few: each loads JAX. None for files and single tests, which need no directory."""
    if config.option.collectonly or not any(Path(argument).is_dir() for argument in config.args):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_WORKERS) if cores > 1 else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    """The tests of a file share what they set up, so one worker has them all, but for those that share nothing."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(ALONE) else nodeid.partition("::")[0]

    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, the longest first."""
    if hasattr(config, "workerinput"):

        def rank(item: pytest.Item) -> int:
            room = item.path.relative_to(TESTS).parts[0]
            return LONGEST.index(room) if room in LONGEST else len(LONGEST)

        items.sort(key=rank)


@pytest.fixture(autouse=True, scope="module")
def programs_outlive_their_module_only_while_few() -> Iterator[None]:
    """A process that remembers those of all tests runs out of mappings of memory, and dies of it."""
    yield
    if (module := sys.modules.get("agent_tunix.training.devices")) is not None and "jax" in sys.modules:
        module.make_room_for_programs()


@pytest.fixture(autouse=True, scope="module")
def no_verifier_outlives_its_module() -> Iterator[None]:
    """The processes of math-verify end with the tests that asked for them; others count what is running."""
    yield
    if (module := sys.modules.get("agent_tunix.rewards.answers.verifiers")) is not None:
        module.VERIFIERS.close()
