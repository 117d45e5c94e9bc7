"""Convention `environment`: an object scores a conversation, or a group of them, by named components.

    async def compute_reward(self, rollout_id, messages, task, **kwargs) -> dict[str, float]: ...
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs) -> list[dict[str, float]]: ...

    async def compute_reward(self, rollout) -> dict[str, float]: ...
    async def compute_group_rewards(self, rollouts) -> dict[str, dict[str, float]]: ...

| parameter | argument |
| --- | --- |
| `rollout_id` | id of the completion, `"<step>_<prompt>_<generation>"` |
| `messages` | the conversation as chat messages, the completion last |
| `task` | all columns of the dataset's row, plus `prompt`, and the reference as `ground_truth` |
| `rollout`, or the only parameter | an object with `rollout_id`, `messages`, `example_args` and `termination_reason` |
| `completion`, `ground_truth` | text of the completion, and the reference (the older signature) |
| `rollout_ids`, `messages_list`, `tasks`, `rollouts`, `completions`, `ground_truths` | the same for a group, as lists |
| `termination_reason`, `termination_reasons` | `finished`, `max_turn_tokens`, or how the episode ended |
| any other name | an argument from configuration, or the dataset's column (in the group form a list) |

A class may have either method or both, async or not. With both, their components are merged for each completion. If
both name a component, the value of the group method counts. A method returns None if it does not apply. A group method
returns a list, or a mapping from `rollout_id`.

The reward is the sum of the components, weighted by the argument `weights` (`rewards.args.<name>.weights={quality:
2.0}`; 1 by default). Each component is logged unweighted.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards.conventions import running
from agent_tunix.rewards.conventions.base import FAULTS, groups_of
from agent_tunix.rewards.conventions.base_env import BaseEnv
from agent_tunix.rewards.conventions.components import sum_components
from agent_tunix.rewards.conventions.formed import FormedConvention
from agent_tunix.rewards.conventions.rollouts import BaseRollout, termination_reason_in_benchmax
from agent_tunix.rewards.conventions.target import Call
from agent_tunix.rewards.conventions.values import describe_kind, own_copy, reference_of, to_score
from agent_tunix.rewards.sample import Outcome, Sample, Score

SINGLE = "compute_reward"
GROUPS = ("compute_group_reward", "compute_group_rewards")
METHODS = (SINGLE, *GROUPS)
_PLURALS = {
    "rollout_id": "rollout_ids",
    "messages": "messages_list",
    "rollout": "rollouts",
    "task": "tasks",
    "example_args": "example_args_list",
    "completion": "completions",
    "ground_truth": "ground_truths",
    "termination_reason": "termination_reasons",
}
EXPECTED_GROUP = "expected a list of one dict for each completion, or a dict of one for each rollout_id"

# Result of a method for one completion: components, None, or the outcome of a fault.
MethodResult = Mapping[str, Any] | Score | None


class EnvironmentReward(FormedConvention):
    """The reward methods of an environment."""

    convention = "environment"
    provided = (*_PLURALS, *_PLURALS.values())
    reserved = (*_PLURALS, *_PLURALS.values())
    form_parameters = ("completion", "completions")

    def _make_calls(self) -> Sequence[Call]:
        own = own_methods(self.definition)
        if not own and callable(self.definition):
            self._single: Call | None = Call(self.target)
            self._group: Call | None = None
            if _takes_several(self._single):
                self._single, self._group = None, self._single
        else:
            calls = {name: Call(self.target, name) for name in own}
            self._single = calls.get(SINGLE)
            self._group = next((calls[name] for name in GROUPS if name in calls), None)
            if self._single is not None and _takes_several(self._single):
                if self._group is not None:
                    raise RewardSignatureError(
                        f"reward {self.name!r}: `compute_reward` takes a group, {self._single.signature}, and there "
                        f"is `{self._group.method}` too; keep one of them"
                    )
                self._single, self._group = None, self._single
        self.needs_group = self._group is not None
        self.weights = self._take_weights()
        return [call for call in (self._single, self._group) if call is not None]

    def _manner(self) -> str:
        has_tools = _is_own(getattr(self.definition, "run_tool", None), "run_tool")
        return f"{super()._manner()}, without its tools" if has_tools else super()._manner()

    @property
    def takes_termination_reason(self) -> bool:
        """True if a method receives the reason why a rollout ended."""
        names = {name for call in self.calls for name in call.names}
        reason_names = {"termination_reason", "termination_reasons", "rollout", "rollouts"}
        return bool(names & reason_names) or any(map(_takes_only_rollouts, self.calls))

    def _take_weights(self) -> dict[str, float]:
        """Return the argument `weights`, unless the constructor or a method takes it."""
        if any(call is not None and "weights" in call.names for call in (self._single, self._group)):
            return {}
        weights = self.target.call_args.pop("weights", {})
        if not isinstance(weights, Mapping) or not all(
            isinstance(weight, int | float) and not isinstance(weight, bool) for weight in weights.values()
        ):
            raise RewardError(
                f"rewards.args.{self.name}.weights must map components to numbers, not {weights!r}",
                code="invalid_mixture",
            )
        return {str(name): float(weight) for name, weight in weights.items()}

    def _units(self, samples: Sequence[Sample]) -> Iterable[Sequence[int]]:
        return groups_of(samples) if self.needs_group else ([place] for place in range(len(samples)))

    def _evaluate(self, samples: Sequence[Sample], first: int) -> list[Score]:
        if self._group is None:
            return self._merge(1, [_result_of(self._call_single(samples[0]))], [])
        single = [self._try_single(sample) for sample in samples] if self._single else []
        return self._merge(len(samples), single, _results_of_group(self._call_group(samples, single), samples))

    async def _evaluate_async(self, samples: Sequence[Sample], first: int, slots: asyncio.Semaphore) -> list[Score]:
        if self._group is None:
            return self._merge(1, [await self._await_single(samples[0], slots)], [])
        attempts = (self._try_single_async(sample, slots) for sample in samples) if self._single else ()
        single = await asyncio.gather(*attempts)
        async with slots:
            returned = self._call_group(samples, single)
            group = _results_of_group(await running.awaited(returned), samples)
        return self._merge(len(samples), single, group)

    async def _await_single(self, sample: Sample, slots: asyncio.Semaphore) -> MethodResult:
        assert self._single is not None
        async with slots:
            returned = self._call_single(sample)
            return _result_of(await running.awaited(returned))

    async def _try_single_async(self, sample: Sample, slots: asyncio.Semaphore) -> MethodResult:
        try:
            return await self._await_single(sample, slots)
        except FAULTS as error:  # costs this completion, not its group
            return self._failed(error)

    def _try_single(self, sample: Sample) -> MethodResult:
        try:
            return _result_of(self._call_single(sample))
        except FAULTS as error:  # costs this completion, not its group
            return self._failed(error)

    def _merge(self, count: int, single: Sequence[MethodResult], group: Sequence[MethodResult]) -> list[Score]:
        return [self._merge_one([results[place] for results in (single, group) if results]) for place in range(count)]

    def _merge_one(self, results: Sequence[MethodResult]) -> Score:
        merged: dict[str, Any] = {}
        for part in results:
            if isinstance(part, Score):
                return part
            merged.update(part or {})
        if not merged and all(part is None for part in results):
            return Score.failed(Outcome.NOT_APPLICABLE, "the reward returned None")
        return sum_components(merged, self.weights)

    def _call_single(self, sample: Sample) -> Any:
        assert self._single is not None
        lazily: dict[str, Callable[[], Any]] = {
            "rollout_id": lambda: sample.rollout_id,
            "messages": lambda: messages_of(sample),
            "rollout": lambda: rollout_of(sample, None),
            "task": lambda: task_of(sample),
            "example_args": lambda: task_of(sample),
            "completion": lambda: self._completion_of(sample),
            "ground_truth": lambda: reference_of(sample.columns, "ground_truth"),
            "termination_reason": lambda: termination_reason_of(sample),
        }
        available = {**sample.columns, "prompt": sample.prompt, **self.target.call_args}
        return self._single(available, _as_meant(self._single, lazily, "rollout"))

    def _call_group(self, samples: Sequence[Sample], single: Sequence[MethodResult]) -> Any:
        assert self._group is not None
        lazily: dict[str, Callable[[], Any]] = {
            "rollout_ids": lambda: [sample.rollout_id for sample in samples],
            "messages_list": lambda: [messages_of(sample) for sample in samples],
            "rollouts": lambda: [
                rollout_of(sample, result)
                for sample, result in zip(samples, single or [None] * len(samples), strict=True)
                if not isinstance(result, Score)  # as in benchmax, a rollout that failed is in no group
            ],
            "tasks": lambda: [task_of(sample) for sample in samples],
            "example_args_list": lambda: [task_of(sample) for sample in samples],
            "completions": lambda: [self._completion_of(sample) for sample in samples],
            "ground_truths": lambda: [reference_of(sample.columns, "ground_truth") for sample in samples],
            "termination_reasons": lambda: [termination_reason_of(sample) for sample in samples],
        }
        names = dict.fromkeys(name for sample in samples for name in sample.columns)
        columns = {name: [sample.columns.get(name) for sample in samples] for name in names}
        return self._group({**columns, **self.target.call_args}, _as_meant(self._group, lazily, "rollouts"))


def termination_reason_of(sample: Sample) -> str:
    """Return the row's `termination_reason`, or else the reason why the completion or episode ended."""
    if (own := sample.columns.get("termination_reason")) is not None:
        return str(own)
    if sample.episode is not None:
        return sample.episode.stop_reason
    return "finished" if sample.ended else "max_turn_tokens"


