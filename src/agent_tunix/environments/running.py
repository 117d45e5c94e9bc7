"""Environments of a run, one for all rows or one of several for each row, and threads that use their episodes."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agent_tunix.closing import Closing
from agent_tunix.environments.conventions import CombinedAdapter, EnvironmentAdapter
from agent_tunix.environments.conventions.combined import CombinedSource
from agent_tunix.environments.conventions.mcp import McpAdapter
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.environments.environment import EpisodeEnvironment, EpisodeSource
from agent_tunix.environments.hosting import HostedEnvironment
from agent_tunix.environments.resolve import EnvironmentRecipe, build_environment, sendable
from agent_tunix.environments.tools import Tool
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError

_LOGGER = logging.getLogger("agent_tunix.environments")

# Column of a row that chooses among several environments.
ENVIRONMENT_COLUMN = "environment"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class HostingLimits:
    """Place in which environments run, and their limits.

    Attributes:
        execution: `inline`, `process`, or `auto`: built-in ones inline, others in worker processes.
        timeout_s: Wall time of one call.
        memory_mb: Memory of a worker.
        num_workers: Worker processes of an environment, and episodes that may use an MCP server or `python` at once.
    """

    execution: str = "auto"
    timeout_s: float = 10.0
    memory_mb: int = 2048
    num_workers: int = 16


class EnvironmentSet(Closing):
    """The environments of a run.

    Args:
        recipes: Recipe of each environment by name. Rows choose by their column `environment`; with one recipe, under
            the name None, all rows have that environment.
        limits: Where they run.
        servers: MCP servers, whose tools every environment has.

    Raises:
        UnknownEnvironmentError, InvalidEnvironmentError: An environment cannot be used.
    """

    def __init__(
        self,
        recipes: Mapping[str | None, EnvironmentRecipe],
        limits: HostingLimits,
        servers: Sequence[McpServer] = (),
    ) -> None:
        self._adapters: dict[str | None, EnvironmentAdapter] = {}
        self._sources: dict[str | None, EpisodeSource] = {}
        with contextlib.ExitStack() as adapters_open:
            mcp = [
                adapters_open.enter_context(McpAdapter(server, limits.timeout_s, limits.num_workers))
                for server in servers
            ]
            for name, recipe in recipes.items():
                self._adapters[name], self._sources[name] = _place(recipe, limits, mcp)
            adapters_open.pop_all()  # they stay open
        self._pool = _Pool(max((source.concurrency for source in self._sources.values()), default=1))

    @property
    def may_have_tools(self) -> bool:
        """True if an environment has tools, or may have them once an episode begins."""
        return any(adapter.declare() or not adapter.traits.replies for adapter in self._adapters.values())

    def describe(self) -> str:
        """Return a line for each environment: its name, source and tools."""
        lines = []
        for name, adapter in self._adapters.items():
            tools = ", ".join(tool.name for tool in adapter.declare()) or "no tools"
            place = "" if self._sources[name] is adapter else f", in {self._sources[name].concurrency} workers"
            lines.append(f"{'' if name is None else f'{name}: '}{adapter.describe()}, {tools}{place}")
        return "\n".join(lines)

    def open(self, row: Mapping[str, Any]) -> EpisodeEnvironment:
        """Return the environment of a new episode of a row.

        Raises:
            EnvironmentFailedError: The row names no environment of the run, or the constructor failed.
        """
        if None in self._sources:
            return self._sources[None].open()
        name = row.get(ENVIRONMENT_COLUMN)
        if not isinstance(name, str) or name not in self._sources:
            raise EnvironmentFailedError(self._unknown(name), code="unknown_environment_of_row")
        return self._sources[name].open()

    def name_of(self, row: Mapping[str, Any]) -> str | None:
        """Return the name of the environment that a row chooses; None if all rows have the same one."""
        name = None if None in self._sources else row.get(ENVIRONMENT_COLUMN)
        return name if isinstance(name, str) and name in self._sources else None

    def declared_tools(self, row: Mapping[str, Any]) -> Sequence[Tool]:
        """Return the tools of a row's environment, as far as they are known without an episode."""
        adapter = self._adapters.get(self.name_of(row))
        return [] if adapter is None else adapter.declare()

    def _unknown(self, name: object) -> str:
        names = ", ".join(map(str, self._sources))
        return (
            f"the row's column {ENVIRONMENT_COLUMN!r} must name one of {names}, not {name!r}; correct the row, or "
            "environment.name"
        )

    def for_each(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Call a function on each episode or its position, on several at once if they are in worker processes."""
        self._pool.for_each(function, items)

    def release(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Call a function on episodes after an error."""
        self._pool.for_each(function, items)

    def submit(self, function: Callable[[Item], None], item: Item) -> Future[None]:
        """Call a function on one item: in another thread or, if episodes run in the trainer, at once."""
        return self._pool.submit(function, item)

    def close(self) -> None:
        """End all workers and release what episodes share."""
        self._pool.close()
        for name, source in self._sources.items():
            with _warning_of_fault(name):
                source.close()

    def check_row(self, row: Mapping[str, Any]) -> None:
        """Raise InvalidEnvironmentError if a row names no environment of the run, or lacks a column of its `reset`."""
        environment_name = None if None in self._adapters else row.get(ENVIRONMENT_COLUMN)
        if not isinstance(environment_name, str | None) or environment_name not in self._adapters:
            raise InvalidEnvironmentError(self._unknown(environment_name), code="unknown_environment_of_row")
        adapter = self._adapters[environment_name]
        required = [name for name, is_ in adapter.reset_parameters.items() if is_]
        if missing := [name for name in required if name not in row]:
            raise InvalidEnvironmentError(
                f"{adapter.name}.reset requires the columns {', '.join(missing)}, but rows have "
                f"{', '.join(sorted(row)) or 'none'}; add them, rename columns by data.columns, or give the parameters "
                "defaults",
                code="missing_column",
            )


def _place(
    recipe: EnvironmentRecipe, limits: HostingLimits, mcp: Sequence[McpAdapter]
) -> tuple[EnvironmentAdapter, EpisodeSource]:
    """Return an environment with the tools of MCP servers, and the source of its episodes, here or in workers."""
    own = [] if recipe.is_empty else [build_environment(recipe)]
    adapters = [*own, *mcp]
    adapter = adapters[0] if len(adapters) == 1 else CombinedAdapter(adapters)
    is_inline = adapter.is_builtin if limits.execution == "auto" else limits.execution == "inline"
    if is_inline or not own:
        if adapter.is_builtin and adapter.waits:
            adapter.concurrency = limits.num_workers
        return adapter, adapter
    try:
        recipe = sendable(recipe)
    except InvalidEnvironmentError as error:
        if limits.execution != "auto" or error.code != "not_sendable":
            raise
        _LOGGER.warning("%s; it runs in this process, without limits", error)
        return adapter, adapter
    hosted = HostedEnvironment(
        recipe,
        adapter.traits,
        timeout_s=limits.timeout_s,
        memory_mb=limits.memory_mb,
        num_workers=limits.num_workers,
    )
    return adapter, CombinedSource([hosted, *mcp], hosted.concurrency) if mcp else hosted


class _Pool:
    """Threads that wait for worker processes; none with a concurrency of 1."""

    def __init__(self, concurrency: int) -> None:
        self._executor = ThreadPoolExecutor(concurrency, "episodes") if concurrency > 1 else None

    def submit(self, function: Callable[[Item], None], item: Item) -> Future[None]:
        if self._executor is not None:
            return self._executor.submit(function, item)
        function(item)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def for_each(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        for future in [self.submit(function, item) for item in items]:
            future.result()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()


@contextlib.contextmanager
def _warning_of_fault(name: str | None) -> Iterator[None]:
    try:
        yield
    except EnvironmentFailedError as fault:
        _LOGGER.warning("the environment%s could not be closed: %s", "" if name is None else f" {name}", fault)


def make_recipes(
    name: str | Mapping[str, str] | None, tools: Sequence[str], template: EnvironmentRecipe
) -> dict[str | None, EnvironmentRecipe]:
    """Return the recipes of `environment.name` and `environment.tools`.

    Args:
        name: An environment, a mapping of them, or None for tools alone.
        tools: Further tools of each.
        template: Recipe with arguments, modules and working directory.
    """
    if isinstance(name, Mapping):
        return {key: replace(template, spec=spec, tools=tuple(tools)) for key, spec in name.items()}
    return {None: replace(template, spec=name, tools=tuple(tools))}
