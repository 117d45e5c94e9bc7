"""Meeting of the processes of a run at the coordinator's port, before JAX's coordination service takes it.

The service shares its port with any other service of the same user, crashes if another program has the port, and lets
a process of another run replace one of its own. So process 0 binds the port plainly first, which fails if it is taken,
and every other process reports there. Process 0 frees the port once all have come. What answers differently is another
program, or the service of a run that is complete.

Runs that start together on one port have different configurations. So a process with another configuration than process
0 has to wait, and takes part only if the right one does not come. Then an error in all processes names the difference.
"""

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Iterator, Mapping

from agent_tunix.errors import ConfigError

_GREETING = b"agent_tunix process "
_WELCOME = b"agent_tunix: wait\n"
_GO = b"agent_tunix: go\n"
_LONGEST_LINE = 128

# Seconds that a greeting may take, and its answer. Process 0 reads one greeting after the other.
_GREETING_S = 2.0
_ANSWER_S = 20.0
# Seconds that a process with another configuration waits for the right one.
_STRANGER_S = 10.0
# Seconds between two attempts to connect, and attempts that may end without an answer: process 0 frees the port, and a
# process that comes too late finds it closing.
_PAUSE_S = 0.5
_MOST_CUT_OFF = 10


class NobodyCameError(Exception):
    """Not all processes came in time."""


def meet(address: str, index: int, count: int, timeout_s: float, identity: str = "") -> None:
    """Wait until all processes of the run have come to the address of process 0.

    Args:
        address: `HOST:PORT` of process 0.
        index: Index of this process.
        count: Number of processes.
        timeout_s: Seconds within which all must come.
        identity: Text that is the same in all processes of the run.

    Raises:
        ConfigError: The port belongs to another program or another run, or the index to another process.
        NobodyCameError: Not all processes came in time.
    """
    deadline = time.monotonic() + timeout_s
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    if index == 0:
        with _bound(address) as listener:
            _receive(listener, count, digest, deadline)
        return
    cut_off = 0
    while cut_off < _MOST_CUT_OFF:
        if time.monotonic() > deadline:
            raise NobodyCameError
        with contextlib.suppress(OSError):
            has_answer, has_gone = _report(address, f"{index} {digest}", deadline)
            if has_gone:
                return
            cut_off = 0 if has_answer else cut_off + 1
        time.sleep(_PAUSE_S)
    raise _not_ours(address)


@contextlib.contextmanager
def _bound(address: str) -> Iterator[socket.socket]:
    """Bind the port on all addresses of this machine, or where JAX's own variable says."""
    where = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", "[::]:" + address.rpartition(":")[2])
    host, port = _split(where)
    is_any = host in ("::", "0.0.0.0")  # as JAX's service does
    dual = is_any and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or (":" in host and not is_any) else socket.AF_INET
    try:
        listener = socket.create_server(
            ("" if is_any else host, port), family=family, backlog=1024, dualstack_ipv6=dual
        )
    except OSError as error:
        raise ConfigError(
            f"distributed.coordinator_address={address} requires a free port {port} on this machine, but it cannot be "
            f"used ({error.strerror}); another program or another run may have it; set another port in all processes",
            code="processes_unreachable",
        ) from error
    with listener:
        yield listener


def _receive(listener: socket.socket, count: int, digest: str, deadline: float) -> None:
    """Wait for the other processes, and let all of them go at once."""
    present: dict[int, socket.socket] = {}
    strangers: dict[int, tuple[float, socket.socket]] = {}  # processes with another configuration
    listener.settimeout(_PAUSE_S)
    with contextlib.ExitStack() as stack:
        while len(present) < count - 1:
            if time.monotonic() > deadline:
                raise NobodyCameError
            patient = [index for index, (since, _) in strangers.items() if time.monotonic() - since > _STRANGER_S]
            for index in patient:
                present.setdefault(index, strangers.pop(index)[1])
            with contextlib.suppress(OSError):  # nobody came in this moment, or somebody left again
                connection, _ = listener.accept()
                stack.enter_context(connection)
                index, announcement = _admit(connection, count, present)
                if announcement == digest:
                    present[index] = connection
                elif announcement:
                    strangers[index] = time.monotonic(), connection
        for connection in present.values():
            with contextlib.suppress(OSError):  # JAX notices a process that is gone
                connection.sendall(_GO)


def _admit(connection: socket.socket, count: int, present: Mapping[int, socket.socket]) -> tuple[int, str]:
    """Answer a greeting, and return its index and digest; an empty digest if the process cannot take part."""
    index, digest = _read_greeting(connection)
    if 0 < index < count and (index not in present or _is_gone(present[index])):
        connection.sendall(_WELCOME)
        return index, digest
    connection.sendall(f"process {index} of {count} is taken\n".encode())
    connection.close()
    return index, ""


def _read_greeting(connection: socket.socket) -> tuple[int, str]:
    """Return the index and the digest in a greeting; -1 if it is none, as from a scanner of ports."""
    try:
        connection.settimeout(_GREETING_S)
        line = _read_line(connection)
        index, digest = line.removeprefix(_GREETING).decode().split()
        return (int(index), digest) if line.startswith(_GREETING) else (-1, "")
    except (OSError, ValueError):
        return -1, ""


def _is_gone(connection: socket.socket) -> bool:
    """Return True if a process that waited has closed its connection."""
    try:
        connection.setblocking(False)
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(_GREETING_S)


def _report(address: str, greeting: str, deadline: float) -> tuple[bool, bool]:
    """Report to process 0, and wait until all processes have.

    Returns:
        True if process 0 answered, and True if it let this process go.

    Raises:
        ConfigError: What answers is not process 0 of this run.
        OSError: Nothing listens there yet, or the connection broke.
    """
    with socket.create_connection(_split(address), timeout=_ANSWER_S) as connection:
        try:
            connection.sendall(_GREETING + f"{greeting}\n".encode())
            answer = _read_line(connection)
        except TimeoutError:
            raise _not_ours(address) from None
        except OSError:
            return False, False
        if not answer:
            return False, False
        if answer != _WELCOME:
            raise _not_ours(address)
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        return True, _read_line(connection) == _GO


def _read_line(connection: socket.socket) -> bytes:
    """Return the next line; the rest if the connection ends or the line is too long."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE and (byte := connection.recv(1)):
        line += byte
    return line


def _not_ours(address: str) -> ConfigError:
    return ConfigError(
        f"distributed.coordinator_address={address} requires process 0 of this run at port "
        f"{address.rpartition(':')[2]}, but another program or another run answers there, or the "
        "distributed.process_id is in use; set another port in all processes, and another id in each",
        code="processes_unreachable",
    )


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
