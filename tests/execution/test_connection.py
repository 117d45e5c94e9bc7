"""Events of connections that other threads close."""

import selectors
import socket

from agent_tunix.execution.workers.connection import call_handlers


def test_entries_that_were_closed_since_are_not_called() -> None:
    called: list[str] = []
    with selectors.DefaultSelector() as selector:
        ours, theirs = socket.socketpair()
        selector.register(ours, selectors.EVENT_READ, lambda _: called.append("old"))
        theirs.send(b"x")
        ready = selector.select()
        number = ours.fileno()
        selector.unregister(ours)
        ours.close()
        call_handlers(selector, ready)
        assert called == []

        new, other = socket.socketpair()  # a new file may get the number
        assert new.fileno() == number
        selector.register(new, selectors.EVENT_READ, lambda _: called.append("new"))
        call_handlers(selector, ready)
        assert called == []
        other.send(b"x")
        call_handlers(selector, selector.select())
        assert called == ["new"]
        for end in (theirs, new, other):
            end.close()
