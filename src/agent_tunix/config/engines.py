"""Checks of the group `engine`."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from agent_tunix.config.adapter_ranks import adapter_rank_problems
from agent_tunix.config.episodes import has_agent
from agent_tunix.config.schema import Config

_FOREIGN = ("vllm", "sglang")
# Keys that mean nothing without an engine, with their defaults.
_OF_ENGINES = {"urls": [], "max_staleness": 0, "num_processes": 0, "adapter_directory": None, "api_key_variable": None}
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


def engine_problems(config: Config) -> Iterator[str]:
    """Yield a line for each problem of the group `engine`, and for each setting that engines cannot honour."""
    engine, generation = config.engine, config.generation
    if engine.name == "none":
        for name, default in _OF_ENGINES.items():
            if getattr(engine, name) != default:
                yield (
                    f"engine.{name}={getattr(engine, name)} requires an engine, but engine.name is none; set "
                    f"engine=vllm, engine=sglang or engine=agent_tunix, or remove engine.{name}"
                )
        return
    yield from _place_problems(config)
    yield from adapter_rank_problems(config)
    filters = {
        name: getattr(generation, name)
        for name, default in (("top_k", None), ("top_p", 1.0), ("min_p", 0.0))
        if getattr(generation, name) != default
    }
    if filters and engine.name in _FOREIGN:
        yield (
            f"{', '.join(f'generation.{name}={value}' for name, value in filters.items())} must not be set with "
            f"engine={engine.name}, whose log-probabilities are then those of the filtered distribution, not of the "
            "policy; remove it, or use engine=agent_tunix"
        )
    evaluation = config.evaluation
    if evaluation.inference_config in ("standard", "liberal") and evaluation.num_samples and engine.name in _FOREIGN:
        yield (
            f"evaluation.inference_config must be greedy or training with engine={engine.name}, because the others set "
            "top_k and top_p, with which its log-probabilities are those of the filtered distribution, but it is "
            f"{evaluation.inference_config}; change it, or use engine=agent_tunix"
        )
    if config.model.quantization is not None:
        yield (
            f"model.quantization={config.model.quantization} must be null with an engine, which samples from the "
            "weights as they are stored; set model.quantization=null"
        )
    if engine.max_staleness > 0 and has_agent(config):
        yield (
            f"engine.max_staleness={engine.max_staleness} must be 0 with environment.agent, whose rollouts are one "
            "step at a time; set engine.max_staleness=0"
        )


def _place_problems(config: Config) -> Iterator[str]:
    """Yield a line if it is not clear where the engines are, or where weights go."""
    engine = config.engine
    if engine.num_processes and engine.name != "agent_tunix":
        yield (
            f"engine.num_processes={engine.num_processes} requires engine=agent_tunix, because {engine.name} runs in "
            "an environment of its own; start it there, and set engine.urls"
        )
    if engine.num_processes and config.distributed.mode != "none":
        yield (
            f"engine.num_processes={engine.num_processes} requires a run of one process, but distributed.mode is "
            f"{config.distributed.mode}; start `agent-tunix serve-policy` on each host, and set engine.urls"
        )
    if bool(engine.urls) == bool(engine.num_processes):
        either = " or engine.num_processes" if engine.name == "agent_tunix" else ""
        yield (
            f"engine={engine.name} requires engine.urls{either}, and only one of them, but engine.urls is "
            f"{engine.urls} and engine.num_processes is {engine.num_processes}; for example "
            "engine.urls=[http://localhost:8000]"
        )
    for url in engine.urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            yield f"engine.urls must list URLs like http://HOST:PORT, not {url!r}; correct it"
        elif not _LOOPBACK.fullmatch(parts.hostname) and engine.adapter_directory is None:
            yield (
                f"engine.adapter_directory is required, because {url} is on another machine: set a directory that this "
                "machine and the engines see under the same path"
            )
