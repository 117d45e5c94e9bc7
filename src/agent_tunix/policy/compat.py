"""Every repair of Tunix 0.1.7, in one place.

Each function names the defect it mends; `tests/policy/test_compat.py` and `tests/training/test_tunix_dangers.py` hold
both the repair and, where it can be shown, the defect itself, so that a test fails once upstream has mended it and the
repair can go. The version is pinned in pyproject.toml and checked here.
"""

import contextlib
import importlib.metadata
import importlib.util
import sys
import threading
import types
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
from flax import nnx

TUNIX_VERSION = "0.1.7"
_WARNING = threading.Lock()


def check_version() -> None:
    """Refuse any other Tunix than the one these repairs were made for.

    Raises:
        ImportError: Another version is installed.
    """
    installed = importlib.metadata.version("google-tunix")
    if installed != TUNIX_VERSION:
        raise ImportError(
            f"agent_tunix needs google-tunix {TUNIX_VERSION}, found {installed};"
            f" pip install google-tunix=={TUNIX_VERSION}"
        )


def import_narrowly() -> None:
    """Have `import tunix.rl.…` load what it names, and not the whole of Tunix; to be called before Tunix is imported.

    Defect: the package imports all its trainers as it begins, agents and pandas among them, and tensorboardX below it
    imports the whole client of Google Cloud Storage: nearly five times the modules that a run uses. `tunix` becomes a
    package that runs its own `__init__` when a name of it is first asked for, and tensorboardX knows no `gs://`.

    Where another has imported Tunix or tensorboardX already, it stays as it is.
    """
    check_version()
    if "tensorboardX" not in sys.modules:
        with _absent("google.cloud.storage", "boto3"):
            import tensorboardX  # noqa: F401  # finds out as it is imported which of these there are
    if "tunix" not in sys.modules:
        spec = importlib.util.find_spec("tunix")
        assert spec is not None
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _LazyPackage
        sys.modules["tunix"] = package


@contextlib.contextmanager
def _absent(*names: str) -> Iterator[None]:
    """Modules that are not imported yet cannot be."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is what Python refuses
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


class _LazyPackage(types.ModuleType):
    """A package whose `__init__` runs when it is asked for a name that is no submodule of it."""

    def __getattr__(self, name: str) -> Any:
        is_probe = name.startswith("__") and name != "__version__"
        if is_probe or importlib.util.find_spec(f"{self.__name__}.{name}"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


@contextlib.contextmanager
def entered(mesh: jax.sharding.Mesh) -> Iterator[None]:
    """The mesh as the context that Tunix reads.

    Tunix takes the mesh from JAX's thread resources, which only the deprecated `with mesh:` sets.
    """
    with _WARNING, warnings.catch_warnings():  # which are not for several threads at once
        warnings.filterwarnings("ignore", message=".*with mesh.*", category=DeprecationWarning)
        mesh.__enter__()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        mesh.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def guard_train_step(trainer: Any, labels: Callable[[Any], Any] | None = None, frozen: Collection[str] = ()) -> None:
    """Make the trainer's step leave weights and optimiser as they were when the loss or a gradient is not finite.

    Defect: an infinite reward gives a NaN loss and Tunix goes on training with NaN weights. The step's auxiliary
    values gain

    - `finite`, a boolean;
    - `healthy`: whether the step changed anything, which it does where it is finite and those before it were; the next
      step takes it as its last argument, true where it is left out;
    - `grad_norm`: the norm of the gradient that is or will be applied, the mean of the micro-batches accumulated so
      far, where Tunix gives that of the last micro-batch alone; without frozen weights;
    - `update_norm`, `weight_norm`: name of a group ("" for all of them) → norm of what was added to the weights that
      train, NaN where not finite and 0 where only accumulated, and norm of these weights before.

    Args:
        trainer: Tunix's.
        labels: A tree of weights → the name of each one's group; None where there are none.
        frozen: Groups whose weights stay as they are.
    """

    def train_step(
        model: nnx.Module, optimizer: nnx.Optimizer[Any], inputs: Any, healthy: Any = True
    ) -> tuple[Any, Any, Any]:
        before_model, before_optimizer = nnx.state(model, optimizer.wrt), nnx.state(optimizer)
        before_model, before_optimizer = jax.tree.map(lambda x: x, (before_model, before_optimizer))
        names = jax.tree.leaves(labels(before_model)) if labels else [""] * len(jax.tree.leaves(before_model))
        trained = [name not in frozen for name in names]
        watched = _Watched(optimizer)
        loss, aux, grad_norm = type(trainer)._train_step(trainer, model, watched, inputs)
        finite = jax.numpy.isfinite(loss) & jax.numpy.isfinite(grad_norm)
        healthy = finite & healthy
        # Reductions that XLA fuses with the subtraction: no copy of the weights is made.
        added = jax.tree.map(
            lambda new, old: jax.numpy.where(finite, _squares(new - old), jax.numpy.nan),
            nnx.state(model, optimizer.wrt),
            before_model,
        )
        found = {
            "finite": finite,
            "healthy": healthy,
            "grad_norm": _accumulated_norm(before_optimizer, watched.gradients, None if all(trained) else trained),
            "update_norm": _norms(jax.tree.leaves(added), names),
            "weight_norm": _norms([_squares(weight) for weight in jax.tree.leaves(before_model)], names),
        }

        def keep(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda n, o: jax.numpy.where(healthy, n, o), new, old)

        nnx.update(model, keep(nnx.state(model, optimizer.wrt), before_model))
        nnx.update(optimizer, keep(nnx.state(optimizer), before_optimizer))
        return loss, {**aux, **found}, grad_norm

    trainer.create_train_step_fn = lambda: train_step


class _Watched:
    """An optimiser that keeps the gradients it was given."""

    def __init__(self, optimizer: nnx.Optimizer[Any]) -> None:
        self._optimizer = optimizer
        self.gradients: Any = None

    def update(self, model: nnx.Module, gradients: Any) -> None:
        self.gradients = gradients
        self._optimizer.update(model, gradients)


def _accumulated_norm(before: Any, gradients: Any, counted: Sequence[bool] | None) -> Any:
    """The norm of the mean of the gradients accumulated so far, these included, as `optax.MultiSteps` takes it.

    Args:
        before: The optimiser's state before them.
        gradients: Those of a micro-batch.
        counted: Whether each array counts; None: all.
    """
    leaves = jax.tree.leaves(gradients)
    if (state := _held_in(before)) is not before:
        done = state["mini_step"].get_value()
        means = jax.tree.leaves(state["acc_grads"])
        leaves = [mean + (new - mean) / (done + 1) for mean, new in zip(means, leaves, strict=True)]
    return jax.numpy.sqrt(
        sum(_squares(leaf) for leaf, counts in zip(leaves, counted or [True] * len(leaves), strict=True) if counts)
    )


def _squares(array: Any) -> Any:
    return (array.astype(jax.numpy.float32) ** 2).sum()


def _norms(squares: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Name of a group, and "" for all of them → norm."""
    found = {"": jax.numpy.sqrt(sum(squares))}
    for name in dict.fromkeys(names):
        if name:
            found[name] = jax.numpy.sqrt(sum(s for s, own in zip(squares, names, strict=True) if own == name))
    return found


