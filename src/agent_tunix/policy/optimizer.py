"""The optimiser, in Optax.

    drop the gradients of frozen weights → clip by global norm → for each group of weights:
    direction (AdamW's, Lion's …) → + weight decay · weight → · -learning rate

Weight decay is decoupled for every optimiser: it does not go through the direction, only through the learning rate.

The schedules of the learning rates are not part of the optimiser. Its `update` takes them as the argument `schedules`,
so that a compiled update can have their numbers as inputs.

Departures:

- Adafactor (https://arxiv.org/abs/1804.04235) applies momentum, if there is any, before the learning rate. By default
  its learning rate is absolute, not relative to the size of the weights.
- Muon's updates are scaled to the size of AdamW's (https://arxiv.org/abs/2502.16982), so that one learning rate serves
  matrices and other weights.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import nnx
from optax import contrib

from agent_tunix.config.optimizers import REST, ParameterGroup, filled, parameter_groups
from agent_tunix.config.schema import OptimizerConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.files.weight_paths import is_matrix, is_vector, list_weights, map_weights
from agent_tunix.policy.model import has_adapter
from agent_tunix.policy.schedules import Schedules

# Root mean square of AdamW's updates. Muon's updates are scaled to it.
_ADAMW_RMS = 0.2
# Maximum root mean square of Adafactor's updates; the paper's d.
_ADAFACTOR_CLIP = 1.0

Labels = Callable[[Any], Any]


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    """Return the optimiser of a configuration. Its `update` requires `schedules`, those of `make_schedules`.

    Args:
        config: Configuration that passed `config.checks`.
    """
    config = filled(config)
    groups = parameter_groups(config)
    steps = [optax.clip_by_global_norm(config.max_grad_norm)] if config.max_grad_norm > 0 else []
    if not groups:
        return optax.chain(*steps, _update_rule(config, REST, config.weight_decay))
    labels = make_labels(config)
    frozen = {group.name for group in groups if group.freeze}
    if frozen:
        steps.insert(0, optax.masked(optax.set_to_zero(), lambda w: jax.tree.map(lambda x: x in frozen, labels(w))))
    rules = {REST: _update_rule(config, REST, config.weight_decay)}
    rules |= {group.name: _group_rule(config, group) for group in groups}
    return optax.chain(*steps, optax.partition(rules, labels))


def make_labels(config: OptimizerConfig) -> Labels:
    """Return a function from a tree of weights to the name of each weight's group, or `rest` for those without one."""
    groups = parameter_groups(config)

    def label(path: str, _: Any) -> str:
        return next((group.name for group in groups if group.match.search(path)), REST)

    return lambda weights: map_weights(label, weights)


def check_groups(config: OptimizerConfig, model: nnx.Module) -> dict[str, int]:
    """Refuse groups that match no weight of a model.

    Args:
        config: Configuration with the groups.
        model: The policy.

    Returns:
        The number of weights (tensors) in each group.

    Raises:
        ConfigError: A group matches nothing, or only weights of earlier groups; or everything is frozen.
    """
    weights = nnx.state(model, nnx.LoRAParam if has_adapter(model) else nnx.Param)
    paths = list(list_weights(weights))
    labels = list(list_weights(make_labels(config)(weights)).values())
    counts = {group.name: labels.count(group.name) for group in parameter_groups(config)}
    for group in parameter_groups(config):
        if not counts[group.name]:
            taken = any(group.match.search(path) for path in paths)
            why = "only weights of earlier groups" if taken else "no trained weight"
            raise ConfigError(
                f"optimizer.groups.{group.name}.match {group.match.pattern!r} must match a trained weight, but "
                f"matches {why}; the trained weights are: {', '.join(paths[:3])} … {paths[-1]}"
            )
    frozen = {group.name for group in parameter_groups(config) if group.freeze}
    if frozen.issuperset(labels):
        raise ConfigError("optimizer.groups must leave a weight to train, but freezes all of them; freeze fewer")
    return counts


def _group_rule(config: OptimizerConfig, group: ParameterGroup) -> optax.GradientTransformation:
    return optax.set_to_zero() if group.freeze else _update_rule(config, group.name, group.weight_decay)


