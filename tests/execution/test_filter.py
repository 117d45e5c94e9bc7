"""The list of allowed calls, as the kernel would read it, on both architectures."""

import struct

import pytest

from agent_tunix.execution.isolation.filter import Instruction, make_program

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
THREAD = 0x3D0F00

# A call's numbers, its arguments, and what becomes of it.
CALLS: dict[str, tuple[int, int, tuple[int, ...], int]] = {
    "read": (0, 63, (), ALLOW),
    "exit_group": (231, 94, (), ALLOW),
    "a thread": (56, 220, (THREAD,), ALLOW),
    "a process": (56, 220, (17,), EPERM),
    "a thread in a namespace of its own": (56, 220, (THREAD | 0x20000000,), EPERM),
    "clone3": (435, 435, (), ENOSYS),
    "the first new call": (451, 451, (), ENOSYS),
    "setxattrat": (463, 463, (), ENOSYS),
    "a call of another kind": (0x40000000, 0x40000000, (), KILL),
    "execve": (59, 221, (), EPERM),
    "socket": (41, 198, (1, 1), EPERM),
    "kill": (62, 129, (1, 9), EPERM),
    "fanotify_init": (300, 262, (), EPERM),
    "sched_setattr": (314, 274, (), EPERM),
    "shmctl": (31, 195, (), EPERM),
    "a copy of a descriptor": (72, 25, (3, 1030, 0), ALLOW),
    "F_SETOWN": (72, 25, (3, 8, 1), EPERM),
    "F_SETFL with O_NONBLOCK": (72, 25, (3, 4, 0o4000), ALLOW),
    "F_SETFL with O_ASYNC": (72, 25, (3, 4, 0o24000), EPERM),
    "a lock with an address that has the bit of O_ASYNC": (72, 25, (3, 6, 0o20000), ALLOW),
    "F_SETFL with O_DIRECT": (72, 25, (3, 4, 0o240000), EPERM),
    "F_SETFL with O_SYNC": (72, 25, (3, 4, 0o4010000), EPERM),
    "room for a file": (285, 47, (3, 0, 0, 4096), ALLOW),
    "room beyond a file's end": (285, 47, (3, 1, 0, 4096), EPERM),
    "a file without a name": (257, 56, (0, 0, 0o20200002), EPERM),
    "the time": (228, 113, (1,), ALLOW),
    "the processor time of another process": (228, 113, ((~1 << 3 | 2) & 0xFFFFFFFF,), EPERM),
    "sleeping by a clock": (230, 115, (1,), ALLOW),
    "a file to be read soon": (221, 223, (3, 0, 0, 3), ALLOW),
    "a file thrown out of memory": (221, 223, (3, 0, 0, 4), EPERM),
    "reading at a place": (327, 286, (3, 0, 1, 0, 0, 0), ALLOW),
    "reading what is in memory alone": (327, 286, (3, 0, 1, 0, 0, 8), EPERM),
    "PR_SET_NAME": (157, 167, (15,), ALLOW),
    "PR_SET_PDEATHSIG": (157, 167, (1,), EPERM),
    "its own limits read": (302, 261, (0, 7, 0, 4096), ALLOW),
    "limits set by a high address": (302, 261, (0, 7, 1 << 40, 0), EPERM),
    "another's limits read": (302, 261, (1, 7, 0, 4096), EPERM),
    "a pair of UNIX sockets": (53, 199, (1, 1), ALLOW),
    "a pair of others": (53, 199, (2, 1), EPERM),
    "sending": (44, 206, (3, 0, 0, 0x4000, 0), ALLOW),
    "sending to an address": (44, 206, (3, 0, 0, 0, 1 << 36), EPERM),
    "sending out of band": (44, 206, (3, 0, 0, 1, 0), EPERM),
    "opening to read": (257, 56, (0, 0, 0o2000000), ALLOW),
    "opening to empty": (257, 56, (0, 0, 0o1001), ALLOW),
    "opening to read and empty": (257, 56, (0, 0, 0o1000), EPERM),
    "a path alone": (257, 56, (0, 0, 0o10000000), EPERM),
    "memory": (9, 222, (0, 4096, 3, 0x22), ALLOW),
    "huge pages": (9, 222, (0, 4096, 3, 0x40022), EPERM),
    "a futex": (202, 98, (0, 128 | 256 | 9), ALLOW),
    "a futex that inherits priority": (202, 98, (0, 128 | 6), EPERM),
}


def judge(program: list[Instruction], audit: int, number: int, arguments: tuple[int, ...]) -> int:
    """Run the filter as the kernel does."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    value = place = 0
    while True:
        operation, if_true, if_false, operand = program[place]
        place += 1
        match operation:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                value &= operand
            case 0x06:
                return operand
            case _:
                tests = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}
                place += if_true if tests[operation] else if_false


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", CALLS)
def test_what_becomes_of_a_call(name: str, machine: str) -> None:
    x86, arm, arguments, verdict = CALLS[name]
    number = x86 if machine == "x86_64" else arm
    assert judge(make_program(machine), MACHINES[machine], number, arguments) == verdict


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_by_the_numbers_of_another_architecture_end_the_process(machine: str) -> None:
    assert judge(make_program(machine), 0x40000003, 20, ()) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_few_calls_are_allowed_whatever_their_arguments(machine: str) -> None:
    program, refused = make_program(machine), tuple([(1 << 64) - 1] * 6)
    allowed = [number for number in range(2048) if judge(program, MACHINES[machine], number, refused) == ALLOW]
    assert len(allowed) < 115
    assert len(program) < 450
