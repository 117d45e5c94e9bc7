"""The process that a program runs in, or the tests of one. It is started as a script and isolates itself first."""

import contextlib
import ctypes
import json
import os
import platform
import resource
import struct
import sys
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PACKAGES = ("agent_tunix", "agent_tunix.rewards", "agent_tunix.rewards.sandbox")

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 38, 22
_SECCOMP_MODE_FILTER = 2
_SIGKILL = 9
_EPERM = 1

# Landlock: its calls, which have one number everywhere, and its rights.
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION, _BENEATH = 1, 1
_READ_FILE, _READ_DIRECTORY = 1 << 2, 1 << 3
_READABLE = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom", ".")

# Classic BPF, as seccomp takes it: operation, jump if true, jump if false, operand.
_LOAD, _JUMP_EQUAL, _JUMP_LESS_NOT, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | _EPERM, 0x80000000
_OFFSET_OF_NUMBER, _OFFSET_OF_ARCHITECTURE, _OFFSET_OF_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# The same number on every architecture: pidfd_send_signal, io_uring_*, open_tree to fspick, pidfd_open, clone3,
# openat2, pidfd_getfd, mount_setattr, fchmodat2.
_REFUSED_EVERYWHERE = (424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 435, 437, 438, 442, 452)
_SYSTEMS: dict[str, tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]]] = {
    # architecture as audit numbers it; calls that are refused; (call, place of its flags) that may not write
    "x86_64": (
        0xC000003E,
        (
            *(41, 42, 43, 44, 46, 49, 50, 53, 288, 307),  # sockets
            *(56, 57, 58, 59, 322),  # clone, fork, vfork, execve, execveat
            *(62, 129, 200, 234, 297, 101, 310, 311),  # kill and its kin, ptrace, process_vm_*
            *(76, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 132, 133, 235),  # files: truncate to utimes
            *(188, 189, 190, 197, 198, 199, 258, 259, 260, 261, 263, 264, 265, 266, 268, 280, 316),
            *(29, 30, 64, 68, 240, 155, 161, 165, 166, 169, 170, 175, 176, 246, 272, 308, 313, 321, 323, 298),  # system
            *(248, 249, 250, 160, 302, 141, 144, 203, 304),  # keys, limits, priorities, files by handle
        ),
        ((2, 1), (257, 2)),
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(198, 199, 200, 201, 202, 203, 206, 211, 242, 269),
            *(220, 221, 281),
            *(129, 130, 131, 138, 240, 117, 270, 271),
            *(5, 6, 7, 14, 15, 16, 33, 34, 35, 36, 37, 38, 45, 52, 53, 54, 55, 88, 276),
            *(39, 40, 41, 51, 97, 105, 106, 142, 161, 162, 180, 186, 190, 194, 196, 241, 268, 273, 280, 282),
            *(217, 218, 219, 164, 261, 140, 118, 119, 122, 265),
        ),
        ((56, 2),),
    ),
}


def isolate(cpu_s: int, memory_bytes: int, output_bytes: int) -> None:
    """Give up everything but computing.

    Raises:
        OSError: The kernel refused.
    """
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, output_bytes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        resource.setrlimit(limit, (value, value))
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, _PR_SET_PDEATHSIG, _SIGKILL)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _hide_files(libc)
    instructions = _filter()
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
    program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    pointer = ctypes.create_string_buffer(program)
    _prctl(libc, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(pointer))


def _hide_files(libc: ctypes.CDLL) -> None:
    """Leave nothing to read but the standard library and what it loads, on kernels that can (Linux 5.13 and later)."""
    if libc.syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION) < 1:
        return
    handled = ctypes.c_uint64(_READ_FILE | _READ_DIRECTORY)
    rules = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(handled), ctypes.sizeof(handled), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "Landlock makes no rules")
    for path in {*map(sysconfig.get_path, ("stdlib", "platstdlib")), f"{sys.base_prefix}/lib", *_READABLE}:
        if not os.path.exists(path):
            continue
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = handled.value if os.path.isdir(path) else _READ_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, place))
        failed = libc.syscall(_LANDLOCK_ADD, rules, _BENEATH, rule, 0)
        os.close(place)
        if failed:
            raise OSError(ctypes.get_errno(), f"Landlock takes no rule for {path}")
    if libc.syscall(_LANDLOCK_RESTRICT, rules, 0):
        raise OSError(ctypes.get_errno(), "Landlock restricts nothing")
    os.close(rules)