def _update_rule(config: OptimizerConfig, group: str, decay: float) -> optax.GradientTransformation:
    if config.kind == "muon":
        rules = {
            "matrix": _finish(config, _muon(config), group, decay),
            "other": _finish(config, _adam(config), group, decay),
        }
        return optax.partition(
            rules, lambda weights: map_weights(lambda *w: "matrix" if is_matrix(*w) else "other", weights)
        )
    return _finish(config, _DIRECTIONS[config.kind](config), group, decay)


def _finish(
    config: OptimizerConfig, direction: optax.GradientTransformation, group: str, decay: float
) -> optax.GradientTransformation:
    def decays(weights: Any) -> Any:
        return map_weights(lambda *weight: config.decay_vectors or not is_vector(*weight), weights)

    return optax.chain(direction, optax.add_decayed_weights(decay, mask=decays), _scale_by_schedule_of(group))


def _scale_by_schedule_of(group: str) -> optax.GradientTransformationExtraArgs:
    """Return `optax.scale_by_learning_rate` with the schedule of a group among those that `update` is given."""

    def scale_by(schedule: optax.Schedule) -> optax.GradientTransformation:
        def rate(count: Any) -> Any:
            # Without the barrier, XLA computes the cosine again in the kernel of each weight.
            return jax.lax.optimization_barrier(schedule(count))  # type: ignore[no-untyped-call]

        return optax.scale_by_learning_rate(rate)

    def update(updates: Any, state: Any, weights: Any = None, *, schedules: Schedules, **_: Any) -> Any:
        return scale_by(schedules[group]).update(updates, state, weights)

    # The state counts updates, whatever the schedule.
    return optax.GradientTransformationExtraArgs(scale_by(optax.constant_schedule(0.0)).init, update)


def _adam(config: OptimizerConfig) -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon)


def _lion(config: OptimizerConfig) -> optax.GradientTransformation:
    return optax.scale_by_lion(b1=config.beta1, b2=config.beta2)


def _sgd(config: OptimizerConfig) -> optax.GradientTransformation:
    # Without momentum no state is needed.
    return optax.trace(config.momentum, nesterov=config.nesterov) if config.momentum else optax.identity()


def _adafactor(config: OptimizerConfig) -> optax.GradientTransformation:
    steps = [
        _plain(optax.scale_by_factored_rms(decay_rate=config.decay_rate, epsilon=config.epsilon)),
        optax.clip_by_block_rms(_ADAFACTOR_CLIP),
    ]
    if config.scale_by_weights:
        steps.append(optax.scale_by_param_block_rms())
    if config.momentum:
        steps.append(optax.ema(config.momentum, debias=False))
    return optax.chain(*steps)


def _muon(config: OptimizerConfig) -> optax.GradientTransformation:
    def scale(update: Any) -> Any:
        return update * (_ADAMW_RMS * math.sqrt(max(update.shape)))

    def axes(weights: Any) -> Any:
        return jax.tree.map(lambda _: contrib.MuonDimensionNumbers(reduction_axis=0, output_axis=1), weights)

    return optax.chain(
        contrib.scale_by_muon(
            beta=config.momentum, eps=config.epsilon, nesterov=config.nesterov, weight_dimension_numbers=axes
        ),
        optax.stateless(lambda updates, _: jax.tree.map(scale, updates)),
    )


_DIRECTIONS = {"adamw": _adam, "lion": _lion, "sgd": _sgd, "adafactor": _adafactor}


def _plain(transformation: optax.GradientTransformation) -> optax.GradientTransformation:
    """Wrap a transformation so that it sees a dict of arrays by path instead of Flax's variables.

    Its state does not have the shapes of the weights. With variables, the state would inherit the sharding of the
    weights.
    """

    def init(weights: Any) -> Any:
        return transformation.init(list_weights(weights))

    def update(gradients: Any, state: Any, weights: Any = None) -> Any:
        plain = None if weights is None else list_weights(weights)
        by_path = list_weights(gradients)
        updates, state = transformation.update(by_path, state, plain)
        # JAX sorts a dict's keys, so the updates are put back in the order of the tree.
        return jax.tree.unflatten(jax.tree.structure(gradients), [updates[path] for path in by_path]), state

    return optax.GradientTransformation(init, update)
