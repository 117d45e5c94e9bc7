"""Convention `miles`: an async function takes the run's arguments and a sample, or the samples of a group.

    async def reward(args, sample, **kwargs): ...     -> a number, or a dict with rewards.reward_key
    async def reward(args, samples, **kwargs): ...    -> a list of them, one for each sample of the group

slime's functions are the same.

| parameter | argument |
| --- | --- |
| `sample` | a `MilesSample`: one completion |
| `samples` | the samples of one group, in order |
| `args` | a namespace with `reward_key`, `n_samples_per_prompt` and the like, and all arguments from configuration |
| any other name | an argument from configuration, or the dataset's column of that name (in the group form a list) |

If no parameter has one of these names, the first is `args` and the second the sample, whatever their names, because
slime passes them by position. The second is a group if its annotation is a list or its name ends in `samples`, as in
`group_samples`, but not in `sample_or_samples`.

The calls of a batch run concurrently. `from miles.utils.types import Sample`, and the same from `slime.utils.types`,
work even if these packages are not installed.
"""

import asyncio
import enum
import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from agent_tunix.errors import RewardSignatureError
from agent_tunix.rewards.conventions import running
from agent_tunix.rewards.conventions.base import Convention, groups_of
from agent_tunix.rewards.conventions.components import score_of_entry
from agent_tunix.rewards.conventions.formed import prompt_of
from agent_tunix.rewards.conventions.target import Call
from agent_tunix.rewards.conventions.values import own_copy, reference_of, to_scores
from agent_tunix.rewards.sample import Sample, Score

EXPECTED = "a miles reward returns one number, or a dict with rewards.reward_key"
EXPECTED_GROUP = "a reward of a group returns a list of one value for each sample"


class MilesStatus(enum.Enum):
    """End of a completion."""

    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass
class MilesSample:
    """One completion, with miles' names."""

    # Text of the prompt; with `rewards.completions=messages`, the chat messages before the completion.
    prompt: str | list[dict[str, Any]] = ""
    response: str = ""  # text of the completion; for an episode, all turns and the replies to them
    label: Any = None  # the reference: the row's `label`, or else `answer`
    metadata: dict[str, Any] = field(default_factory=dict)  # all columns of the dataset's row
    status: MilesStatus = MilesStatus.PENDING  # `COMPLETED`, or `TRUNCATED` at the length limit
    # The `response_length` token ids of the completion, if known; for an episode, those of replies too.
    tokens: list[int] = field(default_factory=list)
    response_length: int = 0
    # Position in the step (outside training: in the call), from 0. The completions of a prompt are adjacent.
    index: int | None = None
    group_index: int | None = None  # number of the prompt within the step, from 0
    reward: Any = None  # None; assigned values are ignored
    # For each token of an episode, 1 if the model wrote it, otherwise 0; None without an episode.
    loss_mask: list[int] | None = None
    # Always None, like `multimodal_inputs`, `train_metadata` and `custom_rm_path`.
    rollout_log_probs: list[float] | None = None
    multimodal_inputs: dict[str, Any] | None = None
    train_metadata: dict[str, Any] | None = None
    custom_rm_path: str | None = None
    remove_sample: bool = False

    def get_reward_value(self, args: Any) -> Any:
        """Return the reward, or its entry `args.reward_key`."""
        return self.reward[args.reward_key] if getattr(args, "reward_key", None) else self.reward


# As in miles, `Sample.Status.TRUNCATED` works.
MilesSample.Status = MilesStatus  # type: ignore[attr-defined]
MilesSample.__name__ = "Sample"


