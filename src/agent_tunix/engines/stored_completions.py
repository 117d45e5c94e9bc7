"""Completions as bytes and back, without loss: for checkpoints, and for the other processes of a run.

The bytes are a file of NumPy (`.npz`) with the arrays, and with everything else as encoded JSON. Reading it executes
nothing. Values in the state of an environment that JSON does not have are kept as `tracking/rollouts/encoding.py` says.
"""

import dataclasses
import io
import zipfile
from typing import Any

import numpy as np

from agent_tunix.environments import EpisodeResult
from agent_tunix.environments.episode import AgentRecord, CallRecord, PolicyCall, StopReason, UnreadCall
from agent_tunix.environments.outcomes import CallOutcome, CallResult
from agent_tunix.rewards.score_data import from_data, to_data
from agent_tunix.sampling.forks import Forks
from agent_tunix.sampling.sampler import Completions
from agent_tunix.tracking.rollouts.encoding import decode, encode

_FORKS = "forks/"  # starts the names of the arrays of forks
_REST = "rest"  # the array of bytes with everything else
_ARRAYS = ("prompt_tokens", "prompt_lengths", "tokens", "lengths", "ended", "logps", "sampled", "versions")


def to_bytes(completions: Completions) -> bytes:
    """Return completions as bytes that `from_bytes` reads."""
    arrays: dict[str, Any] = {name: array for name in _ARRAYS if (array := getattr(completions, name)) is not None}
    if (forks := completions.forks) is not None:
        arrays |= {_FORKS + field.name: getattr(forks, field.name) for field in dataclasses.fields(Forks)}
    episodes = completions.episodes
    rest = {
        "texts": list(completions.texts),
        "episodes": None if episodes is None else [_episode_data(episode) for episode in episodes],
    }
    file = io.BytesIO()
    arrays[_REST] = np.frombuffer(encode(rest).encode(), np.uint8)
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def from_bytes(content: bytes) -> Completions:
    """Return the completions that `to_bytes` was given.

    Raises:
        ValueError: The bytes were not written by `to_bytes`.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
        rest = decode(arrays.pop(_REST).tobytes().decode())
        forks = {name.removeprefix(_FORKS): arrays.pop(name) for name in list(arrays) if name.startswith(_FORKS)}
        return Completions(
            **arrays,
            texts=rest["texts"],
            episodes=None if rest["episodes"] is None else [_read_episode(data) for data in rest["episodes"]],
            forks=Forks(**forks) if forks else None,
        )
    except (KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"these are not stored completions: {type(error).__name__}: {error}") from error


def _episode_data(episode: EpisodeResult) -> dict[str, Any]:
    data = {field.name: getattr(episode, field.name) for field in dataclasses.fields(episode)}
    return data | {
        "score": None if episode.score is None else to_data(episode.score),
        "calls": [dataclasses.asdict(call) for call in episode.calls],
        "unread_calls": [dataclasses.asdict(call) for call in episode.unread_calls],
        "agent": None if episode.agent is None else dataclasses.asdict(episode.agent),
    }


def _read_episode(data: dict[str, Any]) -> EpisodeResult:
    agent = data["agent"]
    return EpisodeResult(
        **data
        | {
            "stop_reason": StopReason(data["stop_reason"]),
            "score": None if data["score"] is None else from_data(data["score"]),
            "calls": tuple(CallRecord(**call | {"result": _read_result(call["result"])}) for call in data["calls"]),
            "unread_calls": tuple(UnreadCall(**call) for call in data["unread_calls"]),
            "agent": (
                None
                if agent is None
                else AgentRecord(**agent | {"calls": tuple(PolicyCall(**call) for call in agent["calls"])})
            ),
        }
    )


def _read_result(data: dict[str, Any]) -> CallResult:
    return CallResult(**data | {"outcome": CallOutcome(data["outcome"])})
