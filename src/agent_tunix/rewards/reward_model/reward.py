"""The reward of a sequence-classification model. It sends batches of samples to the model's process."""

import hashlib
import logging
import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.rewards.configured import ConfiguredReward
from agent_tunix.rewards.reward_model.process import ModelProcess, ProcessGoneError
from agent_tunix.rewards.reward_model.settings import ModelSettings, read_settings
from agent_tunix.rewards.sample import Outcome, Sample, Score

logger = logging.getLogger("agent_tunix.rewards")

_HASHED_BYTES = 2**20
_HASHED_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.safetensors", "*.bin")


class RewardModel(ConfiguredReward[ModelSettings]):
    """The output of a Hugging Face sequence-classification model for prompt and response.

    The checkpoint is one that `AutoModelForSequenceClassification` loads, from a directory or the hub. It is loaded
    once, before training begins, in a separate process with torch and transformers (extra `reward_model`). Texts of
    similar length are scored together. The model's own chat template formats the conversation, if it has one. A space
    breaks up special tokens in texts, so that no response can end its own turn. A text that is too long is never cut;
    it gets an outcome instead of a score. `rewards/NAME/logged/over_long` is the share of such texts.

    The model runs in its own process, whatever `rewards.execution` says, because each worker would load it again, and
    `rewards.memory_mb` is not meant for models.

    Raises:
        RewardError: An argument is missing or malformed, the model does not exist, or torch is not installed.
    """

    documented_with = (ModelSettings,)
    needed = "`path`: a directory or a hub id, for example {path: models/my_rm}"

    def __init__(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(name, args)
        self._process: ModelProcess | None = None
        self._lock = threading.Lock()

    def _read(self, args: Mapping[str, Any]) -> ModelSettings:
        return read_settings(self.name, args)

    @property
    def range(self) -> tuple[float, float] | None:
        """Range of the values; None without an activation."""
        return None if self.arguments is None or self.arguments.activation == "none" else (0.0, 1.0)

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

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardError without arguments. The reward requires no columns of the dataset."""
        self._required_arguments()

    def _describe(self, arguments: ModelSettings) -> str:
        return f"{arguments.path} (device {arguments.device})"

    def checkpoint_hash(self) -> str | None:
        """Return a hash of a local checkpoint for the reward's fingerprint; None for a model on the hub.

        It covers the name, the size and the first and last megabyte of each file.
        """
        if self.arguments is None or not self.arguments.is_local:
            return None
        digest = hashlib.sha256()
        files = {path for pattern in _HASHED_FILES for path in Path(self.arguments.path).glob(pattern)}
        for path in sorted(files):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(_HASHED_BYTES))
                file.seek(max(0, size - _HASHED_BYTES))
                digest.update(file.read(_HASHED_BYTES))
        return digest.hexdigest()[:16]

    def _opened(self) -> ModelProcess:
        settings = self._required_arguments()
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
        assert self.arguments is not None
        problem = result.get("problem")
        metrics = {"over_long": float(problem == "over_long")}
        if "num_tokens" in result:
            metrics["num_tokens"] = float(result["num_tokens"])
        if problem == "over_long":
            not_applicable = self.arguments.over_long == "not_applicable"
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
