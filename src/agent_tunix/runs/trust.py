"""Trust in runs: the user's own runs are signed, other runs need the user's permission.

A run's configuration names code that scores completions, endpoints that judges call, and files to load. A run that
starts or resumes signs its configuration and the files of its rewards with a key that only this installation has. The
signature marks it as the user's own run. Code, endpoints and private files of any other run are used only after the
user allows it. The permission is stored and holds until the run changes. These checks execute nothing of the run.
"""

import contextlib
import dataclasses
import glob
import hashlib
import hmac
import inspect
import json
import logging
import os
import secrets
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.schema import Config, RewardsConfig
from agent_tunix.data.sources.remote import SCHEMES, source_of_scheme
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.errors import AgentTunixError, ConfigError, RunDirectoryError, StoreError, UntrustedRunError
from agent_tunix.regular_files import is_private, read_regular
from agent_tunix.rewards.builtin.code_tests import code_tests_reward
from agent_tunix.rewards.code_parts import CodePart, digest_code, digest_file, find_code_parts
from agent_tunix.rewards.registry import is_name
from agent_tunix.rewards.resolve import read_components, read_components_file
from agent_tunix.runs.algorithm_setup import algorithm_parts
from agent_tunix.runs.directory import require_no_link, write_json
from agent_tunix.runs.reward_setup import components_file, correct_spec, reward_directories, reward_spec
from agent_tunix.runs.weights.initial import find_initial
from agent_tunix.store.home import home, make_home
from agent_tunix.visible_text import escape_hidden

_LOGGER = logging.getLogger("agent_tunix.run")

SIGNATURE = "signature.json"
_KEY = "run_key"
_KEY_BYTES = 32
_TRUSTED = "trusted_runs"
_VERSION = 1
# Keys of `rewards` that a foreign run decides. The user decides all others: where rewards run, and their limits.
_OF_THE_REWARD = ("modules", "args", "max_failure_rate", "on_failure", "convention", "completions", "reward_key")
# Limits that `code_tests` takes as arguments, with their defaults.
_LIMITS_OF_PROGRAMS = {
    name: inspect.signature(code_tests_reward).parameters[name].default for name in ("timeout_s", "memory_mb")
}
# Keys of `environment` that the user decides for a foreign run.
_LIMITS_OF_ENVIRONMENTS = ("execution", "timeout_s", "memory_mb", "num_workers")
# Data sources that import code named by the dataset.
_SOURCES_WITH_CODE = ("tfds",)
# With more files than this, the user is asked about the whole directory.
_MOST_FILES = 10_000


def sign_run(root: Path, config: Config, working_directory: Path) -> None:
    """Sign a run that starts or resumes, which marks it as the user's own.

    Without a signature, later commands ask the user before they use the run. So an error is only logged as a warning.

    Args:
        root: Directory of the run, with its `config.yaml`.
        config: Content of that file.
        working_directory: Directory in which the run's rewards were looked up.
    """
    try:
        key = _read_key() or _make_key()
        parts = parts_of(config, working_directory) + correct_parts(config, working_directory)
        parts += environment_parts(config, working_directory, root) + algorithm_parts(config, working_directory)
        signed = {
            "version": _VERSION,
            "root": os.path.realpath(root),
            "config": _sha256((root / "config.yaml").read_bytes()),
            "parts": [[part.kind, part.text, _named(part), _digest(part, root)] for part in parts],
        }
        write_json(root / SIGNATURE, {"signed": signed, "hmac_sha256": _mac(key, signed)})
    except (OSError, StoreError, ValueError) as error:
        _LOGGER.warning(
            "the run could not be marked as yours, so commands will ask before they run its rewards: %s", error
        )


def sign_file(path: Path) -> None:
    """Sign a file that this installation has made: its place, not its content, which may change."""
    try:
        write_json(_signature_of(path), {"hmac_sha256": _mac(_read_key() or _make_key(), _place(path))})
    except (OSError, StoreError) as error:
        _LOGGER.warning("%s could not be marked as yours: %s", path, error)


