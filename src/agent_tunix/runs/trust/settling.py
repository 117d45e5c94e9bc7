"""The decision whether a command may use a run, and whether a run may be trained in a directory."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Collection
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.errors import RunDirectoryError, UntrustedRunError
from agent_tunix.rewards.code_parts import CodePart
from agent_tunix.runs.algorithm_setup import algorithm_parts
from agent_tunix.runs.directory import require_no_link
from agent_tunix.runs.trust.own_limits import apply_own_limits
from agent_tunix.runs.trust.permissions import ask_user, digest_permission, is_remembered, refusal, remember
from agent_tunix.runs.trust.signing import check_signature, is_own_in_place, read_config
from agent_tunix.runs.trust.used_parts import (
    checkpoint_parts,
    correct_parts,
    data_parts,
    environment_parts,
    parts_of,
    policy_parts,
)
from agent_tunix.visible_text import escape_hidden

_LOGGER = logging.getLogger("agent_tunix.run")


def settle_trust(
    config: Config,
    root: Path,
    *,
    working_directory: Path,
    trust: bool = False,
    own: Config | None = None,
    own_parts: Collection[CodePart] = (),
    with_reward: bool = True,
    with_correct: bool = False,
    with_data: bool = False,
    with_policy: bool = False,
    with_environment: bool = False,
    with_advantages: bool = False,
) -> Config:
    """Return a run's configuration with the limits on rewards and environments that apply to it, or refuse the run.

    A run that is neither the user's own nor trusted gets the user's limits on rewards instead of its own. The user
    always decides `rewards.allow_unsandboxed` for a run that is not their own.

    Args:
        config: The run's, with the user's changes.
        root: Directory of the run.
        working_directory: Directory in which the run's rewards are looked up.
        trust: True if the user says to trust the run.
        own: The user's changes, applied to the default configuration.
        own_parts: Code parts that the user asks for; they need no trust.
        with_reward: True if the run's reward will score completions.
        with_correct: True if the reward of `evaluation.correct` will score completions.
        with_data: True if the run's data will be read.
        with_policy: True if the run's policy will be written where others may read it.
        with_environment: True if the policy will act in the run's environments.
        with_advantages: True if the run's advantage estimator will be called.

    Raises:
        UntrustedRunError: The run would execute code, send text or read private files, and is neither the user's own
            nor trusted.
    """
    own = own or Config()
    content = read_config(root)
    used = parts_of(config, working_directory) if with_reward else []
    used += correct_parts(config, working_directory) if with_correct else []
    used += environment_parts(config, working_directory, root) if with_environment else []
    used += algorithm_parts(config, working_directory, with_loss=False) if with_advantages else []
    parts = [part for part in dict.fromkeys(used) if part not in own_parts]
    doubts = check_signature(root, content, parts)
    if doubts.is_foreign:
        parts += [part for part in (data_parts(config, root) if with_data else ()) if part not in own_parts]
        parts += policy_parts(config, root) if with_policy else []
        doubts = dataclasses.replace(doubts, strange=parts)
        rewards = dataclasses.replace(config.rewards, allow_unsandboxed=own.rewards.allow_unsandboxed)
        config = dataclasses.replace(config, rewards=rewards)
    elif (with_data or with_policy) and not is_own_in_place(root):
        # The signature covers the paths of data and policy, but in a copy the checkpoints may be links to other files.
        links = checkpoint_parts(config, root)
        parts += links
        doubts = dataclasses.replace(doubts, strange=[*doubts.strange, *links])
    state: str | None = None
    if not trust and not is_remembered(root, content, parts):
        strange = [part for part in doubts.strange if part.kind != "uploaded" or config.rewards.allow_unsandboxed]
        if not strange:
            return apply_own_limits(config, own, working_directory) if doubts.is_foreign else config
        with contextlib.suppress(RunDirectoryError):  # raised for unreadable code, which an answer cannot cover
            state = digest_permission(root, content, parts)  # before the question: the answer covers what is shown
        if not ask_user(root, doubts.reason, strange):
            raise refusal(root, doubts.reason, strange)
    if doubts.is_foreign or doubts.strange:
        remember(root, content, parts, state)
    return config


def with_own_limits(config: Config, root: Path, working_directory: Path) -> Config:
    """Return a run's configuration; the user's limits on rewards replace those of a foreign run."""
    is_foreign = check_signature(root, read_config(root), []).is_foreign
    return apply_own_limits(config, Config(), working_directory) if is_foreign else config


def check_directory(root: Path, config: Config) -> None:
    """Refuse to train in a foreign directory that is a link, or has links, pipes or uploads that would run unsandboxed.

    A directory is foreign unless it holds a run of the user's own, in the place where the run was started.

    Args:
        root: The directory; it may be empty.
        config: The user's own configuration.

    Raises:
        RunDirectoryError: Links would redirect writes to another place, or pipes would block them.
        UntrustedRunError: Uploaded code in the directory would run without isolation.
    """
    if is_own_in_place(root):
        return
    require_no_link(root)
    within = [os.path.join(directory, name) for directory, inner, names in os.walk(root) for name in (*inner, *names)]
    links = [path for path in within if os.path.islink(path)]
    if others := [path for path in within if not (os.path.isfile(path) or os.path.isdir(path) or path in links)]:
        names = escape_hidden(", ".join(os.path.relpath(path, root) for path in others[:5]))
        raise RunDirectoryError(
            f"{root} is not marked as your run, and the run would wait without end for pipes or devices in it: {names};"
            " remove them, or choose another hydra.run.dir",
            code="pipes_in_run",
        )
    if links:
        names = escape_hidden(", ".join(os.path.relpath(path, root) for path in links[:5]))
        raise RunDirectoryError(
            f"{root} is not marked as your run, and links in it would make the run write elsewhere: {names}; replace "
            "each by its target, or choose another hydra.run.dir",
            code="links_in_run",
        )
    copies = sorted((root / "rewards").glob("*.py"))
    if copies and config.training.resume:
        _LOGGER.warning(
            "%s is not marked as a run of yours; resuming it scores with its copies of uploaded rewards, not with those"
            " of your store: %s",
            root,
            ", ".join(path.name for path in copies),
        )
    if config.rewards.allow_unsandboxed and copies:
        raise UntrustedRunError(
            f"{root} is not marked as your run, and the uploaded rewards in it would run without isolation; remove "
            f"{root / 'rewards'} so that they are downloaded again, or set rewards.allow_unsandboxed=false"
        )
