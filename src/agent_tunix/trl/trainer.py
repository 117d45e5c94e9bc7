"""`GRPOTrainer` with TRL's arguments and methods: a face of `agent_tunix.train`."""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from agent_tunix.api import Run, train
from agent_tunix.api.rows import write_rows
from agent_tunix.errors import ConfigError
from agent_tunix.overrides import assign
from agent_tunix.trl.config import ONE_PROCESS, GRPOConfig, check_fields, refuse
from agent_tunix.trl.inputs import (
    NO_PROMPT,
    as_conversations,
    is_conversational,
    prompt_values,
    read_rows,
    reward_components,
)
from agent_tunix.trl.models import JaxModel, PolicyModel
from agent_tunix.trl.progress import CallbackBridge, LoggedState, evaluation_figures
from agent_tunix.trl.settings import convert, describe_unneeded, evaluation_values, plan_batches, reporting_callbacks

_LOGGER = logging.getLogger("agent_tunix.trl")


class TrainOutput(NamedTuple):
    """The result of `GRPOTrainer.train`."""

    global_step: int
    training_loss: float | None
    metrics: dict[str, Any]


class GRPOTrainer:
    """Train a policy with GRPO, with the arguments of TRL's `GRPOTrainer`.

    Args:
        model: Name on the Hugging Face hub, a directory, a location of this package, or a model of transformers or PEFT
            in memory, which has the trained weights after `train`.
        reward_funcs: Functions, names of reward models, or one of these.
        args: Settings; None: the defaults.
        train_dataset: A `datasets.Dataset` or rows, with a column `prompt`.
        eval_dataset: Held-out rows.
        processing_class: The model's tokenizer, whose chat template is used.
        reward_processing_classes: None.
        callbacks: Objects or classes with methods of transformers' `TrainerCallback`.
        optimizers: None twice.
        quantization_config: A `BitsAndBytesConfig`, of which the number of bits is used.
        peft_config: A `LoraConfig` of PEFT, or a mapping of its attributes.
        tools: Functions that the model may call.
        rollout_func: None.
        environment_factory: A class of environments, or name → class, chosen by the column `environment`.

    Attributes:
        model: The model in memory, or an object that loads the trained weights when it is used.
        state: The state of the training; `state.log_history` has TRL's figures.
        run: The run after `train`, with the methods of `agent_tunix.Run`.

    Raises:
        ConfigError: An argument has no counterpart here; the message names it, its effect and what to do.
        DataError: The rows have no column `prompt`.
    """

    accelerator = ONE_PROCESS
    is_fsdp_enabled = is_deepspeed_enabled = False

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        reward_processing_classes: Any = None,
        callbacks: Any = None,
        optimizers: tuple[Any, Any] = (None, None),
        quantization_config: Any = None,
        peft_config: Any = None,
        tools: Any = None,
        rollout_func: Any = None,
        environment_factory: Any = None,
    ) -> None:
        if args is None:
            config = getattr(model, "config", None)
            name = model if isinstance(model, str | os.PathLike) else getattr(config, "_name_or_path", "")
            args = GRPOConfig(f"{str(name).rstrip('/').split('/')[-1] or 'model'}-GRPO")
        if not isinstance(args, GRPOConfig):
            refuse("args", type(args).__name__, "has the settings", "pass an agent_tunix.trl.GRPOConfig")
        check_fields(args)
        if any(one is not None for one in optimizers):
            refuse("optimizers", optimizers, "replaces the optimizer", "set optim and lr_scheduler_type of GRPOConfig")
        if rollout_func is not None:
            refuse("rollout_func", rollout_func, "generates completions", "pass environment_factory and tools")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            refuse(
                "WORLD_SIZE", os.environ["WORLD_SIZE"], "trains in processes", "start one: `python SCRIPT`, no launcher"
            )
        self.args, self.processing_class = args, processing_class
        self.state, self.run = LoggedState(), cast(Run | None, None)
        self._policy = PolicyModel(model, args, quantization_config, peft_config)
        self.model = self._policy.in_memory
        if self.model is None:
            self.model = JaxModel(self._policy.name, self._export_merged, self.save_model, self.push_to_hub)
        self._callbacks = [one() if isinstance(one, type) else one for one in callbacks or []]
        self._callbacks = [*reporting_callbacks(args), *self._callbacks]
        self._tools, self._environments = list(tools or []), environment_factory
        factories = environment_factory if isinstance(environment_factory, Mapping) else {None: environment_factory}
        factories = {} if environment_factory is None else factories
        self._rewards = reward_components(reward_funcs, args.reward_weights, reward_processing_classes, factories)
        if train_dataset is None:
            rows = self._placeholder_rows()
        else:
            rows = self._read(train_dataset, "train_dataset", limit=self._rows_of_run())
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self._evaluation_rows = None if eval_dataset is None else self._read(eval_dataset, "eval_dataset")
        self._prompt_values = prompt_values(
            is_conversational(rows), processing_class, self._policy.name if self._policy.in_memory is None else None
        )
        self._rows = as_conversations(rows)
        if unneeded := describe_unneeded(args):
            _LOGGER.warning("without an effect here: %s", "; ".join(unneeded))

    def train(self, resume_from_checkpoint: str | bool | None = None) -> TrainOutput:
        """Train, and return the steps, the mean loss and the totals.

        Args:
            resume_from_checkpoint: True to resume the latest run of `output_dir`; or the directory of a run.

        Raises:
            AgentTunixError: The run cannot start, or it stopped; the message says what to do.
        """
        batches = plan_batches(self.args, len(self._rows), num_devices := _count_devices(self.args))
        directory, resumes = _run_directory(self._output, resume_from_checkpoint), bool(resume_from_checkpoint)
        values = {
            **convert(self.args, batches),
            **evaluation_values(self.args, batches, len(self._evaluation_rows or []), num_devices),
            **self._policy.values,
            "model.path": self._policy.place(Path(f"{directory}-model"), self.processing_class, resumes=resumes),
            **self._prompt_values,
            **self._episode_values(),
            "training.resume": resumes,
        }
        template = dict(self.args.chat_template_kwargs or {})
        overrides = [assign(key, value) for key, value in values.items()]
        overrides += [] if "enable_thinking" in template else ["~prompt.template_args.enable_thinking"]
        overrides += [assign(f"prompt.template_args.{name}", value) for name, value in template.items()]
        shared = {"model": self.model, "processing_class": self.processing_class}
        self.run = train(
            *overrides,
            reward=self._rewards,
            data=self._rows,
            evaluation_data=self._evaluation_rows and as_conversations(self._evaluation_rows),
            directory=directory,
            callbacks=[CallbackBridge(self.args, batches, self._callbacks, shared, self.state)],
            **self._acting(),
        )
        self._policy.update(self._export_merged)
        if isinstance(self.model, JaxModel):
            self.model.forget()
        metrics = {name: value for name, value in self.state.log_history[-1].items() if name != "step"}
        return TrainOutput(self.state.global_step, metrics.get("train_loss"), metrics)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, Any]:
        """Evaluate the last checkpoint on held-out rows with the run's reward, and return the figures.

        Args:
            eval_dataset: The rows; None for those of the constructor.
            ignore_keys: Without an effect.
            metric_key_prefix: What the names of the figures begin with.
        """
        rows = self._evaluation_rows if eval_dataset is None else self._read(eval_dataset, "eval_dataset")
        if rows is None:
            raise ConfigError("evaluate() requires rows: pass eval_dataset to it or to the trainer")
        run = self._trained()
        path = write_rows(as_conversations(rows), run.directory / "data", "evaluate")
        passes = self.args.num_generations_eval or self.args.num_generations
        figures = run.evaluate(
            *("inference_config=training", "correct=reward", "with_rewards=true", f"num_samples={len(rows)}"),
            *(f"num_passes={passes}", assign("data.path", str(path))),
        )
        figures = evaluation_figures(figures)
        self.state.log_history.append({**figures, "epoch": self.state.epoch, "step": self.state.global_step})
        return {name.replace("eval_", f"{metric_key_prefix}_", 1): value for name, value in figures.items()}

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model, or the adapter alone with `peft_config`, to a directory that transformers loads.

        With `load_best_model_at_end` it is that of the best step. With `push_to_hub` it is uploaded too.
        """
        self._export(directory=output_dir or self._output)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub()

    def push_to_hub(self, commit_message: str | None = None, **card: Any) -> str:
        """Upload the model that `save_model` writes, and return the address of its page.

        The commit message and the entries of the model card are those of this package.
        """
        for name, value in {"commit_message": commit_message, **card}.items():
            if value is not None:
                _LOGGER.info("push_to_hub: %s has no effect here; the model card says how the run was trained", name)
        if self.args.hub_token is not None:
            os.environ.setdefault("HF_TOKEN", self.args.hub_token)
        return str(self._export(push=self.hub_model_id, public=self.args.hub_private_repo is False))

    @property
    def hub_model_id(self) -> str:
        """The repository of `push_to_hub`; without an owner it is the one of the token."""
        name = self.args.hub_model_id or self._output.name
        if "/" in name:
            return str(name)
        from huggingface_hub import HfApi

        return f"{HfApi(token=self.args.hub_token).whoami()['name']}/{name}"

    def add_callback(self, callback: Any) -> None:
        """Add a callback: an object, or a class to make one of."""
        self._callbacks.append(callback() if isinstance(callback, type) else callback)

    def remove_callback(self, callback: Any) -> None:
        """Remove a callback, given as the object, or the first one of a class."""
        found = [one for one in self._callbacks if one is callback or type(one) is callback]
        self._callbacks = [one for one in self._callbacks if one not in found[:1]]

    def is_world_process_zero(self) -> bool:
        """Return True: one process uses all devices."""
        return True

    def log_metrics(self, split: str, metrics: Mapping[str, Any]) -> None:
        """Print figures, one a line."""
        print("\n".join([f"***** {split} metrics *****", *(f"  {name} = {value}" for name, value in metrics.items())]))

    def save_metrics(self, split: str, metrics: Mapping[str, Any], combined: bool = True) -> None:
        """Write figures to `SPLIT_results.json` of the run's directory."""
        self._write(f"{split}_results.json", dict(metrics))

    def save_state(self) -> None:
        """Write `state` to `trainer_state.json` of the run's directory."""
        self._write("trainer_state.json", vars(self.state))

    def end(self) -> None:
        """Do nothing: trackers end with the run."""

    def create_model_card(self, *args: Any, **card: Any) -> None:
        """Do nothing: `save_model` writes a model card that tells how the run was trained."""

    @property
    def _output(self) -> Path:
        return Path(self.args.output_dir or "trainer_output").expanduser().absolute()

    def _trained(self) -> Run:
        if self.run is None:
            raise ConfigError("there is no run yet; call train() first, or open one with agent_tunix.open_run(DIR)")
        return self.run

    def _export(self, **options: Any) -> Path | str:
        run, step = self._trained(), cast(Literal["best"] | None, None)
        if self.args.load_best_model_at_end and (run.directory / "checkpoints" / "best.json").is_file():
            step = "best"
        elif self.args.load_best_model_at_end:
            _LOGGER.warning("no step was better than the model before training; this is the model of the last step")
        return run.export(step=step, overwrite=True, **{"adapter": self._policy.has_adapter, **options})

    def _export_merged(self, directory: Path) -> Path | str:
        return self._export(directory=directory, adapter=False)

    def _write(self, name: str, content: Any) -> None:
        (self._trained().directory / name).write_text(json.dumps(content, indent=2, default=str), encoding="utf-8")

    def _read(self, dataset: Any, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        only_prompt, has_environment = bool(self.args.remove_unused_columns), self._environments is not None
        return read_rows(dataset, name, only_prompt=only_prompt, has_environment=has_environment, limit=limit)

    def _placeholder_rows(self) -> list[dict[str, Any]]:
        """Return rows for one step without a dataset: the environment makes the prompts."""
        if self._environments is None or isinstance(self._environments, Mapping) or self.args.max_steps <= 0:
            refuse(
                *("train_dataset", None, "leaves the prompts to one environment for max_steps"),
                "give rows, or one environment_factory whose reset returns the prompt and max_steps",
            )
        return [NO_PROMPT] * plan_batches(self.args, 1, _count_devices(self.args)).size

    def _rows_of_run(self) -> int | None:
        """Return the prompts that `max_steps` updates take; None if the epochs decide."""
        if self.args.max_steps <= 0:
            return None
        batches = plan_batches(self.args, 1, _count_devices(self.args))
        return batches.num_steps * batches.size

    def _acting(self) -> dict[str, Any]:
        given = {"tools": self._tools or None, "environment": self._environments}
        return {name: value for name, value in given.items() if value is not None}

    def _episode_values(self) -> dict[str, Any]:
        if not self._acting():
            return {}
        length, calls = self.args.max_completion_length, self.args.max_tool_calling_iterations
        return {
            "environment.max_episode_tokens": length,
            "environment.max_result_tokens": length,
            "environment.max_turns": length if calls is None else calls + 1,
        }


def _count_devices(args: GRPOConfig) -> int:
    """Return the accelerators of this machine; 1 on a CPU. Loads JAX."""
    from agent_tunix.config.schema import DistributedConfig
    from agent_tunix.startup import devices

    config = DistributedConfig(platform="cpu" if args.use_cpu or args.no_cuda else "auto")
    devices.prepare(config)
    devices.require(config)
    import jax

    return 1 if jax.default_backend() == "cpu" else jax.device_count()


def _run_directory(output: Path, resume: str | bool | None) -> Path:
    """Return the directory of a new run, or of the run to resume."""
    if isinstance(resume, str | os.PathLike):
        path = Path(resume).expanduser().absolute()
        for one in (path, *path.parents[:2]):
            if (one / "config.yaml").is_file():
                return one
        raise ConfigError(
            f"resume_from_checkpoint must be the directory of a run, but {path} is none; see {output}-run"
        )
    names = [f"{output}-run", *(f"{output}-run-{number}" for number in range(2, 10_000))]
    free = next(number for number, name in enumerate(names) if not os.path.exists(name))
    if resume and not free:
        raise ConfigError(
            f"resume_from_checkpoint=True requires a run of output_dir={output}, but there is none; train first"
        )
    return Path(names[free - 1 if resume else free])