def is_own_file(path: Path) -> bool:
    """Return True if this installation signed a file in its place."""
    try:
        key, found = _read_key(), json.loads(_read_plain(_signature_of(path), 1024))["hmac_sha256"]
        return key is not None and hmac.compare_digest(found, _mac(key, _place(path)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, StoreError):
        return False


def _signature_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.signature")


def _place(path: Path) -> dict[str, str]:
    return {"file": os.path.realpath(path)}


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
    content = _read_config(root)
    used = parts_of(config, working_directory) if with_reward else []
    used += correct_parts(config, working_directory) if with_correct else []
    used += environment_parts(config, working_directory, root) if with_environment else []
    used += algorithm_parts(config, working_directory, with_loss=False) if with_advantages else []
    parts = [part for part in dict.fromkeys(used) if part not in own_parts]
    doubts = _doubts(root, content, parts)
    if doubts.is_foreign:
        parts += [part for part in (data_parts(config, root) if with_data else ()) if part not in own_parts]
        parts += policy_parts(config, root) if with_policy else []
        doubts = dataclasses.replace(doubts, strange=parts)
        rewards = dataclasses.replace(config.rewards, allow_unsandboxed=own.rewards.allow_unsandboxed)
        config = dataclasses.replace(config, rewards=rewards)
    elif (with_data or with_policy) and not _is_own_in_place(root):
        # The signature covers the paths of data and policy, but in a copy the checkpoints may be links to other files.
        links = _checkpoint_parts(config, root)
        parts += links
        doubts = dataclasses.replace(doubts, strange=[*doubts.strange, *links])
    state: str | None = None
    if not trust and not _is_remembered(root, content, parts):
        strange = [part for part in doubts.strange if part.kind != "uploaded" or config.rewards.allow_unsandboxed]
        if not strange:
            return _with_own_limits(config, own, working_directory) if doubts.is_foreign else config
        with contextlib.suppress(RunDirectoryError):  # of code that cannot be read, which an answer cannot cover
            state = _state(root, content, parts)  # before the question: the answer covers what is shown
        if not _ask(root, doubts.reason, strange):
            raise _refusal(root, doubts.reason, strange)
    if doubts.is_foreign or doubts.strange:
        _remember(root, content, parts, state)
    return config


def with_own_limits(config: Config, root: Path, working_directory: Path) -> Config:
    """Return a run's configuration; the user's limits on rewards replace those of a foreign run."""
    is_foreign = _doubts(root, _read_config(root), []).is_foreign
    return _with_own_limits(config, Config(), working_directory) if is_foreign else config


def is_own(root: Path) -> bool:
    """Return True if this installation signed the run's configuration."""
    return not _doubts(root, _read_config(root), []).is_foreign


def _is_own_in_place(root: Path) -> bool:
    if not (root / "config.yaml").is_file():
        return False
    signed, _ = _verified(root, _read_config(root))
    return signed is not None and signed["root"] == os.path.realpath(root)


def check_directory(root: Path, config: Config) -> None:
    """Refuse to train in a foreign directory that is or has links or pipes, or has uploads that would run unsandboxed.

    A directory is foreign unless it holds a run of the user's own, in the place where the run was started.

    Args:
        root: The directory; it may be empty.
        config: The user's own configuration.

    Raises:
        RunDirectoryError: Links would redirect writes to another place, or pipes would block them.
        UntrustedRunError: Uploaded code in the directory would run without isolation.
    """
    if _is_own_in_place(root):
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


def parts_of(config: Config, working_directory: Path, *, with_defaults: bool = True) -> list[CodePart]:
    """Return the code and endpoints that the reward of a configuration uses beyond the built-in rewards."""
    return find_code_parts(
        reward_spec(config, working_directory),
        modules=config.rewards.modules,
        args=config.rewards.args,
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
        with_defaults=with_defaults,
    )


def correct_parts(config: Config, working_directory: Path) -> list[CodePart]:
    """Return the code and endpoints of the reward that `evaluation.correct` names; none if that is built in."""
    spec, modules = correct_spec(config)
    if spec is None:
        return []
    return find_code_parts(
        {"evaluation.correct": spec} if not is_name(spec) else spec,
        modules=modules,
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
    )


def environment_parts(config: Config, working_directory: Path, root: Path) -> list[CodePart]:
    """Return the code of environments and tools beyond the built-in ones, MCP servers, and private files named."""
    asked = config.environment
    names = asked.name if isinstance(asked.name, dict) else {} if asked.name is None else {"": asked.name}
    specs = {f"environment.name.{key}".rstrip("."): str(spec) for key, spec in names.items()}
    specs |= {f"environment.tools.{place}": tool for place, tool in enumerate(asked.tools)}
    parts = find_code_parts(
        {key: spec for key, spec in specs.items() if not is_name(spec)},
        modules=asked.modules,
        working_directory=working_directory,
    )
    for key, value in asked.args.items():
        if isinstance(value, str):
            parts += [CodePart("private", f"environment.args.{key}", str(f), f) for f in _private_files(value, root)]
    for place, item in enumerate(asked.mcp):
        server, key = McpServer.read(item, working_directory), f"environment.mcp.{place}"
        if server.url:
            parts.append(CodePart("server", key, server.text))
        else:  # another directory may have other programs and modules for the same words
            parts.append(CodePart("command", key, server.text, server.directory))
        named = [(word, Path(os.path.realpath(server.directory / word))) for word in server.command]
        parts += [CodePart("file", key, word, file) for word, file in named if file.is_file()]
    return parts


def data_parts(config: Config, root: Path) -> list[CodePart]:
    """Return the datasets that are code, and the private files and the hubs' data outside the run's directory.

    An evaluation writes its problems into the run's directory, where the run's author may be able to read them. So
    data, weights and chat template that others may not read need permission, and so does what the user's account at a
    hub may open.
    """
    parts = []
    # With a mixture too, `training.test_data_dir` is read by the settings outside it.
    sets = {"data": config} | {f"data.mixture.{name}": one.config for name, one in data_sets(config).items()}
    for key, of_set in sets.items():
        source = of_set.training.data_source or of_set.data.source
        paths = (of_set.data.path, of_set.training.train_data_dir, of_set.training.test_data_dir)
        for path in filter(None, paths):
            if source in _SOURCES_WITH_CODE or source_of_scheme(path) in _SOURCES_WITH_CODE:
                parts.append(CodePart("dataset", key, path))
            elif source in SCHEMES.values() or "://" in path:
                parts.append(CodePart("hub", key, path))
            parts += [CodePart("private", key, str(file), file) for file in _private_files(path, root)]
    return parts + policy_parts(config, root)


def policy_parts(config: Config, root: Path) -> list[CodePart]:
    """Return the private files outside the run's directory, and the hubs' models, that make its policy."""
    template = config.prompt.chat_template
    paths: dict[str, list[str | None]] = {
        "model.path": [config.model.path],
        "training.init_checkpoint": [*_initial_paths(config)],
        "prompt.chat_template": [None if template and "\n" in template else template],
    }
    named = [(key, path) for key, some in paths.items() for path in some if path]
    parts = [CodePart("hub", key, path) for key, path in named if "://" in path]
    for key, path in named:
        parts += [CodePart("private", key, str(file), file) for file in _private_files(path, root)]
    return list(dict.fromkeys(parts + _checkpoint_parts(config, root)))


def _checkpoint_parts(config: Config, root: Path) -> list[CodePart]:
    """Return the private files outside a run's directory that are its checkpoints, or to which links in them lead."""
    path = config.training.checkpoint_dir or str(root / "checkpoints")
    return [CodePart("private", "training.checkpoint_dir", str(file), file) for file in _private_files(path, root)]


def _initial_paths(config: Config) -> list[str]:
    """Return the paths of the run that `training.init_checkpoint` names, and of its checkpoints and model."""
    given = config.training.init_checkpoint
    if given is None:
        return []
    try:
        run, _ = find_initial(given)
    except AgentTunixError:  # without a run, nothing is read
        return [given]
    return [str(run.root), str(run.checkpoints), *filter(None, [run.config.model.path])]


def _private_files(path: str, root: Path) -> list[Path]:
    """Return the files that match a path or pattern, are outside a directory, and are not readable by everyone.

    If more than `_MOST_FILES` files match, return the path itself instead, and also if it leads through `/proc`, where
    a path such as `/dev/fd/7` may mean another file later.
    """
    inside = os.path.realpath(root)
    found: dict[Path, None] = {}
    try:
        named = Path(os.path.abspath(os.path.expanduser(path)))
        if any(os.path.realpath(one).startswith("/proc/") for one in (named, *named.parents)):
            return [named]
        for number, name in enumerate(_walk(path)):
            if number > _MOST_FILES:
                return [Path(os.path.realpath(os.path.expanduser(path)))]
            file = Path(os.path.realpath(name))
            with contextlib.suppress(OSError):  # a missing file cannot be read later either
                if not file.is_relative_to(inside) and (file.is_relative_to("/proc") or is_private(file)):
                    found[file] = None
    except ValueError:  # not a valid path
        return []
    return list(found)


def _walk(path: str) -> Iterator[str]:
    """Yield the matches of a path or pattern, and everything below matching directories, links included."""
    # Data sources do the same: `Path` drops a slash or `/.` at the end, and an existing path is not a pattern, whatever
    # characters it contains.
    named = str(Path(os.path.expanduser(path)))
    for start in [named] if os.path.lexists(named) else glob.iglob(named, recursive=True):
        yield start
        for directory, inner, names in os.walk(start, followlinks=True):
            yield from (os.path.join(directory, name) for name in (*inner, *names))


@dataclass(frozen=True)
class _Doubts:
    """The result of checking a run's signature."""

    reason: str  # phrase about the run for the message to the user
    is_foreign: bool  # True if the signature is missing or wrong
    strange: Sequence[CodePart]  # parts that the signature does not cover


def _doubts(root: Path, content: bytes, parts: Sequence[CodePart]) -> _Doubts:
    signed, reason = _verified(root, content)
    if signed is None:
        return _Doubts(reason, True, parts)
    known = {(kind, text): (file, digest) for kind, text, file, digest in signed["parts"]}
    here = os.path.realpath(root)
    is_in_place = signed["root"] == here
    strange = []
    for part in parts:
        file, digest = known.get((part.kind, part.text), (None, ""))
        # The user may edit their own files outside the run in place. Any other difference from the signature counts.
        is_users = is_in_place and part.file is not None and _named(part) == file and not part.file.is_relative_to(here)
        if not is_users and digest != _digest(part, root):
            strange.append(part)
    moved = "" if is_in_place else f" and was started in {signed['root']}"
    return _Doubts(f"is your run{moved}, but the following has changed since it was started", False, strange)


def _verified(root: Path, content: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the content of a valid signature and ""; else None and the reason why it is not valid."""
    foreign = "was not made by this installation of agent_tunix"
    try:
        stored = json.loads(_read_plain(root / SIGNATURE, 2**24))
        signed, given = stored["signed"], stored["hmac_sha256"]
        key = _read_key()
        if key is None or not isinstance(given, str) or not hmac.compare_digest(_mac(key, signed), given):
            return None, foreign
        if signed["version"] != _VERSION:
            return None, "was signed by another version of agent_tunix"
        if signed["config"] != _sha256(content):
            return None, "was changed since it was signed: its config.yaml is another"
        verified: dict[str, Any] = signed
        return verified, ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError, StoreError):
        return None, foreign


def _named(part: CodePart) -> str | None:
    return None if part.file is None else str(part.file)


def _digest(part: CodePart, root: Path) -> str | None:
    """Return a digest of the code of a part; None if it has no file, and the directory of a command."""
    if part.kind == "command":
        return _named(part)
    if part.kind == "uploaded":
        files = sorted((root / "rewards").glob("*.py"))
        return _sha256("".join(map(digest_file, files)).encode())
    return None if part.file is None else digest_code(part.file, root)


def _with_own_limits(config: Config, own: Config, working_directory: Path) -> Config:
    kept = {name: getattr(config.rewards, name) for name in _OF_THE_REWARD}
    kept["args"] = {name: _bounded(args, own.rewards.args.get(name)) for name, args in kept["args"].items()}
    rewards: RewardsConfig = dataclasses.replace(own.rewards, **kept)
    reward = dataclasses.replace(config.reward, components=_bounded(config.reward.components))
    spec = config.training.reward_function
    if isinstance(spec, str) and (file := components_file(spec, working_directory)):
        spec = read_components(read_components_file(file))
    training = dataclasses.replace(config.training, reward_function=_bounded(spec))
    limits = {name: getattr(own.environment, name) for name in _LIMITS_OF_ENVIRONMENTS}
    environment = dataclasses.replace(config.environment, args=_bounded(config.environment.args), **limits)
    return dataclasses.replace(config, rewards=rewards, reward=reward, training=training, environment=environment)


def _bounded(value: Any, own: Any = None) -> Any:
    """Return arguments of rewards with limits on programs that are at most the user's, or else the default ones."""
    if isinstance(value, list):
        return [_bounded(one) for one in value]
    if not isinstance(value, dict):
        return value
    most = _LIMITS_OF_PROGRAMS | (own if isinstance(own, dict) else {})
    return {
        name: min(one, most[name]) if name in _LIMITS_OF_PROGRAMS and isinstance(one, int | float) else _bounded(one)
        for name, one in value.items()
    }


# --- asking -----------------------------------------------------------------------------------------------------------


def _ask(root: Path, reason: str, parts: Iterable[CodePart]) -> bool:
    """Ask the user and return True if they allow it; return False without a terminal."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(escape_hidden(_told(root, reason, parts)), file=sys.stderr)
    print("Allow this, until the run changes? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _told(root: Path, reason: str, parts: Iterable[CodePart]) -> str:
    return "\n".join([f"{root} {reason}, and would", *(f"  - {part.describe()}" for part in parts)])


def _refusal(root: Path, reason: str, parts: Iterable[CodePart]) -> UntrustedRunError:
    return UntrustedRunError(
        f"{_told(root, reason, parts)}\nCheck the listed items. Then allow them with --trust (evaluate.py: "
        "trust=true), which is remembered until the run changes, or name your own reward, if the command accepts one"
    )


# --- stored permissions and the key -----------------------------------------------------------------------------------


def _state(root: Path, content: bytes, parts: Sequence[CodePart]) -> str:
    """Return a digest of everything that a permission covers: directory, configuration and parts."""
    named = [[part.kind, part.component, part.text, _named(part), _digest(part, root)] for part in parts]
    return _sha256(_canonical([os.path.realpath(root), _sha256(content), sorted(named, key=str)]))


def _remembered_path(root: Path) -> Path:
    return home() / _TRUSTED / f"{_sha256(os.fsencode(os.path.realpath(root)))[:32]}.json"


def _is_remembered(root: Path, content: bytes, parts: Sequence[CodePart]) -> bool:
    try:
        return bool(json.loads(_read_private(_remembered_path(root)))["state"] == _state(root, content, parts))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _remember(root: Path, content: bytes, parts: Sequence[CodePart], state: str | None) -> None:
    try:
        make_home()
        path = _remembered_path(root)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, {"root": os.path.realpath(root), "state": state or _state(root, content, parts)})
        path.chmod(0o600)
    except (OSError, StoreError) as error:
        _LOGGER.warning("the trust in the run could not be stored: %s", error)


def _read_config(root: Path) -> bytes:
    try:
        return read_regular(root / "config.yaml")
    except OSError as error:
        raise ConfigError(
            f"{root / 'config.yaml'} cannot be read: {error.strerror}", code="missing_run_config"
        ) from error


def _make_key() -> bytes:
    """Create the key of this installation and return it; if another process creates one first, return that."""
    directory = make_home()
    partial = directory / f".{_KEY}.{os.getpid()}.{secrets.token_hex(8)}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(partial, directory / _KEY)
    finally:
        partial.unlink(missing_ok=True)
    key = _read_key()
    if key is None:
        raise StoreError(f"{directory / _KEY} is not a key; remove it")
    return key


def _read_key() -> bytes | None:
    """Return the key of this installation; None if there is none.

    Raises:
        StoreError: The key cannot be read, or other users can read or write it, so that it proves nothing.
    """
    path = home() / _KEY
    try:
        key = _read_private(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the key {path}, which signs your runs, cannot be used: {error}") from error
    return key if len(key) == _KEY_BYTES else None


def _read_private(path: Path) -> bytes:
    """Return the content of a file that only this user can have written.

    Raises:
        OSError: The file cannot be read, or other users can read or write it.
    """
    content, status = _read_plain_with_status(path, 2**20)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(
            f"{path} must be owned by you and readable only by you; remove it, or: chown {os.geteuid()}, chmod 600"
        )
    return content


def _read_plain(path: Path, most: int) -> bytes:
    return _read_plain_with_status(path, most)[0]


def _read_plain_with_status(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise OSError(f"{path} must be a small regular file, but is not")
        return file.read(most), status


def _mac(key: bytes, value: Any) -> str:
    return hmac.new(key, _canonical(value), hashlib.sha256).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