class MilesReward(Convention):
    """A function of a miles sample or group."""

    convention = "miles"
    provided = ("args", "sample", "samples", "kwargs")
    reserved = ("args", "sample", "samples")

    def _make_calls(self) -> Sequence[Call]:
        call = Call(self.target)
        self._args_name = "args" if "args" in call.names else next(iter(call.names), "args")
        others = [name for name in call.names if name != self._args_name]
        self._sample_name = next((name for name in ("samples", "sample") if name in call.names), next(iter(others), ""))
        if not self._sample_name:
            raise RewardSignatureError(
                f"a miles reward must take `args, sample` or `args, samples`, but {self.name!r} takes "
                f"{call.signature}; rename its parameters"
            )
        self.needs_group = _is_group(call.signature.parameters[self._sample_name])
        return [call]

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if neither the dataset nor anything else provides a required parameter."""
        super().check_parameters([*columns, self._args_name, self._sample_name])

    def _check_args(self) -> None:
        """Accept every argument, because `args` offers all of them."""

    def _units(self, samples: Sequence[Sample]) -> Iterable[Sequence[int]]:
        return groups_of(samples) if self.needs_group else ([place] for place in range(len(samples)))

    def _evaluate(self, samples: Sequence[Sample], first: int) -> list[Score]:
        return self._read(self._call(samples, first), len(samples))

    async def _evaluate_async(self, samples: Sequence[Sample], first: int, slots: asyncio.Semaphore) -> list[Score]:
        async with slots:
            return self._read(await running.awaited(self._call(samples, first)), len(samples))

    def _read(self, returned: Any, count: int) -> list[Score]:
        if self.needs_group:
            return to_scores(returned, count, self._read_one, EXPECTED_GROUP)
        return [self._read_one(returned)]

    def _read_one(self, returned: Any) -> Score:
        return score_of_entry(returned, self.settings.reward_key, EXPECTED)

    def _call(self, samples: Sequence[Sample], first: int) -> Any:
        names = dict.fromkeys(name for sample in samples for name in sample.columns)
        lazily: dict[str, Callable[[], Any]] = {}
        for name in names:
            if name not in self.target.call_args:
                lazily[name] = lambda name=name: [own_copy(s.columns.get(name)) for s in samples]  # type: ignore[misc]
        if not self.needs_group:
            lazily = {name: lambda make=make: make()[0] for name, make in lazily.items()}  # type: ignore[misc]
        lazily[self._args_name] = lambda: self._namespace(len(samples))
        if self.needs_group:
            lazily[self._sample_name] = lambda: [self._sample(sample, first + i) for i, sample in enumerate(samples)]
        else:
            lazily[self._sample_name] = lambda: self._sample(samples[0], first)
        call = self.calls[0]
        if call.takes_any:  # miles passes no columns, and a function may pass its kwargs on
            lazily = {name: make for name, make in lazily.items() if name in call.names}
        arguments = {name: value for name, value in self.target.call_args.items() if name in call.names}
        return call(arguments, lazily)

    def _namespace(self, count: int) -> SimpleNamespace:
        """Return miles' arguments about rewards, plus all arguments from configuration."""
        return SimpleNamespace(
            **{
                "reward_key": self.settings.reward_key,
                "eval_reward_key": self.settings.reward_key,
                "group_rm": self.needs_group,
                "n_samples_per_prompt": count if self.needs_group else None,
                "rm_type": None,
                "rm_url": None,
                "custom_rm_path": None,
                **own_copy(self.target.call_args),
            }
        )

    def _sample(self, sample: Sample, place: int) -> MilesSample:
        episode = sample.episode
        tokens = list(episode.tokens if episode is not None and episode.tokens else sample.tokens)
        return MilesSample(
            prompt=prompt_of(sample, self.settings.completions == "messages"),
            response=sample.whole_text,
            label=reference_of(sample.columns, "label"),
            metadata=own_copy(dict(sample.columns)),
            status=MilesStatus.COMPLETED if sample.ended else MilesStatus.TRUNCATED,
            tokens=tokens,
            response_length=len(tokens) or sample.num_tokens,
            loss_mask=None if episode is None else list(episode.loss_mask),
            index=place if sample.index is None else sample.index,
            group_index=sample.group_id,
        )


def _is_group(parameter: inspect.Parameter) -> bool:
    """Return True if a parameter takes the samples of a group."""
    kind = parameter.annotation
    if isinstance(kind, str):
        is_list = kind.partition("[")[0].rpartition(".")[2].strip() in ("list", "List", "Sequence")
    else:
        is_list = (typing.get_origin(kind) or kind) in (list, Sequence)
    return is_list or (parameter.name.endswith("samples") and "_or_" not in parameter.name)
