"""Calls of reward functions as their libraries make them, written by hand; no adapter of this package takes part."""

import asyncio
import inspect
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from agent_tunix.rewards import Sample
from agent_tunix.rewards.conventions.libraries.parsers import Parser
from agent_tunix.rewards.shims import served_imports

Values = list[Any]


def native_scores(convention: str, module: ModuleType, samples: Sequence[Sample]) -> list[float | None]:
    """The values of one group of samples."""
    with served_imports():
        values = CALLS[convention](module, samples)
    return [None if value is None else float(value) for value in values]


def done(returned: Any) -> Any:
    """The result, awaited if it must be."""

    async def wait() -> Any:
        return await returned

    return asyncio.run(wait()) if inspect.isawaitable(returned) else returned


def replies(samples: Sequence[Sample]) -> Values:
    return [[{"role": "assistant", "content": sample.response}] for sample in samples]


def prompts(samples: Sequence[Sample]) -> Values:
    return [[dict(message) for message in sample.messages[:-1]] for sample in samples]


def columns(samples: Sequence[Sample]) -> dict[str, Values]:
    return {name: [sample.columns[name] for sample in samples] for name in samples[0].columns}


def verl(module: ModuleType, samples: Sequence[Sample]) -> Values:
    def fields(sample: Sample) -> Values:
        row = sample.columns
        return [row["data_source"], sample.response, row["reward_model"]["ground_truth"], dict(row["extra_info"])]

    if "solution_strs" in inspect.signature(module.compute_score).parameters:
        names = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
        batch = zip(*map(fields, samples), strict=True)
        said = module.compute_score(**dict(zip(names, map(list, batch), strict=True)))
    else:
        names = ("data_source", "solution_str", "ground_truth", "extra_info")
        said = [done(module.compute_score(**dict(zip(names, fields(one), strict=True)))) for one in samples]
    return [one["score"] if isinstance(one, dict) else one for one in said]


def openrlhf(module: ModuleType, samples: Sequence[Sample]) -> Values:
    values = []
    for sample in samples:
        said = module.reward_func([sample.prompt + sample.response], [sample.prompt], [sample.columns["label"]])
        values.append((said["rewards"] if isinstance(said, dict) else said)[0])
    return values


def slime(module: ModuleType, samples: Sequence[Sample]) -> Values:
    from slime.utils.types import Sample as SlimeSample  # type: ignore[import-not-found]

    statuses = SlimeSample.Status
    made = [
        SlimeSample(
            prompt=sample.prompt,
            response=sample.response,
            label=sample.columns["label"],
            metadata=dict(sample.columns),
            status=statuses.COMPLETED if sample.ended else statuses.TRUNCATED,
        )
        for sample in samples
    ]
    if "samples" in inspect.signature(module.reward_func).parameters:
        return list(done(module.reward_func(SimpleNamespace(), made)))
    return [done(module.reward_func(SimpleNamespace(), one)) for one in made]


def ms_swift(module: ModuleType, samples: Sequence[Sample]) -> Values:
    further = {
        "trainer_state": SimpleNamespace(global_step=samples[0].step - 1, max_steps=samples[0].max_steps),
        "messages": [[dict(message) for message in sample.messages] for sample in samples],
    }
    reward = module.orms["mine"](args=None)
    return list(done(reward([sample.response for sample in samples], **{**columns(samples), **further})))


def verifiers(module: ModuleType, samples: Sequence[Sample]) -> Values:
    parser = getattr(module, "parser", Parser())
    states = []
    for sample, prompt, reply in zip(samples, prompts(samples), replies(samples), strict=True):
        row = sample.columns
        state = {"prompt": prompt, "completion": reply, "answer": row["answer"], "info": row["info"], "task": "default"}
        states.append({**state, "is_truncated": not sample.ended})
    named = inspect.signature(module.reward).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in named.values())
    if "completions" in named:
        whole = {f"{name}s": [state[name] for state in states] for name in ("completion", "answer")}
        return list(done(module.reward(**whole)))
    values = []
    for state in states:
        given = {**state, "state": state, "parser": parser}
        taken = given if takes_any else {name: value for name, value in given.items() if name in named}
        values.append(done(module.reward(**taken)))
    return values


def benchmax(module: ModuleType, samples: Sequence[Sample]) -> Values:
    values = []
    for sample, reply in zip(samples, replies(samples), strict=True):
        given = {**sample.columns, "completion": reply, "ground_truth": sample.columns["answer"]}
        given |= {"mcp_client": None, "workspace": None}
        given["termination_reason"] = "finished" if sample.ended else "max_turn_tokens"
        named = inspect.signature(module.reward_functions["match"]).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in named.values())
        taken = given if takes_any else {name: value for name, value in given.items() if name in named}
        values.append(done(module.reward_functions["match"](**taken)))
    return values


def trl(module: ModuleType, samples: Sequence[Sample]) -> Values:
    texts, messages = [sample.response for sample in samples], replies(samples)
    as_messages = "[0][" in inspect.getsource(module.reward)
    given: dict[str, Any] = {
        "prompts": prompts(samples) if as_messages else [sample.prompt for sample in samples],
        **columns(samples),
    }
    given["completions"] = messages if as_messages else texts
    given["trainer_state"] = SimpleNamespace(global_step=samples[0].step - 1, max_steps=samples[0].max_steps)
    return list(done(module.reward(**given)))


def classes(module: ModuleType, samples: Sequence[Sample]) -> Values:
    return list(module.reward()(prompts(samples), replies(samples), **columns(samples)))


CALLS = {
    function.__name__: function for function in (verl, openrlhf, slime, ms_swift, verifiers, benchmax, trl, classes)
}
