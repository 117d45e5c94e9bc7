"""An uploaded file as a reward: here a function of the same signature that does nothing, in a worker the file itself.

What the trainer must know of a reward (how it is called, which columns it asks for, what it is made of) is read off the
file without running it. `build_uploaded` makes the real one, and only workers call that.
"""

import contextlib
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
from agent_tunix.rewards.shims import served_imports
from agent_tunix.rewards.uploaded.inspection import inspect_file

_FUNCTION = "reward"


# From what is written for a reward to the uploaded one that is meant; None: there is none of that name or id.
Fetch = Callable[[str], UploadedSource | None]


def adapt_uploaded(source: UploadedSource, name: str, settings: CallSettings, recipe: RewardRecipe) -> Convention:
    """The reward that an uploaded file is; nothing of it runs here, and calling it here is an error.

    Args:
        source: The file.
        name: Under which it is logged.
        settings: How the configuration has rewards called; the format of the upload decides the convention.
        recipe: How another process builds it.

    Raises:
        RewardSignatureError: It cannot be called as its format says.
        RewardError: It cannot be compiled, or has no `reward`.
    """
    facts = inspect_file(source.content)
    function = facts.function
    if facts.error is not None or function is None:
        reason = facts.error or f"it has no function `{_FUNCTION}` at its top level"
        raise RewardError(f"the uploaded reward {source.name!r} ({source.id}, {source.origin}) is of no use: {reason}")
    _remember_lines(source)
    template: Any = _not_here_async if function.is_async else _not_here
    code = template.__code__.replace(co_filename=source.file, co_firstlineno=function.line)
    stand_in: Any = FunctionType(code, {**globals(), "__name__": f"{source.name}@{source.id}"}, _FUNCTION)
    stand_in.__qualname__ = _FUNCTION
    stand_in.__signature__ = function.signature
    stand_in.__doc__ = function.doc
    stand_in.needs_batch = facts.needs_batch
    stand_in.uploaded_source = source
    stand_in.uploaded_imports = tuple(facts.imports)
    settings = replace(settings, convention=source.format)
    return adapt(stand_in, name, settings=settings, recipe=replace(recipe, uploaded=source))


def uploaded_source_of(reward: object) -> UploadedSource | None:
    """The file of an uploaded reward; None for any other."""
    found = getattr(getattr(reward, "given", None), "uploaded_source", None)
    return found if isinstance(found, UploadedSource) else None


def uploaded_imports_of(reward: object) -> tuple[str, ...]:
    """Top-level names of the modules that an uploaded reward imports; of any other reward none."""
    return tuple(getattr(getattr(reward, "given", None), "uploaded_imports", ()))


def build_uploaded(source: UploadedSource, name: str, settings: CallSettings) -> Convention:
    """The uploaded reward itself: runs the file. For workers alone.

    Raises:
        RewardError: It fails, or is not what its format says.
    """
    _remember_lines(source)
    module = ModuleType(f"{source.name}@{source.id}")
    module.__file__ = source.file
    sys.modules[module.__name__] = module  # where dataclasses and pickle look their own up
    try:
        with served_imports():
            exec(compile(source.text, source.file, "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:  # whatever the file may raise
        raise RewardError(
            f"the uploaded reward {source.name!r} ({source.id}) failed: {describe_fault(error, source.file)}"
        ) from error
    function = getattr(module, _FUNCTION, None)
    if not callable(function):
        raise RewardError(f"the uploaded reward {source.name!r} ({source.id}) has no function `{_FUNCTION}`")
    return adapt(function, name, settings=replace(settings, convention=source.format))


def _remember_lines(source: UploadedSource) -> None:
    """Have tracebacks and `inspect` find the text; without a time of change it stays."""
    lines = [f"{line}\n" for line in source.text.splitlines()]
    linecache.cache[source.file] = (len(source.content), None, lines, source.file)


@contextlib.contextmanager
def lines_forgotten(source: UploadedSource) -> Iterator[None]:
    """For a process that tries many sources: what tracebacks were to find of this one goes with the body's end."""
    try:
        yield
    finally:
        linecache.cache.pop(source.file, None)


def _not_here(*_: Any, **__: Any) -> Any:
    raise RewardError("an uploaded reward is called in workers only")


async def _not_here_async(*_: Any, **__: Any) -> Any:
    raise RewardError("an uploaded reward is called in workers only")
