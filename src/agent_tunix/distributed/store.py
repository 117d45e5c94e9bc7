"""Named values of built-in types in the key-value store of JAX's coordination service.

The service runs in process 0 on every platform. Nothing here uses a device. So an exchange does not wait for
computations, and its order relative to them does not matter.
"""

import pickle
from typing import Any

from agent_tunix.execution.workers.frames import load_plain

# Milliseconds that one request waits for a value. Callers look for failures of other processes between requests.
_POLL_MS = 1000
_PREFIX = "agent_tunix"
_FAILED = f"{_PREFIX}/failed"


def check_plain(value: Any) -> None:
    """Refuse a value that other processes could not read.

    Raises:
        BrokenFrameError: The value has types that are not built in.
    """
    load_plain(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class ValueStore:
    """The key-value store of a run."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, name: str, value: Any) -> None:
        """Store a value of built-in types under a name that is not in use."""
        self._client.key_value_set_bytes(f"{_PREFIX}/{name}", pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def poll(self, name: str) -> tuple[Any] | None:
        """Return the value of a name in a tuple of one; None if there is no value within a second."""
        try:
            content = self._client.blocking_key_value_get_bytes(f"{_PREFIX}/{name}", _POLL_MS)
        except Exception as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        return (load_plain(content),)

    def remove(self, directory: str) -> None:
        """Remove every value whose name starts with `directory` and a slash."""
        self._client.key_value_delete(f"{_PREFIX}/{directory}")

    def put_failure(self, index: int, text: str) -> None:
        """Store the failure of a process."""
        self._client.key_value_set(f"{_FAILED}/{index}", text, allow_overwrite=True)

    def failures(self) -> dict[int, str]:
        """Return process index → text of its failure, for processes that stored one."""
        return {int(name.rpartition("/")[2]): text for name, text in self._client.key_value_dir_get(_FAILED)}
