"""Evaluation by lm-evaluation-harness and inspect_ai, which call the policy over HTTP as they call any server.

The policy is served at the loopback while their processes run, all tasks together, and the thread that evaluates
answers their calls. How tokens are sampled is the task's choice. A request without a seed gets one, which depends on
the run's seed, the prompt, and the number of earlier requests with the same prompt. Requests share programs as they
arrive, so a token whose choice hangs on the last bit of a number may differ between equal runs.
"""

import contextlib
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from agent_tunix.config.harnesses import HarnessTask, harness_tasks
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.evaluation.harness_programs import FailedTask, HarnessServer, command_of, read_figures, running
from agent_tunix.policy.files.config_file import read_context_length
from agent_tunix.sampling.continuous import ContinuousSampler
from agent_tunix.sampling.requests import TokenReply, TokenRequest, TokenSource
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.serving.agent_sampler import CallSeeds
from agent_tunix.serving.app import create_app
from agent_tunix.serving.policy_server import USUAL_CONTEXT, fitting_places, make_chat_encoder
from agent_tunix.serving.policy_service import PolicyService
from agent_tunix.serving.running import serving
from agent_tunix.serving.settings import PolicySettings

_LOGGER = logging.getLogger("agent_tunix.evaluation")
_MOST_PLACES = 16


class HarnessEvaluator:
    """Evaluates a policy by the tasks of `evaluation.harness`.

    Args:
        config: Configuration of the run.
        sampler: Sampler of the policy on the devices of this process.
        model: Directory of the model, which has its tokenizer.
        is_stopping: Function that returns True once the run is to stop; tasks then end without figures.
        trains: True if the run trains, so that less memory is left.

    Raises:
        ConfigError: There is no memory for a request of the longest kind.
    """

    def __init__(
        self,
        config: Config,
        sampler: Sampler,
        model: Path,
        is_stopping: Callable[[], bool] = lambda: False,
        *,
        trains: bool = True,
    ) -> None:
        self._config = config
        self._sampler = sampler
        self._model = model
        self._is_stopping = is_stopping
        self._tasks = harness_tasks(config.evaluation)
        self._names: set[str] = set()
        self._context = min(read_context_length(model) or USUAL_CONTEXT, USUAL_CONTEXT)
        try:
            num_places = fitting_places(config, model, sampler.mesh, self._context, trains=trains)
        except ConfigError as error:
            advice = "; or set evaluation.harness=null, and evaluate checkpoints by `agent-tunix evaluate`" * trains
            raise ConfigError(f"evaluation.harness: {error}{advice}", code=error.code) from None
        self._num_places = min(num_places, _MOST_PLACES)

    def remember(self, names: Iterable[str | None]) -> None:
        """Remember the metrics that are null where a task fails; names of other metrics are ignored."""
        prefixes = tuple(f"eval/{task.harness}/" for task in self._tasks)
        self._names |= {name for name in names if name is not None and name.startswith(prefixes)}

    def metrics(self, place: Path, *, required: bool) -> dict[str, float | None]:
        """Return `eval/<harness>/<task>/<metric>` of all tasks.

        Args:
            place: Directory of what the programs write, with a directory for each task, which replaces an earlier one.
            required: True to raise an error if a task fails. Otherwise its known metrics are null, and a warning has
                the reason.

        Raises:
            ConfigError: A task failed.
        """
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it tells of each start
        metrics: dict[str, float | None] = {}
        for task, (directory, status) in self._run(place).items():
            try:
                figures = read_figures(task, status, directory)
                found = {f"eval/{task.harness}/{name}": value for name, value in figures.items()}
                if taken := sorted(metrics.keys() & found.keys()):
                    raise FailedTask(f"an earlier task of the list has the same metric, {taken[0]}")
            except FailedTask as failure:
                text = f"evaluation.harness={task.harness}:{task.task} must end with figures, but {failure}"
                if self._is_stopping():
                    _LOGGER.warning("%s:%s was ended, because the run is to stop", task.harness, task.task)
                elif required:
                    raise ConfigError(text, code="harness_failed") from None
                else:
                    _LOGGER.warning("%s\nIts metrics are null, and the run goes on.", text)
            else:
                metrics |= found
        # A run that stops before its first figures may know the name of one all the same.
        self.remember([*metrics, self._config.stopping.metric if self._is_stopping() else None])
        return dict.fromkeys(sorted(self._names)) | metrics

    def _run(self, place: Path) -> dict[HarnessTask, tuple[Path, int]]:
        """Run all tasks, and return their directories and the status with which each ended."""
        tokenizer, directory_of_tokenizer = self._sampler.tokenizer, self._tokenizer_directory(place)
        source = ContinuousSampler(self._sampler, num_places=self._num_places, max_context=self._context)
        chat = make_chat_encoder(self._config, tokenizer)
        running_tasks = {}
        with contextlib.ExitStack() as stack:
            stack.callback(source.close)
            for number, task in enumerate(self._tasks, 1):
                name = f"{number}_{task.harness}_{Path(task.task).name}"
                directory = _emptied(place / re.sub(r"[^\w.-]+", "_", name))
                settings = PolicySettings(port=0, max_context=self._context, api_keys=(secrets.token_urlsafe(24),))
                # A server of its own, so that the seeds of a task do not depend on the others.
                service = PolicyService(_SeededSource(source, self._config.seed), tokenizer, settings, chat)
                served = HarnessServer(
                    stack.enter_context(serving(create_app(service), settings)),
                    settings.api_keys[0],
                    settings.model,
                    self._context,
                    self._num_places,
                    directory_of_tokenizer,
                    tokenizer.chat_template is not None,
                )
                command = command_of(task, served, directory, self._config.evaluation.harness_limit)
                running_tasks[task] = directory, stack.enter_context(running(command, served, directory))
            processes = [process for _, process in running_tasks.values()]
            source.serve_until(lambda: self._is_stopping() or all(one.poll() is not None for one in processes))
        return {task: (directory, process.returncode) for task, (directory, process) in running_tasks.items()}

    def _tokenizer_directory(self, place: Path) -> Path:
        """Return the model's directory, or one with links to its files if the run has a chat template of its own."""
        template = self._sampler.tokenizer.chat_template
        if self._config.prompt.chat_template is None or template is None:
            return self._model
        directory = _emptied(place / "tokenizer")
        for file in (*self._model.glob("*.json"), *self._model.glob("*.model")):
            (directory / file.name).symlink_to(file.absolute())
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
        return directory


def _emptied(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


class _SeededSource:
    """A source of tokens whose requests all have seeds."""

    def __init__(self, source: TokenSource, seed: int) -> None:
        self._source = source
        self._seeds = CallSeeds(f"harness {seed}".encode(), 0)

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt; see `TokenSource`."""
        if request.seed is None:
            request = replace(request, seed=self._seeds.of(request.prompt))
        return self._source.submit(request, on_part)