def update_reference(worker: Any, state: Any) -> None:
    """Give the reference policy other weights.

    Defect: the inference worker splits its models once, when it is made, so that what they become later is not seen.
    """
    nnx.update(worker.get_model("reference"), state)
    worker._model_states["reference"] = nnx.split(worker.get_model("reference"))


def report_no_memory() -> None:
    """Leave out what Tunix tells of the memory of its devices.

    Defect: it collects garbage for it, a fifth of a second as a run starts, and on a CPU it says no more than that a
    package for TPUs may be missing.
    """
    from tunix.sft import utils

    utils.show_hbm_usage = lambda title="": None


def accumulate_only_where_needed(config: Any) -> None:
    """Let an update of a single micro-batch take its gradient as it is.

    Defect: Tunix sums gradients up in `optax.MultiSteps` there too, which takes as much memory as the weights that
    train, and eleven small programs to begin with.

    Args:
        config: Of the training, before the cluster is made.
    """
    if config.gradient_accumulation_steps == 1:
        config.gradient_accumulation_steps = None


def read_optimizer(optimizer: Any) -> dict[str, Any]:
    """The optimiser's state between two updates, the same whether it accumulates gradients or not.

    Returns:
        `step`, how many updates it has made, and `opt_state`, if it has one.
    """
    state: Any = nnx.state(optimizer)
    step, held = state["step"], _held_in(state)
    if held is not state:
        step = step.replace(held["gradient_step"].get_value().astype(step.get_value().dtype))
    name = _name_in(held, state)
    return {"step": step} | ({"opt_state": held[name]} if name in held else {})


def write_optimizer(optimizer: Any, read: dict[str, Any], accumulation: int) -> None:
    """Put what `read_optimizer` gave into an optimiser, which may accumulate over another number of micro-batches.

    Args:
        optimizer: Takes it; gradients that it has accumulated are forgotten.
        read: What an optimiser of the same kind gave.
        accumulation: Micro-batches of an update.
    """
    state: Any = nnx.state(optimizer)
    held, updates = _held_in(state), read["step"].get_value()
    if held is not state:
        _forget(held)
        done = held["gradient_step"]
        held["gradient_step"] = done.replace(updates.astype(done.get_value().dtype))
    if "opt_state" in read:
        held[_name_in(held, state)] = read["opt_state"]
    # Flax counts micro-batches.
    state["step"] = state["step"].replace(updates * accumulation)
    nnx.update(optimizer, state)


def _held_in(state: Any) -> Any:
    """What the state of the optimiser proper is in: `optax.MultiSteps`, or where there is none, `nnx.Optimizer`."""
    return state["opt_state"] if "opt_state" in state and "acc_grads" in state["opt_state"] else state


def _name_in(held: Any, state: Any) -> str:
    return "opt_state" if held is state else "inner_opt_state"


def reset_accumulation(optimizer: Any) -> None:
    """Forget gradients of micro-batches whose update has not happened.

    Tunix sums them up in `optax.MultiSteps`; a step that stops half-way leaves its sum there.
    """
    state: Any = nnx.state(optimizer)
    if (held := _held_in(state)) is not state:
        # Flax counts micro-batches; those whose gradients are forgotten have not been.
        state["step"] = jax.tree.map(
            lambda step, mini_step: step - mini_step.astype(step.dtype),
            state["step"],
            state["step"].replace(held["mini_step"].get_value()),
        )
        _forget(held)
        nnx.update(optimizer, state)


def _forget(state: Any) -> None:
    """Set the sum of `optax.MultiSteps` to nothing."""
    for name in ("mini_step", "acc_grads"):
        state[name] = jax.tree.map(jax.numpy.zeros_like, state[name])
