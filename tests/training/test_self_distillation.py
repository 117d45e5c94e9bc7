"""Self-distillation: the gradient against the plain form, what nothing is shown for, episodes, and a resumed run."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.grpo.loss import make_policy_loss
from agent_tunix.grpo.micro_batches import make_loss_inputs
from agent_tunix.grpo.step import GrpoTrainer
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.components import build_components, make_trainer
from agent_tunix.training.train import train
from agent_tunix.training.verification import read_rows
from tests.raising import raises
from tests.training.support import FINISHED, assert_same_weights, copy_run, small_run, train_config

# Shows something for some completions of each prompt.
SOME = "{% if response|length % 2 %}{{ prompt }} Hint: {{ worked_solution }}{% endif %}"


def taught(template: str | None, *overrides: str) -> Config:
    config = small_run("grpo.teacher=self", "training.eval_every_n_steps=0", "evaluation.num_samples=0", *overrides)
    config.grpo.teacher_prompt = template
    return config


def build(config: Config, root: Path) -> tuple[GrpoTrainer, Any]:
    checked = preflight(config, root)
    components = build_components(checked.config)
    return make_trainer(components, checked.mixture), components.batches.batch(1)


def plain_logps(policy: Any, prompt: list[int], tokens: np.ndarray, temperature: float) -> jax.Array:
    """Log-probabilities of a completion from one call of the model on the whole text, without padding."""
    ids = jnp.asarray([*prompt, *tokens])[None]
    size = ids.shape[1]
    logits, _ = policy(ids, jnp.arange(size)[None], None, jnp.tril(jnp.ones((1, size, size), bool)))
    logps = jax.nn.log_softmax(logits[0, len(prompt) - 1 : -1] / temperature)
    return jnp.take_along_axis(logps, jnp.asarray(tokens)[:, None], axis=-1)[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("template", [SOME, "{{ prompt }} Hint: {{ worked_solution }}"], ids=["each", "shared"])
def test_the_gradient_is_that_of_texts_read_one_by_one(template: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    few = ("training.batch_size=2", "training.micro_batch_size=1", "grpo.num_generations=3")
    config = taught(template, "grpo.loss=none", "grpo.beta=0", *few)
    trainer, batch = build(config, tmp_path)
    completions = trainer.sample(1, 0, batch)
    scored = trainer.score(1, 0, batch, completions)
    micro_batches, figures = trainer.teach(scored, trainer.place(completions))
    N, policy = len(scored.samples), trainer.updater.policy
    inputs, _ = make_loss_inputs(micro_batches, completions, np.zeros(N, np.float32), config, trainer.sampler.mesh)
    loss = nnx.jit(nnx.grad(lambda policy, part: make_policy_loss(config)(policy, part)[0]))
    found = jax.tree.map(lambda *parts: sum(parts) / len(parts), *[loss(policy, part) for part in inputs])

    def expected_loss(policy: Any) -> jax.Array:
        total = jnp.zeros(())
        for row, sample in enumerate(scored.samples):
            if template is SOME and len(sample.response) % 2 == 0:
                continue
            *before, question = sample.prompt_messages
            hint = f"{question['content']} Hint: {sample.columns['worked_solution']}"
            shown = tokenizer.encode(tokenizer.render_chat([*before, {**question, "content": hint}]))
            own = tokenizer.encode(tokenizer.render_chat([*before, question]))
            tokens = completions.tokens[row, : completions.lengths[row]]
            temperature = config.generation.temperature
            ours, theirs = (plain_logps(policy, prompt, tokens, temperature) for prompt in (own, shown))
            total += (jax.lax.stop_gradient(ours - theirs) * ours).mean() / N
        return total

    expected = nnx.grad(expected_loss)(policy)
    share = figures["taught_share"]
    assert share is not None
    assert (0 < share < 1) == (template is SOME)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    assert largest > 1e-3
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4 * largest)


@pytest.mark.slow
def test_a_step_whose_teacher_is_shown_nothing_moves_nothing(tmp_path: Path) -> None:
    config = taught("{% if false %}{{ prompt }}{% endif %}", "grpo.loss=none", "training.num_batches=1")
    row = train_config(config, tmp_path / "run")[0]
    assert row["policy/taught_share"] == 0
    assert row["policy/teacher_kl"] is None
    assert row["policy/updates"] == 0
    assert row["policy/updates_skipped"] == 1


@pytest.mark.slow
def test_a_teacher_with_the_policys_own_prompt_agrees_with_it_in_episodes_too(tmp_path: Path) -> None:
    config = taught("{{ prompt }}", "environment=guess_number", "training.num_batches=1", "grpo.beta=0")
    config.environment.max_turns, config.environment.max_episode_tokens = 2, 48
    config.environment.max_turn_tokens, config.environment.max_result_tokens = 16, 8
    row = train_config(config, tmp_path / "run")[0]
    assert row["policy/taught_share"] == 1
    assert row["policy/teacher_kl"] == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    config = taught(None, *FINISHED, "model.lora_rank=2", "grpo.num_iterations=2", "grpo.teacher_top_k=4")
    rows = train_config(config, tmp_path / "run")
    copy_run(tmp_path / "run", tmp_path / "copy", without=4)
    config.training.resume = True
    train(preflight(config, tmp_path), tmp_path / "copy")
    assert read_rows(tmp_path / "copy") == rows
    assert_same_weights(tmp_path / "run", tmp_path / "copy")


@pytest.mark.parametrize(
    "template", ["{{ prompt }} {{ workd_solution }}", "{% if %}", "{{ prompt.__class__.__mro__ }}"]
)
def test_a_template_that_fails_is_refused_before_anything_is_loaded(template: str, tmp_path: Path) -> None:
    with raises(ConfigError, "invalid_prompt"):
        preflight(taught(template), tmp_path)
