"""Operations and bytes of a compiled program, with loops counted as often as they run.

XLA's own cost analysis counts the body of a loop once. Here each body is analysed as a program of its own, and added
for each further round. XLA does not count kernels at all: here they count as the cost that their authors estimate, or,
without an estimate, as the bytes of their arguments and results. XLA counts every array that an operation reads or
writes, although the TPU's compiler keeps many of them in the chip's own memory (`S(1)` in their layout), and a whole
array for each slice of it that is copied there. `Cost.hbm` leaves both out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
from jaxlib import _hlo, _jax  # type: ignore[attr-defined,unused-ignore]

_LOOP = re.compile(r"^ .* while\(.*condition=%([^,\s]+), body=%([^,\s]+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"^ +(?:ROOT )?%(\S+) = (.*?) ([a-z][a-z\-]*)\((.*)$", re.MULTILINE)
_KERNEL = 'custom_call_target="tpu_custom_call"'
_ESTIMATE = re.compile(r'"cost_estimate":\{"flops":"(\d+)".*?"bytes_accessed":"(\d+)"')
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,]*)\](\{[^}]*\})?")
# Instructions that move nothing, or whose beginning is counted.
_FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "while", "conditional", "copy-done"}
_FREE |= {"slice-done", "iota", "after-all"}


@dataclass(frozen=True)
class Cost:
    """The work of one chip.

    Attributes:
        flops: Floating-point operations, without those of kernels that estimate none, such as those of attention.
        bytes: Bytes that operations read and write, as XLA counts them, and those of kernels.
        hbm: Those of arrays in HBM; an upper bound, because an operation may read a part of an array.
    """

    flops: float
    bytes: float
    hbm: float

    def plus(self, other: "Cost", times: float = 1) -> "Cost":
        """Return the sum of this and another cost, so many times."""
        return Cost(self.flops + times * other.flops, self.bytes + times * other.bytes, self.hbm + times * other.hbm)


def analyse(text: str, repeats: Sequence[int] = ()) -> tuple[Cost, Cost]:
    """Return the cost of a compiled program, and the cost with each loop's body counted once, as XLA does.

    Args:
        text: The program, as `Compiled.as_text` returns it.
        repeats: Rounds of the loops whose number of rounds is not in the program, in its order.
    """
    client = jax.local_devices(backend="cpu")[0].client
    plain = "HloModule program\n" + text.split("\n", 1)[1].replace("\nENTRY %", "\n%")
    computations = dict(_computations(text))
    entry = re.search(r"\nENTRY %(\S+) ", text)
    assert entry is not None
    unknown = iter(repeats)

    def loops(name: str) -> list[tuple[str, str]]:
        return _LOOP.findall(computations[name])

    def once(name: str) -> Cost:
        module = _hlo.hlo_module_from_text(plain.replace(f"\n%{name} (", f"\nENTRY %{name} ("))
        found = _jax.hlo_module_cost_analysis(client, module)
        return Cost(found["flops"], found["bytes accessed"], 0.0).plus(others_once(name))

    def others_once(name: str) -> Cost:
        cost = _count(computations[name])
        for _, body in loops(name):
            cost = cost.plus(others_once(body))
        return cost

    def whole(name: str) -> Cost:
        cost = once(name)
        for condition, body in loops(name):
            limits = re.findall(r"s32\[\]\S* constant\((\d+)\)", computations[condition])
            rounds = int(limits[0]) if len(limits) == 1 else next(unknown)
            cost = cost.plus(whole(body), rounds).plus(once(body), -1)
        return cost

    return whole(entry[1]), once(entry[1])


def _computations(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each computation of a program."""
    for part in re.split(r"\n(?=(?:ENTRY )?%\S+ \()", text)[1:]:
        yield part.removeprefix("ENTRY ")[1:].split(" ", 1)[0], part


def _count(computation: str) -> Cost:
    """Return what XLA does not count: kernels, and bytes of HBM; loops not included."""
    types: dict[str, str] = {}
    cost = Cost(0.0, 0.0, 0.0)
    for name, result, kind, rest in _INSTRUCTION.findall(computation):
        types[name] = result
        if kind in _FREE:
            continue
        operands = re.findall(r"%([\w.\-]+)", re.split(r"\)(?:, |$)", rest)[0])
        arrays = [result, *(types.get(operand, "") for operand in operands)]
        if kind == "slice-start":
            # ((source), slice, context): only the slice moves.
            cost = cost.plus(Cost(0.0, 0.0, sum(_sizes(result, everywhere=True)[1:2])))
        elif kind == "copy-start":
            # (target, source, context).
            cost = cost.plus(Cost(0.0, 0.0, sum(_sizes(result))))
        elif estimate := _ESTIMATE.search(rest):
            flops, moved = map(float, estimate.groups())
            cost = cost.plus(Cost(flops, moved, moved))
        else:
            everywhere = sum(sum(_sizes(one, everywhere=True)) for one in arrays) if _KERNEL in rest else 0.0
            cost = cost.plus(Cost(0.0, everywhere, sum(sum(_sizes(one)) for one in arrays)))
    return cost


def _sizes(types: str, *, everywhere: bool = False) -> list[float]:
    """Return the bytes of each array of a type; 0 for those in the chip's own memory, unless `everywhere`."""
    sizes = []
    for kind, bits, dimensions, layout in _ARRAY.findall(types):
        size = 1.0 if kind == "pred" else int(bits) / 8
        for dimension in filter(None, dimensions.split(",")):
            size *= int(dimension)
        sizes.append(0.0 if "S(" in layout and not everywhere else size)
    return sizes
