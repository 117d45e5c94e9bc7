"""Substitutes for packages that published reward files import, used if the packages are not installed.

A finder at the end of `sys.meta_path` serves the modules below, so an installed package always comes first. The finder
is active only while a user's file is loaded or a reward is called. The served modules then leave `sys.modules` again,
so code that checks for such a package does not find it.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
import threading
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

from agent_tunix.errors import RewardError
from agent_tunix.rewards.unavailable import importer_by_name, note, note_import

# Module → imported name → `module:name` of our equivalent.
_HELPERS = (
    "extract_completion_text",
    "extract_answer_block",
    "clip01",
    "overlap_reward",
    "citation_score",
    "tool_call_efficiency",
    "count_search_calls",
    "search_within_budget",
    "percent_of_text_a_in_text_b",
)
_BASES = {
    "BaseReward": "agent_tunix.rewards.conventions.classes:BaseReward",
    "RewardConfig": "agent_tunix.rewards.conventions.classes:RewardConfig",
}
_JUDGES = {
    name: f"agent_tunix.rewards.judges.reward_classes:{name}"
    for name in (
        "JudgeInput",
        "BaseLLMJudgeReward",
        "DeepEvalSimpleReward",
        "DeepEvalAnswerRelevancyReward",
        "DeepEvalSummarizationReward",
        "AbstractDeepEvalGEvalRAGReward",
    )
}
_ENVIRONMENTS = "agent_tunix.rewards.conventions.base_env"
_EXAMPLES = {name: f"{_ENVIRONMENTS}:{name}" for name in ("make_example", "canonical_example_id")}
_TYPES = {
    **{name: f"{_ENVIRONMENTS}:{name}" for name in ("StandardizedExample", "ToolDefinition", "ChatMessage")},
    **{name: f"{_ENVIRONMENTS}:{name}" for name in ("Messages", "Completion", "RewardFunction")},
    "Example": f"{_ENVIRONMENTS}:PreprocessedExample",
}
_ROLLOUTS = {
    "BaseEnv": f"{_ENVIRONMENTS}:BaseEnv",
    "canonical_example_id": f"{_ENVIRONMENTS}:canonical_example_id",
    "Example": "agent_tunix.rewards.conventions.rollouts:RolloutExample",
    **{
        name: f"agent_tunix.rewards.conventions.rollouts:{name}"
        for name in (
            *("BaseRollout", "DatasetSplit", "JsonRow", "Message", "Messages", "RewardMap"),
            *("RolloutAttempt", "RolloutFailure", "Tool"),
        )
    },
}
_MILES = {"Sample": "agent_tunix.rewards.conventions.miles:MilesSample"}
_SWIFT = {name: f"agent_tunix.rewards.conventions.libraries.swift:{name}" for name in ("ORM", "AsyncORM", "orms")}
_PARSERS = {
    name: f"agent_tunix.rewards.conventions.libraries.parsers:{name}"
    for name in ("Parser", "ThinkParser", "MaybeThinkParser", "XMLParser")
}
SERVED: dict[str, dict[str, str]] = {
    "benchmax": {},
    "benchmax.envs": {**_TYPES, **_ROLLOUTS},
    "benchmax.envs.base": _ROLLOUTS,
    "benchmax.envs.base.dataset": _ROLLOUTS,
    "benchmax.envs.base.env": _ROLLOUTS,
    "benchmax.envs.base.openai_types": _ROLLOUTS,
    "benchmax.envs.base_env": {**_ROLLOUTS, **_TYPES, **_EXAMPLES},
    "benchmax.envs.example_id": _EXAMPLES,
    "benchmax.envs.logging": {name: f"{_ENVIRONMENTS}:{name}" for name in ("rollout_context", "group_context")},
    "benchmax.envs.tracking": {"log_env": f"{_ENVIRONMENTS}:log_env"},
    "benchmax.envs.identity": _ROLLOUTS,
    "benchmax.envs.shared_types": _ROLLOUTS,
    "benchmax.envs.types": {**_ROLLOUTS, **_TYPES},
    "benchmax.prompts": {},
    "benchmax.prompts.tools": {"render_tools_prompt": f"{_ENVIRONMENTS}:render_tools_prompt"},
    "benchmax.envs.reward_helpers": {name: f"agent_tunix.rewards.helpers:{name}" for name in _HELPERS},
    "benchmax.rewards": {name: f"agent_tunix.rewards.helpers:{name}" for name in _HELPERS},
    "llm_finetuning": {},
    "llm_finetuning.core": _BASES,
    "llm_finetuning.core.reward": _BASES,
    "llm_finetuning.core.llm_judges": _JUDGES,
    "llm_finetuning.core.llm_judges.base": _JUDGES,
    "llm_finetuning.core.llm_judges.deepeval": _JUDGES,
    "miles": {},
    "miles.utils": {},
    "miles.utils.types": _MILES,
    "slime": {},
    "slime.utils": {},
    "slime.utils.types": _MILES,
    "swift": {},
    "swift.utils": {"get_logger": "agent_tunix.rewards.conventions.libraries.swift:get_logger"},
    "swift.plugin": _SWIFT,
    "swift.plugin.orm": _SWIFT,
    "swift.rewards": _SWIFT,
    "swift.rewards.orm": _SWIFT,
    "verifiers": _PARSERS,
    "verifiers.parsers": _PARSERS,
    "fastmcp": {},
    "fastmcp.exceptions": {},
    "mcp": {},
    "mcp.types": {},
}
# Packages whose other modules and names are served as placeholders. Files written for these packages also contain
# rollouts, which a reward does not need.
OPEN = ("benchmax", "castform", "miles", "skyrl_gym", "slime", "swift", "verifiers", "fastmcp", "mcp")
_PLAIN, _BATCH = "def reward(response, answer): …", "def reward(completions, answer, **kwargs): …"
# Modules that are not served, because a file that imports them is written for a library that is not supported: the
# name of the library, and the function to write instead.
UNSUPPORTED = {
    "verifiers.v1": ("verifiers.v1, with its tasks and traces,", _PLAIN),
    "eval_protocol": ("eval-protocol", _PLAIN),
    "reward_kit": ("eval-protocol", _PLAIN),
    "rllm": ("rLLM", _PLAIN),
    "areal": ("AReaL", _PLAIN),
    "trlx": ("trlX", _BATCH),
}


def unsupported_library(module: str) -> tuple[str, str] | None:
    """Return the library of an unsupported module, and the function to write instead; None for other modules."""
    return next((told for name, told in UNSUPPORTED.items() if f"{module}.".startswith(f"{name}.")), None)


@contextlib.contextmanager
def served_imports() -> Iterator[None]:
    """Serve imports inside the block. Calls may be nested and concurrent."""
    _SERVER.start()
    try:
        yield
    finally:
        _SERVER.stop()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of the modules of `SERVED` that no other finder has found."""

    def __init__(self) -> None:
        self.served: dict[str, ModuleType] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = fullname.partition(".")[0]
        is_open = package in OPEN and self._is_ours(package)
        if (fullname not in SERVED and not is_open) or unsupported_library(fullname):
            if (frame := importer_by_name()) is not None:  # no other finder follows
                note_import(frame, fullname, f"No module named {fullname!r}")
            return None
        is_package = is_open or any(name.startswith(f"{fullname}.") for name in SERVED)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def _is_ours(self, package: str) -> bool:
        """Return True unless the package is installed; a directory of its name on the import path does not count."""
        module = sys.modules.get(package)
        return module is None or package in self.served or getattr(module, "__file__", None) is None

    def exec_module(self, module: ModuleType) -> None:
        for name, place in SERVED.get(module.__name__, {}).items():
            source, _, attribute = place.partition(":")
            setattr(module, name, getattr(importlib.import_module(source), attribute))
        if module.__name__.partition(".")[0] in OPEN:
            module.__getattr__ = lambda name: _placeholder(module.__name__, name)  # type: ignore[method-assign]
        self.served[module.__name__] = module

    def forget(self) -> None:
        """Remove the served modules from `sys.modules` and from installed parent packages."""
        for name, module in self.served.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            parent, _, leaf = name.rpartition(".")
            if parent in sys.modules and getattr(sys.modules[parent], leaf, None) is module:
                delattr(sys.modules[parent], leaf)
        self.served.clear()


