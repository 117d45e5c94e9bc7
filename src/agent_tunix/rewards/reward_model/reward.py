"""The reward of a sequence-classification model. It sends batches of samples to the model's process."""

import hashlib
import inspect
import logging
import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agent_tunix.errors import RewardError
from agent_tunix.rewards.conventions import CallSettings
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.reward_model.process import ModelProcess, ProcessGoneError
from agent_tunix.rewards.reward_model.settings import ModelSettings, read_settings
from agent_tunix.rewards.sample import Outcome, Sample, Score

logger = logging.getLogger("agent_tunix.rewards")

_HASHED_BYTES = 2**20
_HASHED_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.safetensors", "*.bin")


class RewardModel:
    """The output of a Hugging Face sequence-classification model for prompt and response.

    The checkpoint is one that `AutoModelForSequenceClassification` loads, from a directory or the hub. It is loaded
    once, before training begins, in a separate process with torch and transformers (extra `reward_model`). Texts of
    similar length are scored together. The model's own chat template formats the conversation, if it has one. A space
    breaks up special tokens in texts, so that no response can end its own turn. A text that is too long is never cut;
    it gets an outcome instead of a score. `rewards/NAME/logged/over_long` is the share of such texts.

    Args:
        args: Arguments from the configuration; None for a reward that gets its arguments later, in `bind`.

    Attributes:
        limits_itself: Always True. The model runs in its own process, whatever `rewards.execution` says, because each
            worker would load it again, and `rewards.memory_mb` is not meant for models.
        model: The checked arguments; None without arguments.

    Raises:
        RewardError: An argument is missing or malformed, the model does not exist, or torch is not installed.
    """

    limits_itself = True
    is_builtin = True
    is_async = False
    needs_group = False
    needs_batch = False
    kind = "quality"
    __signature__ = inspect.Signature(
        [
            inspect.Parameter("response", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
            inspect.Parameter("columns", inspect.Parameter.VAR_KEYWORD, annotation=Any),
        ],
        return_annotation=float,
    )
    # Also printed by `agent-tunix rewards show`.
    documented_with = (ModelSettings,)

    def __init__(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.args = dict(args or {})
        self.settings = CallSettings()
        self.recipe: RewardRecipe | None = None
        self.model: ModelSettings | None = None if args is None else read_settings(name, self.args)
        self._process: ModelProcess | None = None
        self._lock = threading.Lock()
        self._num_deaths = 0

    @property
    def given(self) -> type[Self]:
        """The class that defines the reward, for callers that look for its source."""
        return type(self)

    function = given

    @property
    def range(self) -> tuple[float, float] | None:
        """Range of the values; None without an activation."""
        return None if self.model is None or self.model.activation == "none" else (0.0, 1.0)

    def __call__(self, response: str, **columns: Any) -> float | None:
        """Score one response: `reward("It is 4.", prompt="What is 2 + 2?")`.

        Raises:
            RewardError: Scoring failed or exceeded its time limit.
        """
        score = self.explain(response, **columns)
        if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
            raise RewardError(f"reward {self.name!r}: {score.detail}")
        return score.value

    def explain(self, response: str, **columns: Any) -> Score:
        """Score one response and explain the score in `Score.detail`. The arguments are those of a call."""
        known = {name: columns.pop(name) for name in ("prompt", "step") if name in columns}
        return self.score([Sample(response, columns=columns, **known)])[0]

    def open(self) -> None:
        """Load the model if it is not loaded yet; raise RewardError if it cannot be loaded."""
        with self._lock:
            self._opened()

    def close(self) -> None:
        """End the process. Scoring again starts a new one."""
        with self._lock:
            if self._process is not None:
                self._process.close()
            self._process = None

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order."""
        started = time.perf_counter()
        with self._lock:
            scores = self._score(samples)
        seconds = (time.perf_counter() - started) / max(len(samples), 1)
        return [replace(score, seconds=seconds) for score in scores]

    def begin(self, samples: Sequence[Sample]) -> "Future[list[Score]]":
        """Start to score while other rewards are computed here."""
        future: Future[list[Score]] = Future()

        def work() -> None:
            try:
                future.set_result(self.score(samples))
            except BaseException as error:  # raised again by `Future.result`
                future.set_exception(error)

        threading.Thread(target=work, name=f"reward model {self.name}", daemon=True).start()
        return future

    def bind(self, name: str, args: Mapping[str, Any]) -> Self:
        """Return the same reward under another name, with further arguments from the configuration."""
        bound = type(self)(name, {**self.args, **args} or None)
        bound.settings = self.settings
        bound.recipe = replace(self.recipe, name=name, args=bound.args) if self.recipe else None
        return bound

    def configured(self, settings: CallSettings, recipe: RewardRecipe | None) -> Self:
        """Return the same reward with call settings and a recipe."""
        same = type(self)(self.name, None if self.model is None else self.args)
        same.settings, same.recipe = settings, recipe
        return same

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardError without arguments. The reward requires no columns of the dataset."""
        self._settled()

    def describe(self) -> str:
        """Describe the reward in one line: `RewardModel: models/my_rm (device cpu)`."""
        if self.model is None:
            return "RewardModel (requires args)"
        return f"RewardModel: {self.model.path} (device {self.model.device})"

    def checkpoint_hash(self) -> str | None:
        """Return a hash of a local checkpoint for the reward's fingerprint; None for a model on the hub.

        It covers the name, the size and the first and last megabyte of each file.
        """
        if self.model is None or not self.model.is_local:
            return None
        digest = hashlib.sha256()
        files = {path for pattern in _HASHED_FILES for path in Path(self.model.path).glob(pattern)}
        for path in sorted(files):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(_HASHED_BYTES))
                file.seek(max(0, size - _HASHED_BYTES))
                digest.update(file.read(_HASHED_BYTES))
        return digest.hexdigest()[:16]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only; the process stays behind."""
        return type(self), (self.name, None if self.model is None else self.args)

    def _settled(self) -> ModelSettings:
        if self.model is None:
            raise RewardError(
                f"reward {self.name!r} requires args, at least `path`: a directory or a hub id, for example {{path: "
                "models/my_rm}",
                code="missing_argument",
            )
        return self.model

    def _opened(self) -> ModelProcess:
        settings = self._settled()
        if self._process is None:
            self._process = ModelProcess(settings)
            logger.info("reward %r: %s is loaded: %s", self.name, settings.path, self._process.facts)
        return self._process

    def _score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score samples in the process. If it dies, try what it has not scored once more in a new process."""
        found: dict[int, Score] = {}
        for is_last in (False, True):
            left = [position for position in range(len(samples)) if position not in found]
            if not left:
                break
            try:
                results = self._opened().score([_conversation(samples[position]) for position in left])
            except ProcessGoneError as error:
                self._process = None
                results = error.results
                if is_last or error.timed_out:
                    outcome = Outcome.TIMEOUT if error.timed_out else Outcome.ERROR
                    found |= {position: Score.failed(outcome, str(error)) for position in left}
                else:
                    logger.warning("reward %r: %s; restarting it", self.name, error)
            found |= {left[result["index"]]: self._to_score(result) for result in results}
        return [found[position] for position in range(len(samples))]

    def _to_score(self, result: Mapping[str, Any]) -> Score:
        assert self.model is not None
        problem = result.get("problem")
        metrics = {"over_long": float(problem == "over_long")}
        if "num_tokens" in result:
            metrics["num_tokens"] = float(result["num_tokens"])
        if problem == "over_long":
            not_applicable = self.model.over_long == "not_applicable"
            outcome = Outcome.NOT_APPLICABLE if not_applicable else Outcome.ERROR
            return Score(None, outcome=outcome, detail=result["detail"], metrics=metrics)
        if problem is not None:
            return Score(None, outcome=Outcome.ERROR, detail=result["detail"], metrics=metrics)
        value = result["value"]
        if not math.isfinite(value):
            detail = f"the model's output is {value}; try dtype=float32"
            return Score(None, outcome=Outcome.ERROR, detail=detail, metrics=metrics)
        return Score(value, detail=f"the model's output for {result['num_tokens']} tokens", metrics=metrics)


def _conversation(sample: Sample) -> dict[str, Any]:
    """Return a sample as the process expects it."""
    messages = list(sample.messages) or [
        *([{"role": "user", "content": sample.prompt}] if sample.prompt else []),
        {"role": "assistant", "content": sample.response},
    ]
    plain = [{"role": str(message["role"]), "content": str(message.get("content", ""))} for message in messages]
    return {"messages": plain, "prompt": sample.prompt, "response": sample.response}