def _prctl(libc: ctypes.CDLL, option: int, argument: int, second: int = 0) -> None:
    arguments = [ctypes.c_ulong(value) for value in (argument, second, 0, 0)]
    if libc.prctl(ctypes.c_int(option), *arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _filter() -> list[tuple[int, int, int, int]]:
    if sys.platform != "linux" or platform.machine() not in _SYSTEMS:
        raise OSError(f"programs are isolated on Linux with {' or '.join(_SYSTEMS)} alone")
    architecture, refused, writing = _SYSTEMS[platform.machine()]
    instructions = [
        (_LOAD, 0, 0, _OFFSET_OF_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _OFFSET_OF_NUMBER),
        (_JUMP_LESS_NOT, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for call in (*refused, *_REFUSED_EVERYWHERE):
        instructions += [(_JUMP_EQUAL, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    for call, place in writing:
        instructions += [
            (_JUMP_EQUAL, 0, 4, call),
            (_LOAD, 0, 0, _OFFSET_OF_ARGUMENTS + 8 * place),
            (_JUMP_ANY_BIT, 0, 1, _WRITING),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [*instructions, (_RETURN, 0, 0, _ALLOW)]


def main() -> None:
    """Read the job, isolate, do it, and report line by line."""
    report, *line = map(int, sys.argv[1:])
    job: dict[str, Any] = json.load(sys.stdin)
    _give_input(job["stdin"])
    with contextlib.suppress(ImportError):
        import encodings.idna  # noqa: F401  (what reading and printing may ask for later)
    work = {"dialogue": _run, "program": _run_and_serve, "tests": _test}[job["role"]]
    if line:
        _import_own()
    try:
        isolate(job["cpu_s"], job["memory_bytes"], job["output_bytes"])
    except (OSError, ValueError) as error:
        os.write(report, f"refused: {error}\n".encode())
        return
    work(job, report, line)


def _import_own() -> None:
    """Import what is ours without the packages around it, which would load much; and leave no way to the rest."""
    for name, directory in zip(_PACKAGES, reversed(Path(__file__).parents[: len(_PACKAGES)]), strict=True):
        package = types.ModuleType(name)
        package.__path__ = [str(directory)]
        sys.modules[name] = package
    import agent_tunix.rewards.sandbox.checker
    import agent_tunix.rewards.sandbox.program  # noqa: F401

    for name in _PACKAGES:
        sys.modules[name].__path__ = []


def _run(job: dict[str, Any], report: int, _: list[int]) -> None:
    """A program that reads and prints."""
    say = _reporter(job, report)
    say("isolated")
    problem = _attempt(job["code"], _namespace(), exit_is_fine=True)
    say(f"problem {problem}" if problem else "ended")


def _run_and_serve(job: dict[str, Any], report: int, line: list[int]) -> None:
    """A program whose functions are called from the tests' process. It has no way to report anything itself."""
    from agent_tunix.rewards.sandbox.exchange import Line
    from agent_tunix.rewards.sandbox.program import Server

    _reporter(job, report)("isolated")
    os.close(report)
    tests, namespace = Line(*line), _namespace()
    problem = _attempt(job.pop("code"), namespace, exit_is_fine=True)
    if problem:
        tests.send({"problem": problem})
    else:
        Server(tests, namespace).serve()


def _test(job: dict[str, Any], report: int, line: list[int]) -> None:
    """The tests of a program that runs in another process."""
    from agent_tunix.rewards.sandbox.checker import Client, names_for
    from agent_tunix.rewards.sandbox.exchange import Line

    say = _reporter(job, report)
    say("isolated")
    try:
        names, problem = Client(Line(*line)).greet()
    except (EOFError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        names, problem = {}, str(error)
    if problem:
        say(f"problem {problem}")
        return
    namespace = _namespace()
    for index, check in enumerate(job["checks"]):
        seen = names_for(check, names)
        for name, value in names.items():
            if name in seen:
                namespace.setdefault(name, value)
            elif namespace.get(name) is value:
                del namespace[name]
        problem = _attempt(check, namespace, exit_is_fine=False)
        say(f"problem {problem}" if problem else f"passed {index}")
    say("ended")


def _reporter(job: dict[str, Any], report: int) -> Callable[[str], None]:
    def say(line: str, token: str = job.pop("token")) -> None:
        os.write(report, f"{token} {line}\n".encode(errors="replace"))

    return say


def _namespace() -> dict[str, Any]:
    return {"__name__": "__main__", "__builtins__": __builtins__}


def _attempt(code: str, namespace: dict[str, Any], exit_is_fine: bool) -> str:
    """Run it; what went wrong, in a line, or ""."""
    try:
        exec(compile(code, "<response>", "exec"), namespace)
        sys.stdout.flush()
    except SystemExit as leaving:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        return "" if exit_is_fine and leaving.code in (None, 0) else "it called exit"
    except BaseException as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return ""


def _give_input(text: str) -> None:
    """Let standard input hold the text, for `input()` and for file descriptor 0 alike."""
    memory = os.memfd_create("input")
    os.write(memory, text.encode(errors="replace"))
    os.lseek(memory, 0, os.SEEK_SET)
    os.dup2(memory, 0)
    os.close(memory)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="replace", closefd=False)


if __name__ == "__main__":
    main()