def _as_meant(call: Call, lazily: dict[str, Callable[[], Any]], rollout: str) -> dict[str, Callable[[], Any]]:
    """Return only the arguments that the signature names. Old and new signatures name the same things differently.

    An only parameter receives the rollouts, whatever its name, because benchmax passes them by position.
    """
    if _takes_only_rollouts(call):
        return {call.names[0]: lazily[rollout]}
    return {name: make for name, make in lazily.items() if name in call.names}


def _takes_only_rollouts(call: Call) -> bool:
    return len(call.names) == 1 and call.names[0] not in {*_PLURALS, *_PLURALS.values()}


def _result_of(returned: Any) -> MethodResult:
    if isinstance(returned, Score):
        return to_score(returned, "a dict of named components")
    if returned is None or isinstance(returned, Mapping):
        return returned
    return Score.failed(Outcome.ERROR, f"returned {describe_kind(returned)}; expected a dict of named components")


def _results_of_group(returned: Any, samples: Sequence[Sample]) -> list[MethodResult]:
    count, ids = len(samples), [sample.rollout_id for sample in samples]
    if returned is None:
        return [None] * count
    if isinstance(returned, Mapping) and returned.keys() <= {*ids}:
        missing = Score.failed(Outcome.ERROR, f"returned no components for this rollout; {EXPECTED_GROUP}")
        return [_result_of(returned[rollout_id]) if rollout_id in returned else missing for rollout_id in ids]
    if not isinstance(returned, list | tuple):
        fault = f"returned {describe_kind(returned)}; {EXPECTED_GROUP}"
    elif len(returned) != count:
        fault = f"returned {len(returned)} values for {count} completions"
    else:
        return [_result_of(value) for value in returned]
    return [Score.failed(Outcome.ERROR, fault)] * count


