"""What processes tell each other: plain values under names, in the key-value store of JAX's coordination service.

The service runs in process 0 and is there on every platform; nothing here touches a device, so that an exchange neither
waits for computations that are under way nor has to come in a certain order with them.
"""

import pickle
from typing import Any

from agent_tunix.rewards.execution.wire import load_plain

# How long one question to the store waits before it is asked again, and failures of others are looked for.
_POLL_MS = 1000
_PREFIX = "agent_tunix"
_FAILED = f"{_PREFIX}/failed"


def check_plain(value: Any) -> None:
    """Refuse a value that others could not read.

    Raises:
        BrokenFrameError: It is not of built-in types.
    """
    load_plain(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class ValueStore:
    """The key-value store of a run.

    Args:
        client: JAX's client of the coordination service.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, name: str, value: Any) -> None:
        """Keep a value of built-in types under a name that has none yet."""
        self._client.key_value_set_bytes(f"{_PREFIX}/{name}", pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def poll(self, name: str) -> tuple[Any] | None:
        """The value under a name, as the only entry; None where it has not come within a second."""
        try:
            content = self._client.blocking_key_value_get_bytes(f"{_PREFIX}/{name}", _POLL_MS)
        except Exception as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        return (load_plain(content),)

    def remove(self, directory: str) -> None:
        """Forget every value whose name begins with this and a slash."""
        self._client.key_value_delete(f"{_PREFIX}/{directory}")

    def put_failure(self, index: int, text: str) -> None:
        """Say that a process fails, and why."""
        self._client.key_value_set(f"{_FAILED}/{index}", text, allow_overwrite=True)

    def failures(self) -> dict[int, str]:
        """Process → why it failed, of those that said so."""
        return {int(name.rpartition("/")[2]): text for name, text in self._client.key_value_dir_get(_FAILED)}
