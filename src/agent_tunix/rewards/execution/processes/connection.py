"""The trainer's end of what leads to one worker: a connection for messages, and a pipe with what its code prints.

Nothing here ever waits: what cannot be sent yet is kept, and what has not come yet is read another time.
"""

import os
import selectors
import socket
from collections.abc import Callable, Iterator
from typing import Any

from agent_tunix.rewards.execution import wire
from agent_tunix.rewards.execution.output import OutputPipe

_READ_BYTES = 2**18
_WRITE_BYTES = 2**20


class Connection:
    """What leads to one worker.

    Args:
        source: Who prints what comes through the pipe.
        selector: By which its owner waits; its entries hold what to call with the events.
        listen: Called when there may be replies to read.
        reader: Makes replies of what the worker writes.

    Attributes:
        remote_ends: The worker's ends, the connection's and the pipe's, until `hand_over`.
        is_open: Whether anything can still be said or heard.
        has_more: Whether the last call of `replies` read something, so that more may have come.
    """

    def __init__(
        self, source: str, selector: selectors.BaseSelector, listen: Callable[[], None], reader: wire.FrameReader
    ) -> None:
        self._selector = selector
        self._listen = listen
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._output = OutputPipe(source, selector)
        self.remote_ends = (theirs.detach(), self._output.remote_end)
        self.is_open = True
        self.has_more = False
        self._reader = reader
        self._is_deaf = False
        self._unsent = bytearray()
        selector.register(self._socket, selectors.EVENT_READ, self._attend)

    def hand_over(self) -> None:
        """The worker has its ends now: close them here."""
        for descriptor in self.remote_ends:
            os.close(descriptor)

    def send(self, message: object) -> None:
        """Send a message as soon as the worker takes it."""
        self._unsent += wire.pack(message)
        self._flush()

    def replies(self) -> Iterator[Any]:
        """Some of what the worker has said; closes the connection where it says no more.

        One call reads `_READ_BYTES` at most: a worker that never stops must not keep its owner from anything else. What
        is left makes the selector return at once.

        Raises:
            wire.BrokenFrameError: Somebody else has written to it.
        """
        self.has_more = False
        if not self.is_open:
            return
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # dead, or its code closed the connection
            self._disconnect()
            return
        self.has_more = True
        if not self._is_deaf:
            yield from self._reader.feed(data)

    def ignore(self) -> None:
        """Whatever else is said is read and means nothing."""
        self._is_deaf = True

    def close(self) -> None:
        """Give up both; what was printed is logged."""
        if self.is_open:
            self._disconnect()
        self._output.close()

    def _attend(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._listen()
        if events & selectors.EVENT_WRITE:
            self._flush()

    def _disconnect(self) -> None:
        self._selector.unregister(self._socket)
        self._socket.close()
        self.is_open = False

    def _flush(self) -> None:
        if not self.is_open:
            return
        try:
            while self._unsent:
                with memoryview(self._unsent) as view:
                    sent = self._socket.send(view[:_WRITE_BYTES])
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:  # it is dead, as will be heard
            self._unsent.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self._attend)
