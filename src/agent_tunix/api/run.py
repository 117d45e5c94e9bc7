"""A run on disk, as Python and notebooks see it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agent_tunix.api.frames import Report, rollouts_frame, summary_html, to_frame
from agent_tunix.errors import ConfigError
from agent_tunix.tracking.callbacks import Callback

if TYPE_CHECKING:
    from agent_tunix.config.schema import Config
    from agent_tunix.tracking.outcome import RunStatus
    from agent_tunix.workbench.replay import ReplayComparison


class Run:
    """A run that has ended, was stopped, or is in progress. Every property reads the current files.

    A frame is a data frame of pandas if that is installed, else an Arrow table.

    Args:
        directory: Directory of the run.

    Raises:
        RunDirectoryError: It is not the directory of a run.
    """

    def __init__(self, directory: str | Path) -> None:
        from agent_tunix.tracking.stored_run import StoredRun

        self._stored = StoredRun(Path(directory).expanduser().absolute())

    @property
    def directory(self) -> Path:
        """The directory of the run."""
        return self._stored.root

    @property
    def config(self) -> "Config":
        """The configuration that the run was started with."""
        return self._stored.config

    @property
    def status(self) -> "RunStatus":
        """The status: running, finished, stopped or failed."""
        from agent_tunix.tracking.outcome import read_outcome

        return read_outcome(self.directory).status

    @property
    def metrics(self) -> Any:
        """The rows of `metrics.jsonl` as a frame, one a step; row 0 is the evaluation before training."""
        return to_frame(self._stored.rows)

    def rollouts(self, step: int | None = None) -> Any:
        """Return the stored completions of a step, or of all steps, as a frame.

        The column `rewards/NAME` has the value of a component, `answer` the reference, `columns` the row as JSON.
        """
        return rollouts_frame(self._stored.rollouts, step)

    @property
    def findings(self) -> Any:
        """The findings of the diagnosis as a frame, the most severe first."""
        from agent_tunix.tracking.findings_file import diagnose_run
        from agent_tunix.workbench.diagnosis import Finding

        return to_frame([finding.to_data() for finding in diagnose_run(self._stored)], Finding.__slots__)

    def report(self, directory: str | Path | None = None) -> Report:
        """Write `report.html` and return it; a notebook shows it below the cell.

        Args:
            directory: Directory to write to; None for the run's own.
        """
        from agent_tunix.tracking.report import write_report

        return Report(write_report(self._stored, Path(directory or self.directory), plots=False))

    def evaluate(self, *overrides: str) -> dict[str, Any]:
        """Evaluate a checkpoint on held-out problems, as `agent-tunix evaluate` does, and return the metrics.

        Args:
            overrides: Overrides of that command, such as `step=best`, `num_passes=4` or `with_rewards=true`.
        """
        from agent_tunix.api.process import prepare
        from agent_tunix.config.compose import compose_evaluate
        from agent_tunix.evaluation.checkpoint import run_evaluation

        prepare()
        asked = replace(compose_evaluate(overrides), checkpoint_dir=str(self.directory))
        return dict(run_evaluation(asked).metrics)

    def generate(
        self,
        prompts: str | Sequence[str | Mapping[str, Any]],
        *,
        step: int | Literal["best"] | None = None,
        score: bool = False,
        trust: bool = False,
        **settings: Any,
    ) -> Any:
        """Sample completions from the trained policy, with prompts made as in training.

        Args:
            prompts: A problem, or several; a problem may be a row of a dataset.
            step: Step of the checkpoint; None for the latest, `best`, or 0 for the model before training.
            score: True to score the completions with the run's reward.
            trust: True to use code, commands and endpoints of a run of others.
            settings: Fields of `GenerationSettings`: `num_generations`, `temperature`, `top_p`, `top_k`, `min_p`,
                `max_new_tokens`, `inference_config`, `seed`.

        Returns:
            The text of the completion for one prompt as text; otherwise a frame with a row for each completion.

        Raises:
            ConfigError: There is no such setting, or several greedy completions are asked for.
        """
        from agent_tunix.data import make_problem
        from agent_tunix.training.generation import find_source, make_prompt
        from agent_tunix.training.generator_setup import GenerationSettings, open_generator

        known = [field.name for field in fields(GenerationSettings)]
        if unknown := [name for name in settings if name not in known]:
            raise ConfigError(
                f"generate has no setting {unknown[0]!r}; its settings are {', '.join(known)}", code="invalid_request"
            )
        problems = (
            list(prompts) if isinstance(prompts, Iterable) and not isinstance(prompts, str | Mapping) else [prompts]
        )
        if wrong := [type(one).__name__ for one in problems if not isinstance(one, str | Mapping)]:
            raise ConfigError(
                f"generate requires problems as texts or rows, not {wrong[0]}; pass generate('…') or a list of them",
                code="invalid_request",
            )
        source = find_source(self.directory, step)
        data = source.run.config.data
        examples = [
            make_prompt(problem, number, data) if isinstance(problem, str) else make_problem(problem, number, data)
            for number, problem in enumerate(problems, 1)
        ]
        with open_generator(source, GenerationSettings(**settings), examples if score else None, trust=trust) as policy:
            groups = list(policy.complete(examples))
        rows = [one.to_row(number) for number, group in enumerate(groups, 1) for one in group]
        is_one = isinstance(prompts, str) and len(rows) == 1 and not score
        return str(rows[0]["completion"]) if is_one else to_frame(rows)

    def export(
        self,
        directory: str | Path | None = None,
        *,
        push: str | None = None,
        public: bool = False,
        step: int | Literal["best"] | None = None,
        adapter: bool = False,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        overwrite: bool = False,
    ) -> Path | str:
        """Export the trained model for transformers, vLLM or PEFT; see `agent-tunix export`.

        Args:
            directory: Directory to write; None to upload only.
            push: Repository `owner/name` on the Hugging Face hub to upload to; None to upload nothing.
            public: True to make a new repository public.
            step: Step of the checkpoint; None for the latest, `best`, or 0 for the model before training.
            adapter: True to export the LoRA adapter alone.
            dtype: Type of merged weights; auto: the compute type of the run.
            overwrite: True to replace an earlier export.

        Returns:
            The directory; the address of the repository if there is no directory.
        """
        from agent_tunix.training.exporting import export_and_push

        place = None if directory is None else Path(directory).expanduser().absolute()
        exported, page = export_and_push(
            self.directory,
            place,
            repository=push,
            public=public,
            step=step,
            adapter=adapter,
            dtype=dtype,
            overwrite=overwrite,
        )
        return exported.directory if page is None or place is not None else page

    def replay(
        self, *overrides: str, reward: Any = None, steps: str | None = None, trust: bool = False
    ) -> "ReplayComparison":
        """Score the stored completions again, and compare totals and advantages; see `agent-tunix rewards replay`.

        Args:
            overrides: Changes of the run's own reward, such as `reward.components.brevity.weight=0.3`.
            reward: Another reward, in any form that `train` takes; None to keep the run's own.
            steps: Range `FIRST:LAST`; None for all steps.
            trust: True to use the code of a run of others.
        """
        from agent_tunix.api.objects import name_reward
        from agent_tunix.runs.stored_rewards import RewardChange, replay_run

        change = RewardChange(None if reward is None else name_reward(reward), overrides)
        return replay_run(self._stored, change, steps=steps, trust=trust)[0]

    def resume(
        self,
        *overrides: str,
        reward: Any = None,
        environment: Any = None,
        tools: Sequence[Any] | None = None,
        agent: Any = None,
        callbacks: Sequence[Callback] = (),
    ) -> "Run":
        """Continue the run from its last checkpoint, and return it.

        Args:
            overrides: Changes KEY=VALUE of the run's configuration, such as `training.num_epochs=2`.
            reward: The reward, if the run's own was an object that this process has not registered.
            environment: The environment, in the same case.
            tools: The tools, in the same case.
            agent: The agent, in the same case.
            callbacks: Code to call around the steps.

        Raises:
            AgentTunixError: The run cannot resume, or it stopped; the message says what to do.
        """
        from agent_tunix.api.objects import Objects
        from agent_tunix.api.process import resume_run

        resume_run(self._stored, overrides, Objects(reward, environment, tools, agent), callbacks)
        return self

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r}, {self.status})"

    def _repr_html_(self) -> str:
        return summary_html(self._stored)


def open_run(directory: str | Path) -> Run:
    """Return the run of a directory; raise RunDirectoryError if it is none."""
    return Run(directory)
