"""The models that judges sample in this process: their files, memory and weights. Importing it loads no JAX."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.plain_yaml import load_plain_yaml
from agent_tunix.policy.files.directory import find_cached_directory, find_model_directory, is_on_hub
from agent_tunix.policy.files.model_digest import digest_model
from agent_tunix.rewards import Mixture
from agent_tunix.rewards.judges import JUDGES, find_model_file, is_local_model, load_judge
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.runs.reward_setup import components_without_code, correct_without_code

if TYPE_CHECKING:
    import jax
    from flax import nnx

    from agent_tunix.rewards.judges.faults import JudgeFault
    from agent_tunix.rewards.judges.local import ModelKey, ModelReply, ModelRequest
    from agent_tunix.sampling.judge_sampler import JudgeSampler

_LOGGER = logging.getLogger("agent_tunix.run")

_SETTING = "the argument `model` of a judge"


def local_judges(*mixtures: Mixture | None) -> list[Judge[Any]]:
    """Return the judges of mixtures whose model this process samples."""
    return [judge for mixture in mixtures if mixture is not None for judge in _local_judges(mixture)]


def _local_judges(mixture: Mixture) -> Iterator[Judge[Any]]:
    for component in mixture.components:
        if isinstance(component.reward, Mixture):
            yield from _local_judges(component.reward)
        elif isinstance(component.reward, Judge) and component.reward.local_model is not None:
            yield component.reward


def judges_as_written(config: Config, working_directory: Path) -> list[Judge[Any]]:
    """Return the judges whose model the run samples, of its reward and of `evaluation.correct`.

    This imports no code of the user.

    Raises:
        RewardError: The arguments of a judge are invalid.
    """
    judges = []
    # The arguments of `rewards.args` belong to the run's own reward.
    written = [(part, config.rewards.args) for part in components_without_code(config, working_directory).items()]
    written += [(part, {}) for part in correct_without_code(config, working_directory).items()]
    for (name, component), args in written:
        if (function := str(component.get("function"))) in JUDGES:
            given = {**(component.get("args") or {}), **args.get(name, {}), **args.get(function, {})}
            if is_local_model(str(given.get("model")), given.get("base_url")):
                judges.append(load_judge(function).bind(name, given))
    return judges


def refuse_local_judges(mixture: Mixture, num_processes: int) -> None:
    """Refuse judges whose model the run samples if it has several processes: their programs need all of them.

    Raises:
        ConfigError: There is such a judge; the message names it.
    """
    if num_processes > 1 and (judges := local_judges(mixture)):
        raise ConfigError(
            f"judge {judges[0].name!r} samples its model {judges[0].args['model']} in the run, which requires one "
            f"process, but there are {num_processes}; serve the model by an engine and set the judge's `base_url`",
            code="invalid_judge",
        )


def model_config(key: ModelKey) -> ModelConfig:
    """Return a judge's model as a frozen model with its storage.

    Raises:
        ModelError: The file of `conf/model` cannot be read.
    """
    path: str | None = key.model
    if (file := find_model_file(key.model)) is not None:
        try:
            path = (load_plain_yaml(file.read_bytes()) or {}).get("path")
        except (OSError, ValueError, AttributeError) as error:
            raise ModelError(f"{file} must be a file of conf/model, but cannot be read: {error}") from error
    # The rank stands for a frozen base, whose weights are stored in the compute type or quantised. No adapter is added.
    return ModelConfig(path=path, lora_rank=1, quantization=key.quantization, dtype=key.dtype)


def judge_configs(judges: Sequence[Judge[Any]]) -> list[Config]:
    """Return for each judge the configuration of a policy that samples as it does, to plan its memory."""
    configs = []
    if judges:
        from agent_tunix.rewards.judges.local import key_of  # imports pydantic, which other runs do not need

    for settings in (judge.arguments for judge in judges if judge.arguments is not None):
        config = Config(model=model_config(key_of(settings)))
        config.training.batch_size, config.grpo.num_generations = settings.num_rows, 1
        config.generation.max_prompt_length = settings.max_prompt_tokens
        config.generation.max_generation_steps = settings.max_tokens
        config.evaluation.num_samples = 0
        configs.append(config)
    return configs


class JudgeModel:
    """A judge's model. Its weights are loaded by `load`, or with the first question.

    Args:
        key: The arguments that decide its weights.
    """

    def __init__(self, key: ModelKey) -> None:
        self._key = key
        self._sampler: JudgeSampler | None = None

    @functools.cached_property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return model_config(self._key)

    @functools.cached_property
    def directory(self) -> Path:
        """Directory of the model, which is downloaded if necessary."""
        return find_model_directory(self.config, _SETTING)

    @functools.cached_property
    def _digest(self) -> str:
        return digest_model(self.directory)

    def digest(self, *, fetch: bool = True) -> str | None:
        """Return a digest of the model's files; None if they are not on this disk and are not to be fetched."""
        return self._digest if fetch or find_cached_directory(self.config) is not None else None

    def check(self) -> None:
        """Raise ModelError if the model's files are on this disk and cannot be used."""
        if not is_on_hub(self.config, _SETTING):
            _ = self.directory

    def load(self, mesh: jax.sharding.Mesh | None = None, base: nnx.Module | None = None) -> None:
        """Load the weights, if they are not on the mesh already.

        Args:
            mesh: Mesh of the run; None for one over the devices of this machine.
            base: A model with these weights, to share them; None to read the files.

        Raises:
            ModelError: The model cannot be found, or is not supported.
            ConfigError: The mesh does not divide the model.
        """
        if base is None and self._sampler is not None and mesh in (None, self._sampler.sampler.mesh):
            return
        from agent_tunix.planning.mesh_choice import shape_problems
        from agent_tunix.planning.open_mesh import open_mesh
        from agent_tunix.policy.chat.tokenizer import Tokenizer
        from agent_tunix.policy.families import read_architecture
        from agent_tunix.policy.files.config_file import read_context_length
        from agent_tunix.policy.mesh import shape_of
        from agent_tunix.policy.model import load_frozen
        from agent_tunix.sampling.judge_sampler import JudgeSampler
        from agent_tunix.sampling.sampler import Sampler

        architecture = read_architecture(self.directory)
        tokenizer = Tokenizer(self.directory)
        if tokenizer.chat_template is None:
            raise ModelError(
                f"{_SETTING}, {self.directory}, must have a chat template, but is a base model without one; use its "
                "instruction-tuned version",
                code="invalid_chat_template",
            )
        mesh = mesh or open_mesh(Config(model=self.config), architecture, num_rows=None)
        if problems := shape_problems(architecture, shape_of(mesh), self._key.quantization):
            raise ConfigError(f"{_SETTING}, {self._key.model}, is divided like the policy, but {'; '.join(problems)}")
        model = base or load_frozen(self.directory, self.config, mesh)
        _LOGGER.info("judge model: %s%s", self.directory, ", shared with the policy" if base else "")
        sampler = Sampler(model, tokenizer, mesh)
        self._sampler = JudgeSampler(sampler, self.directory, read_context_length(self.directory))

    def reply(self, requests: Sequence[ModelRequest]) -> Iterator[list[tuple[int, ModelReply | JudgeFault]]]:
        """Yield the replies of one program after another, each with the position of its request."""
        self.load()
        assert self._sampler is not None
        yield from self._sampler.reply(requests)


def load_judges(judges: Sequence[Judge[Any]], config: Config, policy: nnx.Module, mesh: jax.sharding.Mesh) -> None:
    """Load the models of judges onto the mesh of a run. A model that is the policy's frozen base is not loaded twice.

    Args:
        judges: Judges of `local_judges`.
        config: Configuration of the run.
        policy: The policy before training, without an initial checkpoint: its adapter changes nothing yet.
        mesh: Mesh of the policy.

    Raises:
        ModelError, ConfigError: A model cannot be loaded; see `JudgeModel.load`.
    """
    from agent_tunix.planning.memory import shares_base
    from agent_tunix.policy.model import copy_reference

    for queue in {judge.local_model for judge in judges}:
        if queue is not None and isinstance(queue.model, JudgeModel):
            is_base = shares_base(queue.model.config, config)
            queue.model.load(mesh, copy_reference(policy) if is_base else None)