def own_methods(definition: Any) -> list[str]:
    """Return the names of the reward methods that an object or class has, other than abstract and inherited ones."""
    return [name for name in METHODS if _is_own(getattr(definition, name, None), name)]


def _is_own(method: Any, name: str) -> bool:
    inherited = getattr(method, "__func__", method) is getattr(BaseEnv, name, None)
    return callable(method) and not inherited and not getattr(method, "__isabstractmethod__", False)


def _takes_several(call: Call) -> bool:
    return any(name in _PLURALS.values() for name in call.names)


def messages_of(sample: Sample) -> list[dict[str, Any]]:
    """Return the conversation, the completion last."""
    if sample.messages:
        return [own_copy(dict(message)) for message in sample.messages]
    return [{"role": "user", "content": sample.prompt}, {"role": "assistant", "content": sample.response}]


def rollout_of(sample: Sample, result: MethodResult) -> BaseRollout:
    """Return the rollout as newer benchmax environments get it, with the components that `compute_reward` returned."""
    own = ("prompt_messages", "termination_reason")  # of the rollout, not of its row
    reason = termination_reason_in_benchmax(termination_reason_of(sample))
    return BaseRollout(
        rollout_id=sample.rollout_id,
        termination_reason=reason,
        rewards=dict(result) if isinstance(result, Mapping) else None,
        messages=messages_of(sample),
        example_args={name: value for name, value in task_of(sample).items() if name not in own},
    )


def task_of(sample: Sample) -> dict[str, Any]:
    """Return the row, with the prompt and the reference under the names that environments use."""
    reference = reference_of(sample.columns, "ground_truth")
    task = {"prompt": sample.prompt, "ground_truth": reference, **sample.columns}
    return {name: own_copy(value) for name, value in task.items()}
