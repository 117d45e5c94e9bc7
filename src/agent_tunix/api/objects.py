"""Objects of Python as what a configuration says: each is registered under its name, and the configuration names it.

So `config.yaml`, resuming and replays are those of any run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_tunix.environments.registry import BUILTIN, register_agent, register_environment, register_tool
from agent_tunix.errors import InvalidEnvironmentError
from agent_tunix.rewards.finding import function_name
from agent_tunix.rewards.registry import check_name, is_name, is_shipped, register_reward_function

if TYPE_CHECKING:
    from agent_tunix.config.schema import Config


@dataclass(frozen=True)
class Objects:
    """The reward, the environment and the tools of a run as the user gives them; None where the configuration decides.

    Attributes:
        reward: A name or path, a function or object, a list of these, or a mapping from components to these or to
            settings (`function`, `weight`, `requires` …).
        environment: A name or path, a class, a function that makes an instance, or a mapping from names to these.
        tools: Names, paths, functions or classes.
        agent: A name or path, a function, or a class of agents.
    """

    reward: Any = None
    environment: Any = None
    tools: Sequence[Any] | None = None
    agent: Any = None

    def named_in(self, config: "Config") -> "Config":
        """Register the objects, and return the configuration that names them.

        Raises:
            RewardError, InvalidEnvironmentError: An object is no reward, environment or tool, or `tools` is no list.
        """
        if self.reward is not None:
            config = _with_reward(config, name_reward(self.reward))
        environment = config.environment
        if self.environment is not None:
            environment = replace(environment, name=_name_environment(self.environment))
        if self.tools is not None:
            if not isinstance(self.tools, list | tuple):
                raise InvalidEnvironmentError(f"tools must be a list, but is {self.tools!r}; write tools=[TOOL]")
            environment = replace(environment, tools=[_name_tool(tool) for tool in self.tools])
        if self.agent is not None:
            named = replace(environment.agent, function=_name_agent(self.agent), command=None)
            environment = replace(environment, agent=named)
        return replace(config, environment=environment)


def name_reward(reward: Any) -> Any:
    """Register the objects of a reward, and return the value of `training.reward_function` that names them.

    Raises:
        RewardError: An object is no reward.
    """
    taken: set[str] = set()
    if isinstance(reward, list | tuple):
        return [_name_function(one, None, taken) for one in reward]
    if isinstance(reward, Mapping):
        return {name: _name_component(name, one, taken) for name, one in reward.items()}
    return _name_function(reward, None, taken)


def _with_reward(config: "Config", spec: Any) -> "Config":
    """Return the configuration with another reward; overrides such as `reward.components.x.weight=0.5` still hold."""
    from agent_tunix.runs.reward_setup import is_change

    changes = {name: one for name, one in config.reward.components.items() if is_change(one)}
    training = replace(config.training, reward_function=spec)
    return replace(config, training=training, reward=replace(config.reward, components=changes))


def _name_component(name: str, component: Any, taken: set[str]) -> dict[str, Any]:
    settings = dict(component) if isinstance(component, Mapping) else {"function": component}
    if "function" in settings:
        settings["function"] = _name_function(settings["function"], name, taken)
    return settings


def _name_function(reward: Any, component: str | None, taken: set[str]) -> str:
    """Return the name of a reward; an object is registered under the name of its component, or its own."""
    if isinstance(reward, str):
        return reward
    name = component or function_name(reward)
    name = _free_name(f"my_{name}" if is_shipped(name) else name, taken)
    check_name(name)
    register_reward_function(name, reward, overwrite=True)
    taken.add(name)
    return name


def _free_name(name: str, taken: Collection[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _name_environment(environment: Any) -> Any:
    if isinstance(environment, Mapping):
        return {name: _name_environment(one) for name, one in environment.items()}
    if isinstance(environment, str):
        return environment
    name = _own_name(environment)
    register_environment(name, overwrite=True)(environment)
    return name


def _name_tool(tool: Any) -> str:
    if isinstance(tool, str):
        return tool
    name = _plain_name(tool)  # the model calls it by this name, also where a built-in tool has it
    register_tool(name, overwrite=True)(tool)
    return name


def _name_agent(agent: Any) -> str:
    if isinstance(agent, str):
        return agent
    if not callable(agent):
        raise InvalidEnvironmentError(f"an agent must be a function or a name, not {agent!r}", code="invalid_agent")
    name = _own_name(agent)
    register_agent(name, overwrite=True)(agent)
    return name


def _own_name(definition: Any) -> str:
    """Return the name under which an environment or agent is registered; that of a built-in one stays free."""
    name = _plain_name(definition)
    return f"my_{name}" if name in BUILTIN else name


def _plain_name(definition: Any) -> str:
    name = str(getattr(definition, "__name__", None) or type(definition).__name__)
    return name if is_name(name) else "unnamed"  # a lambda
