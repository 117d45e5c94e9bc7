"""Frames: messages between this process and its workers.

A frame is a mark, a length and a pickle. Data *from* a worker is read with an unpickler that makes only built-in
containers and numbers, so that no user's class is unpickled in this process.
"""

import io
import json
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any

from agent_tunix.visible_text import one_line

_HEADER = struct.Struct("!4sI")
_MARK = b"ATRW"
HEADER_BYTES = _HEADER.size
LARGEST_REPLY_BYTES = 64 * 2**20
LARGEST_JSON_BYTES = 2 * 2**20
_LONGEST_TEXT = 4000
_MOST_PIECES = 50_000


class BrokenFrameError(Exception):
    """Error for data that is not from the other side's protocol: other code wrote to the connection."""


def pack(message: object) -> bytes:
    """Return the frame of a message."""
    return frame(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def pack_json(message: object) -> bytes:
    """Return the frame of a message as JSON; sets become lists."""
    return frame(json.dumps(message, separators=(",", ":"), default=_as_list).encode())


def frame(content: bytes) -> bytes:
    """Return a frame around serialised content."""
    return _HEADER.pack(_MARK, len(content)) + content


def read_header(header: bytes) -> int:
    """Return the length of the content that follows.

    Raises:
        BrokenFrameError: It is not a header.
    """
    mark, length = _HEADER.unpack(header)
    if mark != _MARK:
        raise BrokenFrameError("foreign bytes")
    return int(length)


class FrameReader:
    """Reader of a worker's replies from pieces of bytes. `load` (by default `load_plain`) decodes each reply."""

    def __init__(self, load: Callable[[bytes], Any] | None = None, largest_bytes: int = LARGEST_REPLY_BYTES) -> None:
        self._load = load or load_plain
        self._largest_bytes = largest_bytes
        self._buffer = bytearray()
        self._num_pieces = 0  # of the reply that is being read

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the replies that these bytes complete.

        Raises:
            BrokenFrameError: The bytes are not a frame, or not one that a worker sends.
        """
        self._buffer += data
        self._num_pieces += 1
        if self._num_pieces > _MOST_PIECES:
            raise BrokenFrameError(f"a reply in more than {_MOST_PIECES} pieces")
        start = 0
        while len(self._buffer) - start >= HEADER_BYTES:
            length = read_header(bytes(self._buffer[start : start + HEADER_BYTES]))
            if length > self._largest_bytes:
                raise BrokenFrameError(f"a reply of {length} bytes")
            end = start + HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            yield self._load(bytes(self._buffer[start + HEADER_BYTES : end]))
            start = end
            self._num_pieces = 0
        del self._buffer[:start]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def load_plain(content: bytes) -> Any:
    """Unpickle content that has only built-in types.

    Raises:
        BrokenFrameError: The content is damaged or has other types.
    """
    try:
        return _PlainUnpickler(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise BrokenFrameError(str(error)) from error


def load_json(content: bytes) -> list[Any]:
    """Return a reply of other people's code: its kind and its parts, with texts cut and on one line.

    JSON can only hold numbers, texts, lists and mappings, and reading it runs no code. The receiver checks the parts.

    Raises:
        BrokenFrameError: The content is not a reply.
    """
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BrokenFrameError(f"a reply that is not JSON: {str(error)[:100]}") from None
    if not isinstance(reply, list) or not reply or not isinstance(reply[0], str):
        raise BrokenFrameError("a reply without a kind")
    return [one_line(part[:_LONGEST_TEXT]) if isinstance(part, str) else part for part in reply]


def _as_list(value: object) -> list[Any]:
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not plain data")
