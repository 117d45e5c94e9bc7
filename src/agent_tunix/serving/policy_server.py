"""A served policy, from a run or a model, for `agent-tunix serve-policy`.

Importing this module does not load JAX.
"""

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.runs.found_run import FoundRun, Step
from agent_tunix.serving.settings import PolicySettings
from agent_tunix.startup import devices

if TYPE_CHECKING:
    import jax

    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.serving.chat import ChatEncoder
    from agent_tunix.serving.policy_service import PolicyService

_LOGGER = logging.getLogger("agent_tunix.serving")
# Context of a model that says nothing of it, and the most that is planned for unless the user asks for more.
USUAL_CONTEXT = 4096
# The rest is for programs and fragmentation.
_SHARE_OF_MEMORY = 0.85


@contextlib.contextmanager
def open_service(
    run: FoundRun,
    step: Step,
    settings: PolicySettings,
    *,
    max_context: int | None = None,
    num_places: int = 16,
    max_waiting: int = 1024,
    adapters: Mapping[str, Path] | None = None,
) -> Iterator["PolicyService"]:
    """Yield a policy with its weights, while a thread of its own samples from it.

    Args:
        run: The run, or a model as one.
        step: Step of the checkpoint; see `load_trained_policy`.
        settings: Settings of the server; their `max_context` is replaced.
        max_context: Maximum tokens of a prompt and its reply; None for that of the model, at most 4096.
        num_places: Requests that are answered at a time, as far as the memory allows.
        max_waiting: Requests that may wait; more are refused.
        adapters: Directories of adapters by name.

    Raises:
        CheckpointError, ModelError, ConfigError: The policy cannot be loaded.
    """
    config = run.config
    devices.prepare(config.distributed)
    devices.require(config.distributed)
    import absl.logging

    absl.logging.set_verbosity(absl.logging.ERROR)  # Orbax logs each file that it reads
    from agent_tunix.policy.files.config_file import read_context_length
    from agent_tunix.runs.weights.trained_policy import load_trained_policy
    from agent_tunix.sampling.continuous import ContinuousSampler
    from agent_tunix.sampling.sampler import Sampler
    from agent_tunix.serving.policy_service import AdapterHost, PolicyService

    trained = load_trained_policy(run, step)
    longest = read_context_length(trained.directory)
    if max_context is not None and longest is not None and max_context > longest:
        raise ConfigError(
            f"--max-context must be at most {longest}, the model's max_position_embeddings, not {max_context}",
            code="invalid_request",
        )
    max_context = max_context or min(longest or USUAL_CONTEXT, USUAL_CONTEXT)
    settings = dataclasses.replace(settings, max_context=max_context)
    sampler = ContinuousSampler(
        Sampler(trained.policy, trained.tokenizer, trained.mesh, config.generation.eos_tokens),
        num_places=min(num_places, fitting_places(config, trained.directory, trained.mesh, max_context)),
        max_context=max_context,
        max_waiting=max_waiting,
    )
    host = sampler if isinstance(sampler, AdapterHost) else None
    chat = make_chat_encoder(config, trained.tokenizer)
    service = PolicyService(sampler, trained.tokenizer, settings, chat, adapters=host)
    for name, directory in (adapters or {}).items():
        if host is None or name == settings.model:
            raise ConfigError(f"--adapter {name} must have another name than the policy", code="invalid_request")
        host.load_adapter(name, directory)
    stop = threading.Event()
    thread = threading.Thread(target=sampler.serve_forever, args=(stop,), name="sampler")
    thread.start()
    try:
        yield service
    finally:
        stop.set()
        sampler.wake()
        thread.join()
        sampler.close()


def make_chat_encoder(config: Config, tokenizer: "Tokenizer") -> "ChatEncoder | None":
    """Return the encoder of conversations; None, with a warning, for a base model without a chat template."""
    from agent_tunix.runs.environment_setup import make_episode_encoder
    from agent_tunix.serving.chat import ChatEncoder

    try:
        return ChatEncoder(make_episode_encoder(config, tokenizer, config.generation.eos_tokens))
    except ModelError as error:
        _LOGGER.warning("conversations are not served: %s", error)
        return None


def fitting_places(
    config: Config, directory: Path, mesh: "jax.sharding.Mesh", max_context: int, *, trains: bool = False
) -> int:
    """Return how many requests of the longest kind have room beside the weights.

    Args:
        config: Configuration of the run.
        directory: Directory of the model.
        mesh: Devices that hold the policy.
        max_context: Maximum tokens of a prompt and its reply together.
        trains: True if the run trains, so that its optimizer and other models take memory too.
    """
    from agent_tunix.planning.cache_plan import count_places
    from agent_tunix.planning.memory import plan_memory
    from agent_tunix.planning.open_mesh import available_memory
    from agent_tunix.policy.families import read_architecture
    from agent_tunix.policy.mesh import shape_of
    from agent_tunix.policy.model import compute_dtype

    architecture, shape = read_architecture(directory), shape_of(mesh)
    compute_bytes = compute_dtype(config.model.dtype).itemsize
    plan = plan_memory(architecture, config, compute_bytes, shape)
    held = (plan if trains else plan.for_sampling()).held
    available = int(_SHARE_OF_MEMORY * available_memory(mesh)) // shape.size - held
    return count_places(architecture, compute_bytes, shape, max_context=max_context, available=available)


def serve(run: FoundRun, step: Step, settings: PolicySettings, announce: Callable[[str], None], **limits: Any) -> None:
    """Serve a policy until SIGTERM or SIGINT.

    Args:
        run: The run, or a model as one.
        step: Step of the checkpoint.
        settings: Settings of the server.
        announce: Function that gets the server's URL once it listens.
        limits: See `open_service`.

    Raises:
        ServiceError: The address is not available, or other machines can reach it and there is no key.
        AgentTunixError: The policy cannot be loaded.
    """
    from agent_tunix.web.server import listen, serve_app  # first: it says which package is missing

    settings.check_exposure()
    listen(settings.host, settings.port).close()  # an address that is not available is told before the model is loaded
    from agent_tunix.serving.app import create_app

    with open_service(run, step, settings, **limits) as service:
        serve_app(settings, lambda: create_app(service), announce)