class _Placeholder(ABCMeta):
    """Class of placeholders."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a decorated function unchanged, as with `@vf.stop`; otherwise make an object, which is an error."""
        if cls.__name__.islower() and len(args) == 1 and not kwargs and inspect.isfunction(args[0]):
            return args[0]
        return super().__call__(*args, **kwargs)

    def __getitem__(cls, key: object) -> type:
        """Return the class itself, as a generic one does: `JsonlDataset[dict]`."""
        return cls

    def __setitem__(cls, key: object, value: object) -> None:
        """Do nothing, because a file may register parts that no reward needs, as in `multi_turns["mine"] = Mine`."""


def _placeholder(module: str, name: str) -> type:
    """Return a class that stands for a name of a package that is not installed. Making an object of it is an error.

    The class can be imported, derived from, and used in annotations and in `except`.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if unsupported_library(f"{module}.{name}"):
        raise ModuleNotFoundError(f"No module named '{module}.{name}'", name=f"{module}.{name}")

    def refuse(*_: object, **__: object) -> NoReturn:
        reason = (
            f"{module}.{name} is not available, because {module.partition('.')[0]} is not installed here; install it,"
            " or take the part of it that the reward needs into its file"
        )
        note(reason)
        raise RewardError(reason, code="unavailable_import")

    base = Exception if name.endswith(("Error", "Exception")) else object
    return _Placeholder(name, (base,), {"__init__": refuse, "__module__": module})


class _Server:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._finder = _Finder()

    def start(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                sys.meta_path.append(self._finder)

    def stop(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                sys.meta_path.remove(self._finder)
                self._finder.forget()


_SERVER = _Server()
