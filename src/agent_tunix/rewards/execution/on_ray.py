"""Workers on a Ray cluster: each actor keeps one worker of its machine, under the same limits.

An actor is a `LocalExecutor` with one worker, so limits and outcomes of calls are the same as on one machine. Files
that rewards are loaded from must have the same path on every machine. A lost actor, for instance with its machine, is
started again, and its chunk is scored once more.
"""

import contextlib
import itertools
from dataclasses import replace
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.execution.calls import Job
from agent_tunix.rewards.execution.local import LocalExecutor, QueueExecutor
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.execution.tasks import Task
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Sample, Score

_MOST_LOSSES = 2


class _Host:
    """The code that runs in an actor."""

    def __init__(self, settings: ExecutionSettings) -> None:
        self._settings = settings
        self._executors: dict[int, LocalExecutor] = {}

    def score(self, recipe: RewardRecipe, samples: list[list[Sample]], share: int | None) -> list[list[Score]]:
        """Return the scores of each call."""
        positions = itertools.count()
        calls = [tuple(itertools.islice(positions, len(call))) for call in samples]
        job = Job(recipe, list(itertools.chain(*samples)), calls, share is not None)
        scores = iter(self._executor(share or 1).submit(job).result())
        return [list(itertools.islice(scores, len(call))) for call in samples]

    def prepare(self, recipe: RewardRecipe) -> None:
        self._executor(1).prepare(recipe)

    def close(self) -> None:
        for executor in self._executors.values():
            executor.close()

    def _executor(self, concurrency: int) -> LocalExecutor:
        """Return the executor for this number of concurrent calls. An actor rarely has more than one executor."""
        if concurrency not in self._executors:
            settings = replace(self._settings, execution="process", num_workers=1, max_concurrency=concurrency)
            self._executors[concurrency] = LocalExecutor(settings)
        return self._executors[concurrency]


class RayExecutor(QueueExecutor):
    """Executor of jobs in worker processes of a Ray cluster: the cluster of `RAY_ADDRESS`, or one that is started here.

    It has `settings.num_workers` actors, by default one per core of the cluster.

    Raises:
        RewardError: Ray is not installed.
    """

    def __init__(self, settings: ExecutionSettings) -> None:
        try:
            import ray
        except ImportError as error:
            raise RewardError(
                "rewards.execution=ray requires Ray: pip install 'agent_tunix[ray]', or set rewards.execution=process",
                code="missing_package",
            ) from error
        self._ray: Any = ray
        self._settings = settings
        self._has_started_ray = not ray.is_initialized()
        if self._has_started_ray:
            ray.init(ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, configure_logging=False)
        num_actors = settings.num_workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._actor_class: Any = ray.remote(num_cpus=1, num_gpus=0, max_restarts=0)(_Host)
        self._actors: list[Any] = [self._start_actor() for _ in range(num_actors)]
        super().__init__(num_actors, settings.max_concurrency)

    def prepare(self, recipe: RewardRecipe) -> None:
        """Load a reward in every actor."""
        for actor in self._actors:
            actor.prepare.remote(recipe)

    def close(self) -> None:
        """End the actors after their present tasks, and Ray if it was started here."""
        super().close()
        actors, self._actors = self._actors, []
        for actor in actors:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(actor.close.remote(), timeout=10)
            self._ray.kill(actor)
        if self._has_started_ray:
            self._has_started_ray = False
            self._ray.shutdown()

    def _start_actor(self) -> Any:
        return self._actor_class.remote(self._settings)

    def _serve(self, number: int) -> None:
        while (task := self._backlog.take()) is not None:
            try:
                for place, scores in enumerate(self._score(number, task)):
                    self._backlog.record(task, place, scores)
            except Exception as error:  # Ray may raise any error, and no caller may wait forever
                self._backlog.fail(task, f"Ray could not score it: {error}")
            self._backlog.release(task)

    def _score(self, number: int, task: Task) -> list[list[Score]]:
        for remaining in reversed(range(_MOST_LOSSES)):
            try:
                reply = self._actors[number].score.remote(task.work.job.recipe, task.samples, task.share)
                scores: list[list[Score]] = self._ray.get(reply)
            except self._ray.exceptions.RayActorError:
                self._actors[number] = self._start_actor()
                if not remaining:
                    raise
            else:
                return scores
        raise AssertionError("unreachable")
