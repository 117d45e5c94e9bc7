"""An uploaded file as a reward.

The trainer must know how a reward is called, which columns it requires and which modules it imports. It reads these
from the file without running it, and uses a stand-in with the same signature. Only workers call `build_uploaded`, which
runs the file.
"""

import contextlib
import io
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.conventions import CallSettings, Convention, adapt
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.recipe import RewardRecipe, UploadedSource
from agent_tunix.rewards.registry import registered_apart
from agent_tunix.rewards.shims import served_imports
from agent_tunix.rewards.uploaded.inspection import inspect_file

# Maps the text in a configuration to the uploaded reward that it names; None if no reward has that name or id.
Fetch = Callable[[str], UploadedSource | None]


def adapt_uploaded(source: UploadedSource, name: str, settings: CallSettings, recipe: RewardRecipe) -> Convention:
    """Return a reward for an uploaded file, without running the file. Calling the reward in this process is an error.

    The format of the upload decides the convention, whatever `settings` says.

    Raises:
        RewardSignatureError: The function cannot be called as its format requires.
        RewardError: The file cannot be compiled, or has no such function.
    """
    facts = inspect_file(source.content, source.function)
    function = facts.function
    if facts.error is not None or function is None:
        reason = facts.error or f"it has no function `{source.function}` at its top level"
        raise RewardError(
            f"the uploaded reward {source.name!r} ({source.id}, {source.origin}) cannot be used: {reason}"
        )
    _remember_lines(source)
    template: Any = _not_here_async if function.is_async else _not_here
    code = template.__code__.replace(co_filename=source.file, co_firstlineno=function.line)
    stand_in: Any = FunctionType(code, {**globals(), "__name__": f"{source.name}@{source.id}"}, source.function)
    stand_in.__qualname__ = source.function
    stand_in.__signature__ = function.signature
    stand_in.__doc__ = function.doc
    stand_in.needs_batch = facts.needs_batch
    stand_in.uploaded_source = source
    stand_in.uploaded_imports = tuple(facts.imports)
    settings = replace(settings, convention=source.format)
    return adapt(stand_in, name, settings=settings, recipe=replace(recipe, uploaded=source))


def uploaded_source_of(reward: object) -> UploadedSource | None:
    """Return the file of an uploaded reward; None for any other reward."""
    source = getattr(getattr(reward, "definition", None), "uploaded_source", None)
    return source if isinstance(source, UploadedSource) else None


def uploaded_imports_of(reward: object) -> tuple[str, ...]:
    """Return the top-level names of the modules that an uploaded reward imports; empty for any other reward."""
    return tuple(getattr(getattr(reward, "definition", None), "uploaded_imports", ()))


def build_uploaded(source: UploadedSource, name: str, settings: CallSettings) -> Convention:
    """Run an uploaded file and return its reward. Only workers may call this.

    Raises:
        RewardError: The file fails, or does not fit its format.
    """
    _remember_lines(source)
    module = ModuleType(f"{source.name}@{source.id}")
    module.__file__ = source.file
    sys.modules[module.__name__] = module  # dataclasses and pickle look up their module here
    try:
        with served_imports(), registered_apart():
            exec(compile(source.text, source.file, "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:  # the file may raise anything
        raise RewardError(
            f"the uploaded reward {source.name!r} ({source.id}) failed: {describe_fault(error, source.file)}"
        ) from error
    function = getattr(module, source.function, None)
    if not callable(function):
        raise RewardError(f"the uploaded reward {source.name!r} ({source.id}) has no function `{source.function}`")
    return adapt(function, name, settings=replace(settings, convention=source.format))


def _remember_lines(source: UploadedSource) -> None:
    """Put the source into `linecache`, for tracebacks and `inspect`. Without a modification time, it stays there."""
    lines = io.StringIO(source.text, newline=None).readlines()  # those that Python counts
    linecache.cache[source.file] = (len(source.content), None, lines, source.file)


@contextlib.contextmanager
def lines_forgotten(source: UploadedSource) -> Iterator[None]:
    """Forget the source lines of a file when the body ends, for a process that tries many sources."""
    try:
        yield
    finally:
        linecache.cache.pop(source.file, None)


_ELSEWHERE = (
    "an uploaded reward must run in a worker process, but was called in this one; score it with a run or with"
    " `agent-tunix rewards try`"
)


def _not_here(*_: Any, **__: Any) -> Any:
    raise RewardError(_ELSEWHERE)


async def _not_here_async(*_: Any, **__: Any) -> Any:
    raise RewardError(_ELSEWHERE)
