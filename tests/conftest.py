"""Settings that all tests share: the caches of a session, the order of tests, and the report of slow ones."""

import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.startup.devices import prepare

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# Test processes and the programs that they start inherit one directory for the session, so that a program compiled by
# one test serves all others. CI sets JAX_COMPILATION_CACHE_DIR itself, so that its two tiers share a cache.
SESSION_KEY = "AGENT_TUNIX_TEST_SESSION"
starts_session = SESSION_KEY not in os.environ
if starts_session:
    os.environ[SESSION_KEY] = tempfile.mkdtemp(prefix="agent_tunix_tests_")
SESSION_DIRECTORY = Path(os.environ[SESSION_KEY])
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(SESSION_DIRECTORY / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ["AGENT_TUNIX_HOME"] = str(SESSION_DIRECTORY / "home")

# Tests compile many programs and run each for a few steps. Runs inside a test process and those in processes of their
# own inherit these flags, so that they compute the same bits.
QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
)
if starts_session:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_TO_COMPILE}".strip()
# JAX reads these settings once.
prepare(DistributedConfig(compilation_cache=None))

# A busy machine must not fail a test, and neither may the draw of its examples.
settings.register_profile("certain", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("certain")

MAX_WORKERS = 4
TESTS = Path(__file__).parent
# These files start first, so that no process runs one of them alone at the end.
LONGEST = ("test_main_job.py", "test_docs.py", "training", "service", "cli", "parity", "policy", "rewards", "workbench")
# The README trains with the programs of the main job, which one process compiles for both.
SAME_PROCESS = {"tests/test_main_job.py": "tests/test_docs.py"}

SLOW_TEST_S = 5.0
# Tests of the default tier that may take longer: whole runs stand for what their rooms do together.
MAY_BE_SLOW = (
    "tests/test_main_job.py::",
    "tests/test_docs.py::test_page_runs[README.md]",
    "tests/training/test_run.py::test_a_killed_run_resumed_equals_an_unbroken_one",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker more than there are cores, up to MAX_WORKERS, because tests often wait for other processes.

    Single files and tests need no second process, and get 0.
    """
    if config.option.collectonly or not any(Path(argument).is_dir() for argument in config.args):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores + 1, MAX_WORKERS) if cores > 1 else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    """Send all tests of a file to one worker, because they share fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return SAME_PROCESS.get(file, file)

    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the longest files to the front."""
    if hasattr(config, "workerinput"):

        def rank(item: pytest.Item) -> int:
            room = item.path.relative_to(TESTS).parts[0]
            return LONGEST.index(room) if room in LONGEST else len(LONGEST)

        items.sort(key=rank)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the tests of the default tier that took too long. They do not fail: the machine may have been busy."""
    if config.option.markexpr != "not slow":
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and not report.nodeid.startswith(MAY_BE_SLOW):
                seconds[report.nodeid] += report.duration
    if slow := {name: took for name, took in seconds.items() if took > SLOW_TEST_S}:
        terminalreporter.section(f"over {SLOW_TEST_S:g} s in the default tier: make them faster or mark them slow")
        for name, took in sorted(slow.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{took:6.1f} s  {name}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the session's directory."""
    if starts_session and not hasattr(config, "workerinput"):
        shutil.rmtree(SESSION_DIRECTORY, ignore_errors=True)


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile programs of started processes as users do, which is faster for long runs."""
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"].replace(QUICK_TO_COMPILE, "").strip())


@pytest.fixture(autouse=True, scope="module")
def _forget_programs() -> Iterator[None]:
    """Drop compiled programs after a module, because each takes memory mappings, of which Linux allows 65,530."""
    yield
    if (module := sys.modules.get("agent_tunix.startup.devices")) is not None and "jax" in sys.modules:
        module.make_room_for_programs()


@pytest.fixture(autouse=True, scope="module")
def _stop_verifiers() -> Iterator[None]:
    """Stop the math-verify processes that a module started, because other tests count processes."""
    yield
    if (module := sys.modules.get("agent_tunix.rewards.answers.verifiers")) is not None:
        module.VERIFIERS.close()
