"""The trainer's end of a worker's connection for messages, and of the pipe with the worker's output.

Nothing here blocks: unsent data is kept, and data that has not arrived is read later.
"""

import os
import selectors
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agent_tunix.execution.workers import frames
from agent_tunix.execution.workers.output import OutputLog, OutputPipe

_READ_BYTES = 2**18
_WRITE_BYTES = 2**20


def call_handlers(selector: selectors.BaseSelector, ready: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
    """Call the data of each ready entry with the entry's events, unless the entry is gone.

    A handler of an earlier entry, or another thread, may have closed the entry's file since then, and a new file may
    have its number.
    """
    for key, events in ready:
        current = selector.get_map().get(key.fd)
        if current is not None and current.data == key.data:
            key.data(events)


class Connection:
    """Connection to one worker. Its owner waits on `selector` and calls the data of its entries with the events.

    Args:
        log: Log of the worker's output.
        listen: Called when there may be replies to read.
        reader: Converts the worker's bytes to replies.

    Attributes:
        remote_ends: The worker's ends of the connection and of the pipe, until `hand_over`.
        is_open: True while messages can be sent or received.
        has_more: True if the last call of `replies` read something, so that there may be more.
    """

    def __init__(
        self, log: OutputLog, selector: selectors.BaseSelector, listen: Callable[[], None], reader: frames.FrameReader
    ) -> None:
        self._selector = selector
        self._listen = listen
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._output = OutputPipe(log, selector)
        self.remote_ends = (theirs.detach(), self._output.remote_end)
        self.is_open = True
        self.has_more = False
        self._reader = reader
        self._is_deaf = False
        self._unsent = bytearray()
        selector.register(self._socket, selectors.EVENT_READ, self._attend)

    def hand_over(self) -> None:
        """Close the worker's ends here, once the worker has them."""
        for descriptor in self.remote_ends:
            os.close(descriptor)

    def send(self, message: object) -> None:
        """Send a message as soon as the worker accepts it."""
        self._unsent += frames.pack(message)
        self._flush()

    def replies(self) -> Iterator[Any]:
        """Yield replies of the worker; close the connection when it has ended.

        One call reads at most `_READ_BYTES`, so that an endless worker cannot block its owner. If there is more, the
        selector returns at once.

        Raises:
            frames.BrokenFrameError: Other code has written to the connection.
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
        if not data:  # the worker has died, or its code closed the connection
            self._disconnect()
            return
        self.has_more = True
        if not self._is_deaf:
            yield from self._reader.feed(data)

    def ignore(self) -> None:
        """Discard all further replies."""
        self._is_deaf = True

    def close(self) -> None:
        """Close connection and pipe, and log the remaining output."""
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
        except OSError:  # the worker has died, as the next read shows
            self._unsent.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self._attend)
